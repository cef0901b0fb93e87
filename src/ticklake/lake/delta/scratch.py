"""Lets delta-rs work on a copy of a log in a temporary folder, because it writes by path and does not sync.

Our code then copies the results to the real log: complete, durable, and into the folder that is held open.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from ticklake import faults
from ticklake.lake.delta import checkpoints, commits
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.location import LOG
from ticklake.lake.errors import DamagedCommit

HINT = "_last_checkpoint"


def first_commit(name: str, schema: pa.Schema, configuration: Mapping[str, str | None]) -> bytes:
    """Returns the commit that creates a table."""
    faults.reach("lake.create.before")
    with _scratch() as folder:
        DeltaTable.create(folder, schema, name=name, configuration=configuration, raise_if_key_not_exists=False)
        return (folder / LOG / commits.name_of(0)).read_bytes()


def checkpoint(source: TableFolder, version: int) -> dict[str, bytes]:
    """Makes a checkpoint and returns its files by name. The hint that points to it is the last."""
    faults.reach("lake.checkpoint.before")
    with _scratch() as folder:
        copied = {name: data for name in _needed(source, version) if (data := source.read(name)) is not None}
        (folder / LOG).mkdir()
        for name, data in copied.items():
            if commits.is_commit(name):
                _check(source, name, data)
            (folder / LOG / name).write_bytes(data)
        DeltaTable(folder, version=version).create_checkpoint()
        made = sorted(path for path in (folder / LOG).iterdir() if path.name not in copied and path.name != HINT)
        return {path.name: path.read_bytes() for path in (*made, folder / LOG / HINT) if path.is_file()}


def _check(source: TableFolder, name: str, data: bytes) -> None:
    """Raises DamagedCommit. delta-rs silently skips an empty commit: the checkpoint would lack its files."""
    try:
        commits.decode_commit(data, "")
    except ValueError as error:
        raise DamagedCommit(file=str(source.location.log_file(name)), reason=error) from error


def _needed(source: TableFolder, version: int) -> list[str]:
    """Returns the newest checkpoint before that version, and the commits after it."""
    found = checkpoints.whole(source.names())
    start = max((number for number in found.values() if number < version), default=-1)
    newest = [name for name, number in found.items() if number == start]
    return newest + [commits.name_of(number) for number in source.versions() if start < number <= version]


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ticklake-log-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
