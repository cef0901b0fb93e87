"""Finds damaged files of a table and of its log, without its batch files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ticklake.lake.delta import DeltaError, DeltaTable, checksum, live_files, one_line, opened
from ticklake.lake.verify.inspection import inspected


def damaged_files(directory: Path, ordinal: str) -> dict[str, str]:
    """Returns the damaged files by path, with the reason. Reads the whole log and every byte of every file."""
    log = inspected(directory, ordinal)
    try:
        files = live_files(DeltaTable(directory), ordinal)
    except (DeltaError, OSError) as error:
        return log.flaws | {str(directory): one_line(error)}
    found = {directory / file.path: log.checksums.get(file.path, "") for file in files}
    return log.flaws | {str(path): flaw for path, expected in found.items() if (flaw := _flaw(path, expected))}


def _flaw(path: Path, expected: str) -> str:
    try:
        if expected:
            return "its checksum is wrong" if checksum(path) != expected else ""
        with opened(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except (OSError, pa.ArrowException) as error:
        return one_line(error)
    return ""
