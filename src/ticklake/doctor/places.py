"""Checks of directories: disk space, permissions, file system, and files that no one needs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ticklake.doctor.findings import Finding, error, of_each, ok, warning
from ticklake.doctor.subject import NEWEST_RUNS, Subject, in_newest
from ticklake.indexers.components import stored_metadata
from ticklake.lake.delta import Location
from ticklake.lake.errors import TableOfAnotherRun, TableWithoutLog
from ticklake.lake.read import Catalog
from ticklake.lake.upkeep import Garbage, Vacuum
from ticklake.storage import Storage

GIB = 1 << 30
LITTLE_SPACE, NO_SPACE = 2 * GIB, 200 << 20
MIN_FREE_SHARE = 0.05
MIN_FREE_INODES = 10_000
ABANDONED_SECONDS = 3600.0
MAX_FILES = 200_000
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|glusterfs|beegfs|fuse\.(sshfs|s3fs|rclone|gcsfuse|gluster\w*)"
)


def disk_space(subject: Subject) -> Iterator[Finding]:
    for name, path in subject.directories.items():
        found = subject.machine.statvfs(_existing(path))
        free, total = found.f_bavail * found.f_frsize, max(1, found.f_blocks * found.f_frsize)
        text = f"{name}: {free / GIB:,.1f} GiB free of {total / GIB:,.1f}"
        if free < NO_SPACE:
            yield error("disk space", f"{text}.", f"Free up space: du -xh --max-depth=2 {path} | sort -h | tail")
        elif free < LITTLE_SPACE or free < total * MIN_FREE_SHARE:
            yield warning("disk space", f"{text}.", f"Free up space soon: du -xh --max-depth=2 {path} | sort -h | tail")
        elif found.f_files > 0 and found.f_favail < MIN_FREE_INODES:
            yield warning("disk space", f"{name}: only {found.f_favail:,} inodes are free.", f"df -i {path}")
        else:
            yield ok("disk space", text)


def permissions(subject: Subject) -> Iterator[Finding]:
    for name, path in subject.directories.items():
        place = _existing(path)
        if not place.is_dir():
            yield error("permissions", f"{name}: {place} is not a directory.", "Choose another directory.")
        elif not os.access(place, os.W_OK | os.X_OK):
            yield error("permissions", f"{name}: {place} is not writable.", f"chown $(id -u) {place}")
        else:
            yield ok("permissions", f"{name} is writable{'' if place == path else ' (created on first use)'}")


def network_file_system(subject: Subject) -> Iterator[Finding]:
    """SQLite's locks need a local file system."""
    mounts = _mounts(subject.machine.mounts)
    for directory in [store.directory for store in subject.stores if store.directory]:
        place = _existing(directory).resolve()
        kind = next((kind for point, kind in mounts if place.is_relative_to(point)), "unknown")
        if _NETWORK.fullmatch(kind):
            remedy = "Put the database on a local disk, or use url = postgresql://…"
            yield warning(
                "file system", f"database {directory} is on {kind}, where the locks of SQLite may not work.", remedy
            )
        else:
            yield ok("file system", f"database {directory} is on {kind}")


def abandoned_files(subject: Subject) -> Iterator[Finding]:
    """A killed writer leaves a hidden, half-written file, which is never read."""
    limit = time.time() - ABANDONED_SECONDS
    for storage in subject.storages:
        hidden = (file for file in islice(_files(storage), MAX_FILES) if re.fullmatch(r"\..+\.tmp", file.name))
        found = tuple(str(file) for file in hidden if _changed(file) < limit)
        if found:
            remedy = f"find {storage} -name '.*.tmp' -mmin +60 -delete"
            yield warning("abandoned files", f"{len(found):,} half-written files in {storage}.", remedy, found[:100])
        else:
            yield ok("abandoned files", f"none in {storage}")


def passed_over_files(subject: Subject) -> Iterator[Finding]:
    """Finds batch files that the storage passes over. `ticklake end` would end the run before them."""
    for place in filter(Path.is_dir, subject.storages):
        storage = Storage(place)
        runs = storage.runs()
        read, failed = of_each("passed-over files", runs[-NEWEST_RUNS:], storage.passed_over)
        yield from failed.values()
        found = (*storage.passed_over_runs(), *(path for paths in read.values() for path in paths))
        scope = in_newest(len(runs))
        if found:
            text = f"{len(found):,} folders and links in {place} are passed over, but may have batch files{scope}."
            remedy = "Rename the folders (letters, digits, dot, dash, underscore), and replace links with the files."
            yield warning("passed-over files", text, remedy, found[:100])
        elif not failed:
            yield ok("passed-over files", f"none in {place}{scope}")


def files_of_runs(subject: Subject) -> Iterator[Finding]:
    """Reads `metadata.pb` and `completed.pb` of the newest runs. No command can judge a run without them."""
    for place in filter(Path.is_dir, subject.storages):
        storage = Storage(place)
        runs = storage.runs()
        newest = runs[-NEWEST_RUNS:]
        _, no_metadata = of_each("files of runs", newest, lambda run: stored_metadata(storage, run))  # noqa: B023  called here
        _, no_end = of_each("files of runs", newest, storage.read_completion)
        yield from (*no_metadata.values(), *no_end.values())
        if not (no_metadata or no_end):
            yield ok("files of runs", f"those in {place} can be read{in_newest(len(runs))}")


def _orphaned(table: Location) -> list[Garbage]:
    try:
        return Vacuum(table, table.run_id).find()
    except (TableOfAnotherRun, TableWithoutLog):
        return []  # the check of tables names it


def orphaned_tables_files(subject: Subject) -> Iterator[Finding]:
    """A flush killed before its commit leaves Parquet files, and compaction replaces files. They only use space."""
    for lake in filter(Path.is_dir, subject.lakes):
        catalog = Catalog(lake)
        runs = catalog.runs()
        scope = in_newest(len(runs)).replace(" in", ",", 1)
        listed, unlisted = of_each("orphaned files", runs[-NEWEST_RUNS:], catalog.tables)
        tables = [catalog.location(run, table) for run, names in listed.items() for table in names]
        read, failed = of_each("orphaned files", tables, _orphaned)
        yield from (*unlisted.values(), *failed.values())
        found = [one for files in read.values() for one in files]
        if found:
            message = (
                f"{len(found):,} files in {lake} that no table needs{scope}, {sum(one.size for one in found):,} bytes."
            )
            paths = tuple(str(one.file) for one in found[:100])
            yield warning("orphaned files", message, f"ticklake vacuum --lake {lake}", paths)
        elif not failed and not unlisted:
            yield ok("orphaned files", f"none in {lake}{scope}")


def _existing(path: Path) -> Path:
    """Returns the directory itself or its nearest existing parent, in which it would be created."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _mounts(file: Path) -> list[tuple[Path, str]]:
    """Returns mount points and file system types, the deepest first."""
    try:
        rows = [line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    unescaped = [
        (re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), row[1]), row[2]) for row in rows if len(row) > 2
    ]
    return sorted(((Path(point), kind) for point, kind in unescaped), key=lambda one: len(one[0].parts), reverse=True)


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder) / name for name in names)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return time.time()
