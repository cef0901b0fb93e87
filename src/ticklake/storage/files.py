"""Storage: the files of all runs below one folder, found by key. Each is written once, atomically and durably."""

from __future__ import annotations

import heapq
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice, pairwise
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from ticklake.checks.places import storage_place
from ticklake.contracts import FORMAT_VERSION, RunCompleted, SimulationMetadata
from ticklake.storage import zstd
from ticklake.storage.columns import EncodedTick
from ticklake.storage.delimited import frame, split
from ticklake.storage.eras.numbering import metadata_of
from ticklake.storage.errors import BadFile, BatchOutOfOrder, NotABatchFile, StoredFileConflict, StoredFileMissing
from ticklake.storage.local import LocalFolder
from ticklake.storage.names import (
    batch_name,
    check_key,
    check_run_id,
    is_compressed,
    is_safe,
    is_searched,
    parse_batch_name,
)
from ticklake.storage.objects import ObjectFolder
from ticklake.text import message_text
from ticklake.ticks import TickRange

_M = TypeVar("_M", bound=Message)
_LARGE_PAGE = 50_000
_LEAVING = ".leaving"
"""The folder with one mark for each run that is being deleted."""


class BatchFile(NamedTuple):
    """A batch file: its run, its key, the ticks in its name, and its stored size."""

    run_id: str
    key: str
    ticks: TickRange
    size: int

    def provenance(self, first: int, last: int) -> dict[str, object]:
        """Returns how a commit of a table records this file and the ticks that it added from it."""
        return {"file": self.key, "ticks": [first, last]}


class Page(NamedTuple):
    """Some batch files in tick order. Pass `token` to get the files after them. None means there are no more."""

    files: list[BatchFile]
    token: str | None


class Folder(Protocol):
    """The operations that storage needs from a directory or an object store."""

    def create(self, key: str, data: bytes) -> None: ...
    def create_held(self, key: str, data: bytes) -> AbstractContextManager[None]: ...
    def replace(self, key: str, data: bytes) -> None: ...
    def remove(self, key: str) -> None: ...
    def holding(self, key: str, *, wait: bool = True) -> AbstractContextManager[bool]: ...
    def remove_folder(self, folder: str) -> None: ...
    def everything(self, folder: str) -> Iterator[tuple[str, int]]: ...
    def make_durable(self, key: str) -> None: ...
    def open(self, key: str) -> BinaryIO: ...
    def size(self, key: str) -> int | None: ...
    def stamp(self, key: str) -> str | None: ...
    def folders(self) -> list[str]: ...
    def walk(self, folder: str) -> Iterator[tuple[str, int | None]]: ...
    def passed_over(self, folder: str) -> Iterator[str]: ...
    def passed_over_runs(self) -> Iterator[str]: ...
    def changed_at(self, folder: str) -> int | None: ...
    def entries(self, folder: str) -> tuple[list[str], list[str]]: ...


