"""Directories: room, permissions, the file system below SQLite, and what dead writers left behind."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ticklake.doctor.findings import Finding, error, ok, warning
from ticklake.doctor.subject import NEWEST_RUNS, Patient, in_newest
from ticklake.lake.read import Catalog
from ticklake.lake.upkeep import Vacuum
from ticklake.storage import Storage

GIB = 1 << 30
LITTLE_SPACE, NO_SPACE = 2 * GIB, 200 << 20
LITTLE_SHARE = 0.05
FEW_INODES = 10_000
ABANDONED_SECONDS = 3600.0
MOST_FILES = 200_000
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|glusterfs|beegfs|fuse\.(sshfs|s3fs|rclone|gcsfuse|gluster\w*)"
)


def disk_space(patient: Patient) -> Iterator[Finding]:
    for name, path in patient.directories.items():
        found = patient.machine.statvfs(_existing(path))
        free, total = found.f_bavail * found.f_frsize, max(1, found.f_blocks * found.f_frsize)
        text = f"{name}: {free / GIB:,.1f} GiB free of {total / GIB:,.1f}"
        if free < NO_SPACE:
            yield error("disk space", f"{text}.", f"Make room: du -xh --max-depth=2 {path} | sort -h | tail")
        elif free < LITTLE_SPACE or free < total * LITTLE_SHARE:
            yield warning("disk space", f"{text}.", f"Make room soon: du -xh --max-depth=2 {path} | sort -h | tail")
        elif found.f_files > 0 and found.f_favail < FEW_INODES:
            yield warning("disk space", f"{name}: room for only {found.f_favail:,} more files.", f"df -i {path}")
        else:
            yield ok("disk space", text)


def permissions(patient: Patient) -> Iterator[Finding]:
    for name, path in patient.directories.items():
        place = _existing(path)
        if not place.is_dir():
            yield error("permissions", f"{name}: {place} is not a directory.", "Name another directory.")
        elif not os.access(place, os.W_OK | os.X_OK):
            yield error("permissions", f"{name}: {place} cannot be written to.", f"chown $(id -u) {place}")
        else:
            yield ok("permissions", f"{name} can be written to{'' if place == path else ' (it is made on first use)'}")


def network_file_system(patient: Patient) -> Iterator[Finding]:
    """SQLite's locks need a file system of this machine."""
    mounts = _mounts(patient.machine.mounts)
    for directory in [store.directory for store in patient.stores if store.directory]:
        place = _existing(directory).resolve()
        kind = next((kind for point, kind in mounts if place.is_relative_to(point)), "unknown")
        if _NETWORK.fullmatch(kind):
            remedy = "Put the database on a local disk, or use url = postgresql://…"
            yield warning(
                "file system", f"database {directory} is on {kind}, where SQLite's locks may not hold.", remedy
            )
        else:
            yield ok("file system", f"database {directory} is on {kind}")


def abandoned_files(patient: Patient) -> Iterator[Finding]:
    """A writer that was killed leaves its hidden, half-written file; nobody reads it."""
    limit = time.time() - ABANDONED_SECONDS
    for storage in patient.storages:
        hidden = (file for file in islice(_files(storage), MOST_FILES) if re.fullmatch(r"\..+\.tmp", file.name))
        found = tuple(str(file) for file in hidden if _changed(file) < limit)
        if found:
            remedy = f"find {storage} -name '.*.tmp' -mmin +60 -delete"
            yield warning("abandoned files", f"{len(found):,} half-written files in {storage}.", remedy, found[:100])
        else:
            yield ok("abandoned files", f"none in {storage}")


def passed_over_files(patient: Patient) -> Iterator[Finding]:
    """Batch files that nobody sees: `ticklake end` would end a run before them."""
    for place in filter(Path.is_dir, patient.storages):
        storage = Storage(place)
        runs = storage.runs()
        found = tuple(path for run in runs[-NEWEST_RUNS:] for path in storage.passed_over(run))
        scope = in_newest(len(runs))
        if found:
            text = f"{len(found):,} folders and links in {place} hold batch files and are passed over{scope}."
            remedy = "Rename the folders to plain names, and put the files themselves in the place of links."
            yield warning("passed-over files", text, remedy, found[:100])
        else:
            yield ok("passed-over files", f"none in {place}{scope}")


def orphaned_tables_files(patient: Patient) -> Iterator[Finding]:
    """A flush that died before its commit leaves Parquet files, and compaction replaces some; they only take room."""
    for lake in filter(Path.is_dir, patient.lakes):
        catalog = Catalog(lake)
        runs = catalog.runs()
        scope = in_newest(len(runs)).replace(" in", ",", 1)
        tables = [lake / run / table for run in runs[-NEWEST_RUNS:] for table in catalog.tables(run)]
        found = [one for table in tables for one in Vacuum(table).find()]
        if found:
            message = (
                f"{len(found):,} files in {lake} that no table needs{scope}, {sum(one.size for one in found):,} bytes."
            )
            paths = tuple(str(one.path) for one in found[:100])
            yield warning("orphaned files", message, f"ticklake vacuum --lake {lake}", paths)
        else:
            yield ok("orphaned files", f"none in {lake}{scope}")


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest above it that is there: where it would be made."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _mounts(file: Path) -> list[tuple[Path, str]]:
    """Mount points and types, the deepest first."""
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
