"""Archives a run: copies its files, verifies the copy, and only then deletes the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ticklake import faults
from ticklake.removal.contents import RunContents, RunPlaces, contents_of
from ticklake.removal.deletion import check_removable, destination_in, removing
from ticklake.removal.errors import ArchiveConflict, BadArchive, DeletedMeanwhile, NotArchivable, RemovalUnderWay
from ticklake.removal.tables import SourceVanished, TablesCopy
from ticklake.storage import Storage, check_key
from ticklake.storage.errors import RunNotFound, UnsafeStorageKey


@dataclass(frozen=True)
class Archived:
    """An archived run: what was deleted, and the number of files in the archive."""

    contents: RunContents
    files: int
    table_files: int


def archive_run(places: RunPlaces, destination: Storage, tables: Path | None = None) -> Archived:
    """Copies the files of a closed run to another storage and deletes the run. With `tables`, also its tables.

    Every copy is read back and compared before anything is deleted. After a crash, the same call goes on.
    """
    contents = contents_of(places)
    check_destination(places, destination, tables)
    check_removable(places, contents, destination.url)
    try:
        return _archive(places, destination, tables, contents)
    except (SourceVanished, RunNotFound) as error:
        note = places.storage.leaving_note(places.run_id)
        if note is not None and destination_in(note) == destination.url:
            raise RemovalUnderWay(run_id=places.run_id) from error
        raise DeletedMeanwhile(run_id=places.run_id, destination=destination.url) from error


def _archive(places: RunPlaces, destination: Storage, tables: Path | None, contents: RunContents) -> Archived:
    # The record of the end may change until the run is marked.
    copied = _copy_files(places, destination, {key for key in _archivable(places) if not _is_record(key)})
    with TablesCopy(places.run_id, places.tables, tables / places.run_id if tables is not None else None) as copy:
        faults.reach("archive.copied")
        with removing(places, destination.url) as is_first:
            _check_same_storage(places, destination)
            if is_first and not copied <= _archivable(places):
                raise SourceVanished
            copy.publish()
            again: set[str] = set()
            while new := _archivable(places) - again:  # a producer that has not seen the mark may have written a file
                again |= _copy_files(places, destination, new)
    return Archived(contents, len(copied | again), copy.files)


def check_destination(places: RunPlaces, destination: Storage, tables: Path | None) -> None:
    """Raises `BadArchive` if the archive would be a part of what is archived."""
    own = [Path(places.storage.url).resolve(), *([places.lake.resolve()] if places.lake is not None else [])]
    wanted = [Path(destination.url).resolve(), *([tables.resolve()] if tables is not None else [])]
    for place in wanted:
        if any(place == one or one in place.parents for one in own):
            raise BadArchive(run_id=places.run_id, destination=place, reason="it is inside of the storage or the lake")
    if len(set(wanted)) < len(wanted):
        raise BadArchive(run_id=places.run_id, destination=wanted[0], reason="files and tables need two directories")


def _check_same_storage(places: RunPlaces, destination: Storage) -> None:
    """Raises if the mark is also in the archive. Then it is the storage itself under another name, such as a mount."""
    if destination.leaving_note(places.run_id) is not None:
        reason = "it is the storage itself, or the run is being deleted there"
        raise BadArchive(run_id=places.run_id, destination=destination.url, reason=reason)


def _copy_files(places: RunPlaces, destination: Storage, keys: set[str]) -> set[str]:
    """Copies the files that the archive lacks and compares those that it has. Returns their keys."""
    # The record of the end is last: an archive without it is not whole.
    for key in sorted(keys, key=lambda key: (_is_record(key), key)):
        try:
            data = places.storage.read_raw(key)
        except FileNotFoundError as error:
            raise SourceVanished from error
        try:
            destination.write_raw(key, data)
        except FileExistsError:
            destination.sync_file(key)
        if destination.read_raw(key) != data:
            raise ArchiveConflict(run_id=places.run_id, path=f"{destination.url}/{key}")
        faults.reach("archive.file")
    return keys


def _is_record(key: str) -> bool:
    return key.rpartition("/")[2].startswith("completed.pb")


def _archivable(places: RunPlaces) -> set[str]:
    """Returns all keys of the run, without temporary files of killed writers."""
    found = set()
    for key, _ in places.storage.everything(places.run_id):
        name = key.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".tmp"):
            continue
        try:
            check_key(key)
            places.storage.exists(key)
        except UnsafeStorageKey:
            raise NotArchivable(run_id=places.run_id, path=f"{places.storage.url}/{key}") from None
        found.add(key)
    return found