class Storage:
    """All runs below a directory or an fsspec URL. Thread-safe. Pickling keeps only the URL."""

    def __init__(self, url_or_path: str | os.PathLike[str], compress: bool = True) -> None:
        self.url, self._folder = _locate(os.fspath(url_or_path))
        self.compress = compress

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.url, self.compress))

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"

    def runs(self) -> list[str]:
        """Returns the ids of all runs, sorted: ids that start with a time are oldest first. Not those that leave."""
        leaving = self.leaving_runs()
        return sorted(run_id for run_id in self._folder.folders() if is_safe(run_id) and run_id not in leaving)

    def leaving_runs(self) -> list[str]:
        """Returns the runs that are being deleted. From the mark on, nobody else works on them."""
        try:
            return sorted(filter(is_safe, self._folder.entries(_LEAVING)[1]))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mark_leaving(self, run_id: str, note: str) -> bool:
        """Marks a run as being deleted. The first note stays: returns whether it is this one."""
        with self.leaving(run_id, note) as found:
            return found == note

    @contextmanager
    def leaving(self, run_id: str, note: str) -> Iterator[str | None]:
        """Marks a run as being deleted, and keeps other processes from deleting it too. The mark stays.

        Yields its note: this one, or that of a deletion that was cut off. Yields None if another process is at work.
        From then on the record of how the run was closed does not change.
        """
        key = _leaving_key(run_id)
        while True:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._folder.create_held(key, note.encode()))
                except FileExistsError:
                    if not stack.enter_context(self._folder.holding(key, wait=False)):
                        yield None
                        return
                    if self._folder.size(key) is None:  # the other process has just removed it
                        continue
                with self._folder.holding(self._completion_key(run_id)):
                    pass  # whoever changed the record had not seen the mark
                yield self.leaving_note(run_id)
                return

    def leaving_note(self, run_id: str) -> str | None:
        """Returns the note of the mark; None if the run is not being deleted."""
        key = _leaving_key(run_id)
        if self._folder.size(key) is None:
            return None
        try:
            with self._folder.open(key) as stream:
                return stream.read().decode(errors="replace")
        except FileNotFoundError:  # the deletion has just ended
            return None

    def unmark_leaving(self, run_id: str) -> None:
        """Removes the mark. Does nothing if there is none."""
        self._folder.remove(_leaving_key(run_id))

    def everything(self, run_id: str) -> list[tuple[str, int]]:
        """Returns all files of a run with their sizes, also hidden ones, links and other files."""
        return sorted(self._folder.everything(check_run_id(run_id)))

    def remove_run(self, run_id: str) -> None:
        """Removes all files of a run. Links are removed, not followed. A crash leaves some of the files."""
        self._folder.remove_folder(check_run_id(run_id))

    def read_raw(self, key: str) -> bytes:
        """Returns the bytes of a file as they are stored."""
        check_key(key)
        with self._folder.open(key) as stream:
            return stream.read()

    def write_raw(self, key: str, data: bytes) -> None:
        """Writes the stored bytes of a file. Raises FileExistsError if the key exists."""
        check_key(key)
        self._folder.create(key, data)

    def sync_file(self, key: str) -> None:
        """Waits until an existing file is on disk."""
        check_key(key)
        self._folder.make_durable(key)

    def batches(
        self, run_id: str, *, after: str | None = None, ticks: TickRange | None = None, limit: int = 1000
    ) -> Page:
        """Returns one page of a run's batch files in tick order. With `ticks`, only those that overlap it.

        `after` is the token of the page before, or the key of any batch file.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        found = heapq.nsmallest(limit + 1, self._matching(check_run_id(run_id), after, ticks))
        files = [file for item in found[:limit] if (file := self._sized(run_id, item))]
        return Page(files, found[limit - 1][1] if len(found) > limit else None)

    def every_batch(self, run_id: str) -> Iterator[BatchFile]:
        """Yields all batch files of a run in tick order. Uses large pages, because each one lists the whole run."""
        token: str | None = None
        while True:
            page = self.batches(run_id, after=token, limit=_LARGE_PAGE)
            yield from page.files
            token = page.token
            if token is None:
                return

    def passed_over(self, run_id: str) -> list[str]:
        """Returns the paths in a run that are skipped but hold batch files: links, and folders with unsafe names.

        Includes what cannot be searched for them. Characters that cannot be printed are escaped.
        """
        return _printable(self._folder.passed_over(check_run_id(run_id)))

    def passed_over_runs(self) -> list[str]:
        """Returns the links and the folders with unsafe names that hold batch files but are not runs."""
        return _printable(self._folder.passed_over_runs())

    def batch(self, key: str) -> BatchFile:
        """Returns the batch file with that key."""
        ticks = _ticks_of(key)
        size = self._folder.size(key)
        if size is None:
            raise StoredFileMissing(key=key, storage=self.url)
        return BatchFile(check_key(key)[0], key, ticks, size)

    def write_batch(self, run_id: str, ticks: Sequence[EncodedTick]) -> BatchFile:
        """Writes ticks as one batch file. Writing the same content again does nothing, other content is a conflict."""
        reason = _disorder(ticks)
        if reason:
            raise BatchOutOfOrder(run_id=run_id, reason=reason)
        span = TickRange(ticks[0].number, ticks[-1].number)
        key = f"{check_run_id(run_id)}/{batch_name(span, self.compress)}"
        self._put(key, frame(tick.data for tick in ticks))
        return self.batch(key)

    def write_metadata(self, metadata: SimulationMetadata) -> str:
        """Writes a run's metadata in the current format version, and returns its key."""
        key = f"{check_run_id(metadata.simulation_run_id)}/metadata.pb{'.zst' if self.compress else ''}"
        self._put(key, _framed(metadata))
        return key

    def read_metadata(self, run_id: str) -> SimulationMetadata:
        """Returns the metadata of a run, also from `raw/`. Raises `StoredFileMissing` if it has none."""
        return self.read_metadata_file(self._find(run_id, "metadata.pb", "raw/metadata.pb"))

    def read_metadata_file(self, key: str) -> SimulationMetadata:
        """Returns the metadata in the file with that key."""
        return self._read_message(key, SimulationMetadata, metadata_of)

    def write_completion(self, completed: RunCompleted) -> str:
        """Records how a run was closed, once, and returns the key. Raises `StoredFileConflict` after another record."""
        key = self._completion_key(completed.simulation_run_id)
        self._put(key, _framed(completed))
        return key

    def replace_completion(self, known: RunCompleted, new: RunCompleted) -> bool:
        """Replaces the known record of how a run was closed, in one step.

        Returns False if the run has another one by now, or is being deleted.
        """
        with self._holding(known) as key:
            if key is None:
                return False
            self._folder.replace(key, self._stored(key, _framed(new)))
        return True

    def read_completion(self, run_id: str) -> RunCompleted | None:
        """Returns how the run was closed, or None if it is running."""
        try:
            return self._read_message(self._find(run_id, "completed.pb"), RunCompleted, RunCompleted.FromString)
        except StoredFileMissing:
            return None

    def remove_completion(self, known: RunCompleted) -> bool:
        """Removes the known record of the end: the run is running again.

        Returns False if the run has another one by now, or is being deleted.
        """
        with self._holding(known) as key:
            if key is None:
                return False
            self._folder.remove(key)
        return True

    def sync_completion(self, run_id: str) -> None:
        """Waits until the record of the end is on disk."""
        self._folder.make_durable(self._completion_key(run_id))

    @contextmanager
    def _holding(self, known: RunCompleted) -> Iterator[str | None]:
        """Yields the key of the record, which nobody else can change meanwhile.

        Yields None if it is not the known one, or if the run is being deleted.
        """
        run_id = known.simulation_run_id
        key = self._completion_key(run_id)
        with self._folder.holding(key):
            is_free = self.leaving_note(run_id) is None
            yield key if is_free and self.read_completion(run_id) == known else None

    def reachable(self, run_id: str) -> bool:
        """Returns True if the run's folder can be reached. Tells a missing file from a missing disk."""
        try:
            return run_id in self._folder.folders()
        except OSError:
            return False

    def changed_at(self, folder: str) -> int | None:
        """Returns when an entry of the folder was last added or removed, in ns since 1970. None if unknown."""
        return self._folder.changed_at(folder)

    def runs_changed_at(self) -> object:
        """Returns a value that changes when a run comes or goes, or is marked as being deleted. None if unknown."""
        found = self._folder.changed_at("")
        if found is None:
            return None
        try:
            return found, self._folder.changed_at(_LEAVING)
        except FileNotFoundError:
            return found, None

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the folders that may have batch files, and the files, directly in a folder of a run.

        Raises OSError if the folder does not exist.
        """
        folders, files = self._folder.entries(folder)
        return list(filter(is_searched, folders)), files

    def exists(self, key: str) -> bool:
        """Returns True if a file with that key exists."""
        check_key(key)
        return self._folder.size(key) is not None

    def stamp(self, key: str) -> str | None:
        """Returns a value that changes when the file is replaced, or None if it does not exist."""
        check_key(key)
        return self._folder.stamp(key)

    def open(self, key: str) -> BinaryIO:
        """Opens the decompressed bytes of a file. Reading to the end verifies the checksum, if any (`BadFile`)."""
        check_key(key)
        try:
            stored = self._folder.open(key)
        except FileNotFoundError as error:
            raise StoredFileMissing(key=key, storage=self.url) from error
        return cast(BinaryIO, io.BufferedReader(zstd.ZstdStream(stored, key))) if is_compressed(key) else stored

    def _matching(
        self, run_id: str, after: str | None, ticks: TickRange | None
    ) -> Iterator[tuple[TickRange, str, int | None]]:
        cursor = (_ticks_of(after), after) if after is not None else None
        for key, size in self._folder.walk(run_id):
            found = parse_batch_name(key.rpartition("/")[2])
            if found and (not cursor or (found, key) > cursor) and (ticks is None or found.overlaps(ticks)):
                yield found, key, size

    def _sized(self, run_id: str, item: tuple[TickRange, str, int | None]) -> BatchFile | None:
        """Returns None if the file was deleted since it was listed."""
        ticks, key, size = item
        size = self._folder.size(key) if size is None else size
        return None if size is None else BatchFile(run_id, key, ticks, size)

    def _put(self, key: str, content: bytes) -> None:
        try:
            self._folder.create(key, self._stored(key, content))
        except FileExistsError:
            try:
                if self._content(key) != content:
                    raise StoredFileConflict(key=key, storage=self.url) from None
                self._folder.make_durable(key)
            except (StoredFileMissing, FileNotFoundError):  # it was removed meanwhile
                self._put(key, content)

    def _stored(self, key: str, content: bytes) -> bytes:
        return zstd.compress(content) if is_compressed(key) else content

    def _completion_key(self, run_id: str) -> str:
        """Returns the same name for all writers, so that only one of them can record the end of a run."""
        try:
            return self._find(run_id, "completed.pb")
        except StoredFileMissing:
            return f"{run_id}/completed.pb.zst"

    def _content(self, key: str) -> bytes | None:
        try:
            with self.open(key) as stream:
                return stream.read()
        except BadFile:
            return None

    def _find(self, run_id: str, *names: str) -> str:
        """Returns the key of the first of these files that exists, compressed or plain."""
        keys = [f"{check_run_id(run_id)}/{name}" for name in names]
        for candidate in (form for key in keys for form in (f"{key}.zst", key)):
            if self.exists(candidate):
                return candidate
        raise StoredFileMissing(key=keys[0], storage=self.url)

    def _read_message(self, key: str, kind: type[_M], parse: Callable[[bytes], _M]) -> _M:
        """Returns the only message of a file. It must have the run of the key and a known format version."""
        run_id = check_key(key)[0]
        with self.open(key) as stream:
            messages = list(islice((message for _, block in split(stream, key) for message in block), 2))
        if len(messages) != 1:
            count = "2 messages or more" if messages else "0 messages"
            raise BadFile(key=key, offset=0, reason=f"it has {count} instead of one {kind.__name__}")
        try:
            message: Any = parse(messages[0])
        except (ValueError, DecodeError) as error:
            reason = f"its message is not a {kind.__name__} ({message_text(error)})"
            raise BadFile(key=key, offset=0, reason=reason) from error
        if message.simulation_run_id != run_id:
            raise BadFile(key=key, offset=0, reason=f"it belongs to run {message.simulation_run_id[:200]!r}")
        if not 0 <= message.format_version <= FORMAT_VERSION:
            raise BadFile(key=key, offset=0, reason=f"format_version {message.format_version} is unknown here")
        return cast(_M, message)


def _framed(message: SimulationMetadata | RunCompleted) -> bytes:
    """Returns the content of a file with one message, in the current format version."""
    stamped = type(message).FromString(message.SerializeToString())
    stamped.format_version = FORMAT_VERSION
    return frame([stamped.SerializeToString(deterministic=True)])


def _leaving_key(run_id: str) -> str:
    return f"{_LEAVING}/{check_run_id(run_id)}"


def _printable(paths: Iterable[str]) -> list[str]:
    return sorted({path.encode(errors="backslashreplace").decode() for path in paths})


def _locate(url: str) -> tuple[str, Folder]:
    """Returns the absolute path or URL of a storage, and the folder with its files."""
    place = storage_place(url)
    if isinstance(place, str):
        return place, ObjectFolder(place)
    path = place.absolute()
    return str(path), LocalFolder(path)


def _ticks_of(key: str) -> TickRange:
    ticks = parse_batch_name(check_key(key)[-1])
    if ticks is None:
        raise NotABatchFile(key=key)
    return ticks


def _disorder(ticks: Sequence[EncodedTick]) -> str | None:
    if not ticks:
        return "it has no ticks"
    if ticks[0].number < 0:
        return f"tick {ticks[0].number} is negative"
    pairs = pairwise(tick.number for tick in ticks)
    return next((f"tick {later} comes after tick {earlier}" for earlier, later in pairs if later <= earlier), None)
