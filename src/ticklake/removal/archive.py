"""Archives a run: copies its files, verifies the copy, and only then deletes the run."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ticklake import faults
from ticklake.disk import files_below, make_directory, remove_tree, sync
from ticklake.removal.contents import RunContents, RunPlaces, contents_of
from ticklake.removal.deletion import check_removable, destination_in, mark, remove
from ticklake.removal.errors import ArchiveConflict, BadArchive, DeletedMeanwhile, NotArchivable, TablesChanging
from ticklake.storage import Storage, check_key
from ticklake.storage.errors import UnsafeStorageKey

_ATTEMPTS = 5
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archived:
    """An archived run: what was deleted, and the number of files in the archive."""

    contents: RunContents
    files: int
    table_files: int


def archive_run(
    places: RunPlaces, destination: Storage, tables: Path | None = None, *, force: bool = False
) -> Archived:
    """Copies the files of a closed run to another storage and deletes the run. With `tables`, also its tables.

    Every copy is read back and compared before anything is deleted. After a crash, the same call goes on.
    """
    with _noticing_deletion(places, destination):
        return _archive(places, destination, tables, force=force)


def _archive(places: RunPlaces, destination: Storage, tables: Path | None, *, force: bool) -> Archived:
    contents = contents_of(places)
    check_destination(places, destination, tables)
    check_removable(places, contents, destination.url)
    copied = _copy_files(places, destination)
    table_files = _copy_tables(places, tables) if tables is not None else 0
    faults.reach("archive.copied")
    is_first = mark(places, destination.url, force=force)
    _check_same_storage(places, destination)
    again = _copy_files(places, destination)  # nothing can come after the mark
    if is_first and not copied <= again:
        places.storage.unmark_leaving(places.run_id)
        raise DeletedMeanwhile(run_id=places.run_id, destination=destination.url)
    remove(places)
    return Archived(contents, len(copied | again), table_files)


@contextmanager
def _noticing_deletion(places: RunPlaces, destination: Storage) -> Iterator[None]:
    """Raises `DeletedMeanwhile` if files vanish because another command deletes the run."""
    try:
        yield
    except (FileNotFoundError, shutil.Error) as error:
        note = places.storage.leaving_note(places.run_id)
        is_deleted = note is not None and not destination_in(note)
        if is_deleted or places.run_id not in places.storage.runs():
            raise DeletedMeanwhile(run_id=places.run_id, destination=destination.url) from error
        raise


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
        places.storage.unmark_leaving(places.run_id)
        reason = "it is the storage itself, or the run is being deleted there"
        raise BadArchive(run_id=places.run_id, destination=destination.url, reason=reason)


def _copy_files(places: RunPlaces, destination: Storage) -> set[str]:
    """Copies all files that the archive lacks and compares those that it has. Returns their keys."""
    # The record of the end is last: an archive without it is not whole.
    keys = sorted(_archivable(places), key=lambda key: (key.rpartition("/")[2].startswith("completed.pb"), key))
    for key in keys:
        data = places.storage.read_raw(key)
        try:
            destination.write_raw(key, data)
        except FileExistsError:
            destination.sync_file(key)
        if destination.read_raw(key) != data:
            raise ArchiveConflict(run_id=places.run_id, path=f"{destination.url}/{key}")
        faults.reach("archive.file")
    return set(keys)


def _archivable(places: RunPlaces) -> list[str]:
    """Returns all keys of the run, without temporary files of killed writers."""
    found = []
    for key, _ in places.storage.everything(places.run_id):
        name = key.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".tmp"):
            continue
        try:
            check_key(key)
            places.storage.exists(key)
        except UnsafeStorageKey:
            raise NotArchivable(run_id=places.run_id, path=f"{places.storage.url}/{key}") from None
        found.append(key)
    return found


def _copy_tables(places: RunPlaces, lake: Path) -> int:
    """Copies the tables to another lake, where they appear in one step. Returns the number of their files."""
    source, target = places.tables, lake / places.run_id
    if source is None or not source.is_dir():
        return 0  # none, or a crash came after they were copied
    if target.exists() and target.samefile(source):
        raise BadArchive(run_id=places.run_id, destination=lake, reason="it is the lake itself under another name")
    if not target.exists():
        _publish_copy(places.run_id, source, target)
    here, there = _sums(places.run_id, source), _sums(places.run_id, target)
    for name, found in here.items():
        if there.get(name) != found:
            raise ArchiveConflict(run_id=places.run_id, path=target / name)
    return len(here)


def _publish_copy(run_id: str, source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    make_directory(target.parent)
    for _ in range(_ATTEMPTS):
        if partial.exists():
            remove_tree(partial)
        before = _sums(run_id, source)
        with faults.around("archive.tables"):
            shutil.copytree(source, partial)
        if before == _sums(run_id, partial) == _sums(run_id, source):
            break
    else:
        raise TablesChanging(run_id=run_id)
    for path in [*files_below(partial), *{path.parent for path in files_below(partial)}]:
        sync(path)
    partial.rename(target)
    sync(target.parent)


def _sums(run_id: str, folder: Path) -> dict[str, str]:
    """Returns the checksum of each file below a folder."""
    return {str(path.relative_to(folder)): _sum(run_id, path) for path in files_below(folder)}


def _sum(run_id: str, path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise NotArchivable(run_id=run_id, path=path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
