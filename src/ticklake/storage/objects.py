"""An object store, used through fsspec. Objects appear completely or not at all, and are durable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, BinaryIO, cast

import fsspec

from ticklake import faults
from ticklake.storage.errors import StorageLibraryMissing
from ticklake.storage.names import SUPERSEDED, is_safe, is_searched, parse_batch_name, visible


class ObjectFolder:
    """Objects below a URL such as `s3://bucket/runs`, by key."""

    def __init__(self, url: str) -> None:
        self._fs: Any
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise StorageLibraryMissing(url=url, reason=str(error)) from error
        self._root = root.rstrip("/")

    def create(self, key: str, data: bytes) -> None:
        """Writes a new object in one step. Raises FileExistsError if the key exists."""
        with faults.around("storage.object"):
            self._fs.pipe_file(self._path(key), data, mode="create")

    def replace(self, key: str, data: bytes) -> None:
        """Writes an object in one step. Replaces an existing one."""
        with faults.around("storage.object"):
            self._fs.pipe_file(self._path(key), data)

    def remove(self, key: str) -> None:
        """Removes an object. Does nothing if it does not exist."""
        with suppress(FileNotFoundError), faults.around("storage.object"):
            self._fs.rm_file(self._path(key))

    @contextmanager
    def create_held(self, key: str, data: bytes) -> Iterator[None]:
        """Creates an object. Nobody holds it, see `holding`."""
        self.create(key, data)
        yield

    def holding(self, key: str, *, wait: bool = True) -> AbstractContextManager[bool]:  # noqa: ARG002
        """Does nothing: object stores have no locks, so two who change an object within milliseconds can collide."""
        return nullcontext(True)

    def remove_folder(self, folder: str) -> None:
        """Removes all objects below a folder, one by one."""
        for key, _ in list(self._found(folder)):
            self.remove(key)
        with suppress(OSError), faults.around("storage.object"):  # stores without folders have none to remove
            self._fs.rmdir(self._path(folder))

    def everything(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the keys and sizes of all objects below a folder."""
        yield from self._found(folder)

    def make_durable(self, key: str) -> None:
        """Does nothing: visible objects are durable."""

    def open(self, key: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._path(key), "rb"))

    def size(self, key: str) -> int | None:
        path = self._path(key)
        with suppress(FileNotFoundError):  # it may be removed meanwhile
            return int(self._fs.size(path)) if self._fs.isfile(path) else None
        return None

    def stamp(self, key: str) -> str | None:
        """Returns a value that changes with the object, such as its ETag, or None if it does not exist."""
        self._fs.invalidate_cache()
        path = self._path(key)
        with suppress(FileNotFoundError):
            return str(self._fs.checksum(path)) if self._fs.isfile(path) else None
        return None

    def folders(self) -> list[str]:
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory"]

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the keys and sizes of all objects below a folder, unordered."""
        for key, size in self._found(folder):
            run_id, *folders, name = key.split("/")
            if is_safe(run_id) and is_safe(name) and all(map(is_searched, folders)):
                yield key, size

    def passed_over(self, folder: str) -> Iterator[str]:
        """Yields folders with batch files that `walk` skips, except hidden ones."""
        for key, _ in self._found(folder):
            *folders, name = key.split("/")
            unsafe = next((place for place, part in enumerate(folders, 1) if not is_safe(part)), 0)
            if unsafe and parse_batch_name(name) and all(map(visible, folders)) and SUPERSEDED not in folders[1:]:
                yield "/".join(folders[:unsafe])

    def passed_over_runs(self) -> Iterator[str]:
        """Yields folders with unsafe names that have batch files."""
        for folder in self.folders():
            if visible(folder) and not is_safe(folder):
                names = (key.rpartition("/")[2] for key, _ in self._found(folder))
                if any(map(parse_batch_name, names)):
                    yield folder

    def changed_at(self, folder: str) -> None:
        """Returns None: object stores do not record it."""

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and objects directly in a folder, unordered."""
        self._fs.invalidate_cache()
        found: dict[str, list[str]] = {"directory": [], "file": []}
        for entry in self._fs.ls(self._path(folder), detail=True):
            found[entry["type"]].append(entry["name"].rstrip("/").rpartition("/")[2])
        return found["directory"], found["file"]

    def _found(self, folder: str) -> Iterator[tuple[str, int]]:
        self._fs.invalidate_cache()
        start = len(self._path(""))
        for path, entry in self._fs.find(self._path(folder), detail=True).items():
            yield path[start:], entry["size"]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"
