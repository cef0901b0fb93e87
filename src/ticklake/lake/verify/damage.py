"""Finds damaged files of a table and of its log, without its batch files."""

from __future__ import annotations

import pyarrow as pa

from ticklake.lake.delta import DeltaError, Location, TableFile, checksum, live_files, one_line, opened, opened_table
from ticklake.lake.verify.inspection import inspected


def damaged_files(location: Location, ordinal: str) -> dict[str, str]:
    """Returns the damaged files by path, with the reason. Reads the whole log and every byte of every file."""
    log = inspected(location, ordinal)
    try:
        files = live_files(opened_table(location), ordinal)
    except (DeltaError, OSError) as error:
        return log.flaws | {str(location): one_line(error)}
    found = {location.file(file.path): log.checksums.get(file.path, "") for file in files}
    return log.flaws | {str(file): flaw for file, expected in found.items() if (flaw := _flaw(file, expected))}


def _flaw(file: TableFile, expected: str) -> str:
    try:
        if expected:
            return "its checksum is wrong" if checksum(file) != expected else ""
        with opened(file) as stored:
            for group in range(stored.num_row_groups):
                stored.read_row_group(group)
    except (OSError, pa.ArrowException) as error:
        return one_line(error)
    return ""
