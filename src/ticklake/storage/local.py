"""A local directory. Files in it are complete and on disk, or do not exist."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ticklake import faults
from ticklake.disk import files_below, lock, make_directory, open_directory, remove_tree, sync
from ticklake.storage.errors import UnsafeStorageKey
from ticklake.storage.names import SUPERSEDED, is_safe, is_searched, parse_batch_name, visible
from ticklake.storage.search import Search

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_NO_SUCH_RENAME = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}
_RENAME_NOREPLACE = 1


class LocalFolder:
    """Files below `root`, by key. Links are not listed and not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()

    def create(self, key: str, data: bytes) -> None:
        """Writes a new file, atomically and durably. Raises FileExistsError if the key exists."""
        path = self._path(key)
        self._make_folder(path.parent)
        with open_directory(path.parent) as folder:
            create_file(folder, path.name, data)

    @contextmanager
    def create_held(self, key: str, data: bytes) -> Iterator[None]:
        """Like `create`, and holds the file. Nobody else can hold it before."""
        path = self._path(key)
        self._make_folder(path.parent)
        with open_directory(path.parent) as folder, ExitStack() as stack:
            with _written(folder, path.name, data) as temporary:
                descriptor = os.open(temporary, os.O_RDONLY, dir_fd=folder)
                stack.callback(os.close, descriptor)
                lock(descriptor)
                _publish(folder, temporary, path.name)
            os.fsync(folder)
            yield

    def replace(self, key: str, data: bytes) -> None:
        """Writes a file, atomically and durably. Replaces an existing one."""
        path = self._path(key)
        self._make_folder(path.parent)
        with open_directory(path.parent) as folder:
            replace_file(folder, path.name, data)

    def remove(self, key: str) -> None:
        """Removes a file, durably. Does nothing if it does not exist."""
        path = self._path(key)
        with suppress(FileNotFoundError), faults.around("storage.remove"):
            path.unlink()
            sync(path.parent)

    @contextmanager
    def holding(self, key: str, *, wait: bool = True) -> Iterator[bool]:
        """Holds a file, if it exists. Meanwhile nobody else who holds it first can replace or remove it.

        Without `wait`, yields False if somebody else holds it.
        """
        path = self._path(key)
        with ExitStack() as stack:
            is_held = True
            while (descriptor := _opened(path)) is not None:
                stack.callback(os.close, descriptor)
                is_held = lock(descriptor, wait=wait)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), path.stat()):
                        break
            yield is_held

    def remove_folder(self, folder: str) -> None:
        """Removes a folder with everything in it. Links are removed and not followed."""
        root = self._root / folder
        if root.is_symlink():
            raise UnsafeStorageKey(key=folder)
        remove_tree(root)
        self._durable = {known for known in self._durable if known != root and root not in known.parents}

    def everything(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the keys and sizes of all files below a folder, also hidden ones, links and special files."""
        for path in files_below(self._root / folder):
            with suppress(FileNotFoundError):
                yield str(path.relative_to(self._root)), path.lstat().st_size

    def make_durable(self, key: str) -> None:
        """Syncs an existing file, which another process may have written."""
        path = self._path(key)
        sync(path)
        self._make_folder(path.parent)
        sync(path.parent)

    def open(self, key: str) -> BinaryIO:
        return self._path(key).open("rb")

    def size(self, key: str) -> int | None:
        """Returns the size in bytes, or None if the file does not exist."""
        found = _stat(self._path(key))
        return None if found is None else found.st_size

    def stamp(self, key: str) -> str | None:
        """Returns size, modification time and inode as text, or None if the file does not exist."""
        found = _stat(self._path(key))
        return None if found is None else f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"

    def folders(self) -> list[str]:
        return [entry.name for entry in _entries(self._root) if entry.is_dir(follow_symlinks=False)]

    def walk(self, folder: str) -> Iterator[tuple[str, None]]:
        """Yields the keys of all files below a folder, unordered, without sizes: each would cost a system call."""
        waiting = [folder]
        while waiting:
            below = waiting.pop()
            for entry in _entries(self._root / below, is_searched):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{below}/{entry.name}")
                elif entry.is_file(follow_symlinks=False):
                    yield f"{below}/{entry.name}", None

    def passed_over(self, folder: str) -> Iterator[str]:
        """Yields what `walk` skips although it has batch files, is named like one, or cannot be searched.

        These are links, folders with unsafe names, and special files. Hidden ones, with a leading dot, and `superseded`
        are skipped on purpose and not included.
        """
        if (self._root / folder).is_symlink():
            yield folder
            return
        search, waiting = Search(), [folder]
        while waiting:
            below = waiting.pop()
            for entry in _entries(self._root / below, lambda name: visible(name) and name != SUPERSEDED):
                path = f"{below}/{entry.name}"
                if entry.is_dir(follow_symlinks=False) and is_safe(entry.name):
                    waiting.append(path)
                elif not entry.is_file(follow_symlinks=False) and _is_passed_over(entry, search):
                    yield path

    def passed_over_runs(self) -> Iterator[str]:
        """Yields links and folders with unsafe names that `folders` skips although they may hold batch files."""
        search = Search()
        for entry in _entries(self._root, visible):
            skipped = entry.is_symlink() or (entry.is_dir() and not is_safe(entry.name))
            if skipped and search.may_hold_batches(entry.path):
                yield entry.name

    def changed_at(self, folder: str) -> int:
        """Returns the modification time. It grows when an entry is added or removed, but with a coarse resolution."""
        return (self._root / folder).stat().st_mtime_ns

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and files directly in a folder, unordered."""
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
        """Makes a folder and its parents durably. Syncs existing ones too: another writer may have just made them."""
        if (folder in self._durable and folder.is_dir()) or (folder in self._root.parents and folder.is_dir()):
            return
        self._make_folder(folder.parent)
        make_directory(folder)
        self._durable.add(folder)


def _stat(path: Path) -> os.stat_result | None:
    """Returns the status of a file in one step: others may remove it at any time. None if it is not a file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _opened(path: Path) -> int | None:
    """Opens a file to lock it; returns None if it does not exist. A network file system only locks for writing."""
    try:
        return os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    except FileNotFoundError:
        return None


def _entries(folder: Path, wanted: Callable[[str], bool] = is_safe) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if wanted(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_passed_over(entry: os.DirEntry[str], search: Search) -> bool:
    is_folder = entry.is_dir(follow_symlinks=False)
    return bool(not is_folder and parse_batch_name(entry.name)) or search.may_hold_batches(entry.path)


def create_file(folder: int, name: str, data: bytes) -> None:
    """Writes a new file into an open folder, atomically and durably. Raises FileExistsError if the name exists."""
    with _written(folder, name, data) as temporary:
        _publish(folder, temporary, name)
    os.fsync(folder)


def replace_file(folder: int, name: str, data: bytes) -> None:
    """Writes a file into an open folder, atomically and durably. Replaces an existing one."""
    with _written(folder, name, data) as temporary, faults.around("storage.replace"):
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


@contextmanager
def _written(folder: int, name: str, data: bytes) -> Iterator[str]:
    """Writes and syncs a temporary file and yields its name. Removes it afterwards."""
    # Names with a leading dot are not listed and cannot be keys.
    temporary = f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        faults.reach("storage.write")
        # O_EXCL never opens a file that another user has prepared. The umask sets the permissions.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            faults.reach("storage.unsynced")
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _publish(folder: int, temporary: str, name: str) -> None:
    """Gives a file its final name in one step, without replacing an existing file."""
    written = os.stat(temporary, dir_fd=folder)
    try:
        _link(folder, temporary, name)
    except FileExistsError:
        # A network file system may repeat a successful call and report the error of the second one.
        if not os.path.samestat(written, os.stat(name, dir_fd=folder, follow_symlinks=False)):
            raise
    faults.reach("storage.published")


def _link(folder: int, temporary: str, name: str) -> None:
    faults.reach("storage.publish")
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_without_replacing(folder, temporary, name)


def _rename_without_replacing(folder: int, temporary: str, name: str) -> None:
    """For file systems without hard links. A plain rename would replace a file of another process."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    found = errno.ENOSYS
    if rename is not None:
        ctypes.set_errno(0)
        if rename(folder, os.fsencode(temporary), folder, os.fsencode(name), _RENAME_NOREPLACE) == 0:
            return
        found = ctypes.get_errno()
    if found in _NO_SUCH_RENAME:
        reason = "the file system has neither hard links nor renameat2; use another one"
        raise OSError(errno.ENOTSUP, reason)
    raise OSError(found, os.strerror(found), name)
