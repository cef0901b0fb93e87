"""Copies the tables of a run to another lake, where they appear in one step."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from ticklake import faults
from ticklake.disk import files_below, make_directory, remove_tree, sync
from ticklake.removal.errors import ArchiveConflict, BadArchive, NotArchivable, TablesChanging

_ATTEMPTS = 5
_CHUNK = 1 << 20


class SourceVanished(Exception):
    """Files of the run were deleted while they were copied."""


class TablesCopy(AbstractContextManager["TablesCopy"]):
    """A copy of the tables of a run. It is made under another name, and published when nobody writes to them any more.

    `files` is the number of its files.
    """

    def __init__(self, run_id: str, source: Path | None, target: Path | None) -> None:
        """Copies nothing if there is no source: there are no tables, or a crash came after they were copied."""
        self._run_id, self.files = run_id, 0
        self._target: Path | None = None
        if source is None or target is None or not source.is_dir():
            return
        if target.exists() and target.samefile(source):
            raise BadArchive(
                run_id=run_id, destination=target.parent, reason="it is the lake itself under another name"
            )
        self._source, self._target = source, target
        self._partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        try:
            self._copy(source, target)
        except BaseException:
            remove_tree(self._partial)
            raise

    def __exit__(self, *_: object) -> None:
        if self._target is not None:
            remove_tree(self._partial)

    def publish(self) -> None:
        """Gives the copy its name. Raises `TablesChanging` if the tables have changed since they were copied."""
        if self._target is None:
            return
        if _listed(self._source) != self._before:
            raise TablesChanging(run_id=self._run_id)
        if self._partial.exists():
            with faults.around("archive.tables"):
                self._partial.rename(self._target)
            sync(self._target.parent)
        for left in self._target.parent.glob(f".{self._target.name}.*partial"):  # by a command that was killed
            remove_tree(left)

    def _copy(self, source: Path, target: Path) -> None:
        """Copies the tables, or compares them with a copy that was published before."""
        for _ in range(_ATTEMPTS):
            remove_tree(self._partial)
            try:
                self._before, before = _listed(source), self._sums(source)
                copy = target if target.exists() else _copied(source, self._partial)
                there = self._sums(copy)
                differing = [name for name, found in before.items() if there.get(name) != found]
                if before != self._sums(source):
                    continue
                if not differing:
                    self.files = len(before)
                    return
                if copy == target:
                    raise ArchiveConflict(run_id=self._run_id, path=target / differing[0])
            except FileNotFoundError:  # a file was removed while it was read
                if not source.is_dir():
                    raise SourceVanished from None
        raise TablesChanging(run_id=self._run_id)

    def _sums(self, folder: Path) -> dict[str, str]:
        """Returns the checksum of each file below a folder."""
        return {str(path.relative_to(folder)): self._sum(path) for path in files_below(folder)}

    def _sum(self, path: Path) -> str:
        if path.is_symlink() or not (path.is_file() or not path.exists()):
            raise NotArchivable(run_id=self._run_id, path=path)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


def _copied(source: Path, target: Path) -> Path:
    """Copies all files, durably except for the name of the target. Returns the target."""
    make_directory(target)
    for path in files_below(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with faults.around("archive.tables"):
            shutil.copy2(path, copy)
        sync(copy)
    for folder, _, _ in os.walk(target):
        sync(Path(folder))
    return target


def _listed(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Returns size, time and inode of each file below a folder."""
    found = {}
    for path in files_below(folder):
        with suppress(FileNotFoundError):
            status = path.lstat()
            found[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found
