"""A local directory whose files are whole and on disk, or not there at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ticklake import faults
from ticklake.errors import UnsafeStorageKey
from ticklake.storage.names import is_safe

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class LocalFolder:
    """Files below `root`, by key. Links are neither listed nor followed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()

    def create(self, key: str, data: bytes) -> None:
        """Writes a new file, atomically and durably; FileExistsError where the key is taken."""
        path = self._path(key)
        self._make_folder(path.parent)
        # No listing shows, and no key can name, what starts with a dot.
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            faults.reach("storage.write")
            _write(temporary, data)
            _publish(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(path.parent)

    def settle(self, key: str) -> None:
        """Makes sure that a file which is there already, whoever wrote it, is on disk too."""
        path = self._path(key)
        _sync(path)
        self._make_folder(path.parent)
        _sync(path.parent)

    def open(self, key: str) -> BinaryIO:
        return self._path(key).open("rb")

    def size(self, key: str) -> int | None:
        """Bytes on disk; None where there is no such file."""
        path = self._path(key)
        return path.stat().st_size if path.is_file() else None

    def folders(self) -> list[str]:
        return [entry.name for entry in _entries(self._root) if entry.is_dir(follow_symlinks=False)]

    def walk(self, folder: str) -> Iterator[tuple[str, None]]:
        """The keys of all files below a folder, in no order; their sizes would cost a call each."""
        waiting = [folder]
        while waiting:
            below = waiting.pop()
            for entry in _entries(self._root / below):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{below}/{entry.name}")
                elif entry.is_file(follow_symlinks=False):
                    yield f"{below}/{entry.name}", None

    def changed_at(self, folder: str) -> int:
        """Grows whenever a file or folder directly below it appears or goes, but only a few times a second."""
        return (self._root / folder).stat().st_mtime_ns

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """The names of the folders and of the files directly below a folder, in no order."""
        folders, files = [], []
        with os.scandir(self._root / folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
        return folders, files

    def _path(self, key: str) -> Path:
        path = self._root / key
        if path.is_symlink() or path.parent.resolve() != self._root.resolve() / Path(key).parent:
            raise UnsafeStorageKey(key=key)
        return path

    def _make_folder(self, folder: Path) -> None:
        """Makes a folder and all above it, on disk too: an existing one may be another writer's, made a moment ago."""
        if (folder in self._durable and folder.is_dir()) or (folder in self._root.parents and folder.is_dir()):
            return
        self._make_folder(folder.parent)
        with faults.around("storage.folder"):
            folder.mkdir(exist_ok=True)
        _sync(folder.parent)
        self._durable.add(folder)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if is_safe(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _write(path: Path, data: bytes) -> None:
    # Mode "x" and the user's own umask: never a file that somebody else prepared.
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        faults.reach("storage.unsynced")
        os.fsync(file.fileno())


def _publish(temporary: Path, path: Path) -> None:
    """Gives a file its final name in one step. Unlike a rename, a link never replaces what is there."""
    faults.reach("storage.publish")
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        temporary.rename(path)
    faults.reach("storage.published")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
