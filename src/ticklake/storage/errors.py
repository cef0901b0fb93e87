"""Errors of storage: names, files, runs."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class UnsafeRunId(TickLakeError):
    message = (
        "{run_id!r} cannot be a run id: it becomes a folder's name, so only letters, digits, dot, dash and "
        "underscore are allowed, at most 200, not starting with a dot or dash. Example: 20251014-143025-550e8400."
    )
    run_id: str


class UnsafeStorageKey(TickLakeError):
    message = (
        "The storage key {key!r} is refused: it must be RUN/…/FILE of plain names and stay inside the storage folder "
        "(no `..`, no absolute path, no link that leads out). Check where it came from."
    )
    key: str


class StoredFileMissing(TickLakeError):
    message = (
        "No file {key!r} in {storage}. If a message announced it, the writer uses another storage, or the file was "
        "deleted: check that both use the same folder."
    )
    key: str
    storage: str


class NotABatchFile(TickLakeError):
    message = (
        "{key!r} is not named like a batch file (batch_FIRST_LAST.pb or .pb.zst, FIRST up to LAST). Pass the key of "
        "a batch file."
    )
    key: str


class StoredFileConflict(TickLakeError):
    message = (
        "{key!r} already exists in {storage} with other content, and was not changed. Two producers use the same "
        "run id: give each its own."
    )
    key: str
    storage: str


class BadFile(TickLakeError):
    message = (
        "{key!r} is corrupt at byte {offset} of its decompressed bytes: {reason}. Restore it from its source or "
        "write the run again."
    )
    key: str
    offset: int
    reason: object


class BadBatchFile(BadFile):
    message = (
        "Batch file {key!r} is refused at byte {offset} of its decompressed bytes, tick {tick}: {reason}. Nothing of "
        "it is added to a table; restore the file from its source and replay its message."
    )
    tick: int | None


class BatchOutOfOrder(TickLakeError):
    message = (
        "A batch of run {run_id!r} cannot be written: {reason}. Pass at least one tick, in strictly ascending order."
    )
    run_id: str
    reason: object


class RunNotFound(TickLakeError):
    message = "No run {run_id!r} in {places}; the newest runs are: {found}. `ticklake runs` lists all."
    run_id: str
    places: object
    found: str


class NoRuns(RunNotFound):
    message = "There is no run in {places} yet."


class StorageLibraryMissing(TickLakeError):
    message = "Storage {url} needs a library that is not installed: {reason}. Install it with pip, next to ticklake."
    url: str
    reason: str
