"""Where the bytes of a lake are: its root, the location of each table, and the files of a table.

Everything above this package uses these classes and never a path. They keep files in directories. Another kind of
place, such as an object store, needs its own class for each; `LakeRoot.of` and `Location.of` would choose the class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ticklake import disk, faults
from ticklake.checks.places import lake_path, local_path
from ticklake.lake.errors import RunFolderUnreadable
from ticklake.storage import is_safe

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOG = "_delta_log"
_BLOCK_BYTES = 1 << 20
_FIRST_ENTRIES = 1000


class Facts(NamedTuple):
    """The size of a file, and when it was written."""

    size: int
    written_ns: int

    @property
    def written(self) -> float:
        """Seconds since 1970."""
        return self.written_ns / 1e9


@dataclass(frozen=True, slots=True)
class LakeRoot:
    """The root of a lake, with the tables `LAKE/<run id>/<table>`."""

    _path: str

    @classmethod
    def of(cls, place: str | os.PathLike[str]) -> Self:
        """Accepts a directory or its URL. Raises `UnsupportedPlace` for anything else."""
        return cls(str(lake_path(place)))

    def __str__(self) -> str:
        return self._path

    def absolute(self) -> Self:
        return type(self)(str(Path(self._path).absolute()))

    def exists(self) -> bool:
        return Path(self._path).is_dir()

    def location(self, run_id: str, table: str) -> Location:
        """Returns the location of a table, whether it exists or not. The caller checks the names."""
        return Location(str(Path(self._path, run_id, table)))

    def is_lake_of(self, location: Location) -> bool:
        """Returns whether a table, which may be gone, is or was in this lake. A link to the lake is the lake."""
        lake = Path(str(location)).parent.parent
        return lake == Path(self._path).absolute() or (lake.is_dir() and lake.samefile(self._path))

    def folder(self, run_id: str) -> str:
        """Returns the folder of a run, for messages."""
        return str(Path(self._path, run_id))

    def names(self) -> list[str]:
        """Returns the names of all folders and files. Any of them may be a run."""
        return [entry.name for entry in Path(self._path).iterdir()]

    def names_in(self, run_id: str) -> list[str]:
        """Returns the names of all folders and files of a run. Any of them may be a table.

        Raises `RunFolderUnreadable` if nobody can say what is there.
        """
        folder = Path(self._path, run_id)
        if not is_safe(run_id) or not _may_exist(folder, folder):
            return []
        try:
            return [entry.name for entry in folder.iterdir()]
        except NotADirectoryError:
            return []
        except OSError as error:
            raise RunFolderUnreadable(folder=folder, reason=error.strerror or error) from error


def split_run(place: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns the lake and the run of `LAKE/RUN`."""
    return os.path.split(local_path(place, "A run of a lake"))


@dataclass(frozen=True, slots=True)
class Location:
    """The place of one table. It holds nothing open and is sent to Spark's workers with the work."""

    _path: str

    @classmethod
    def of(cls, place: str | os.PathLike[str]) -> Self:
        """Accepts a directory or its URL. Raises `UnsupportedPlace` for anything else."""
        return cls(str(local_path(place, "A table")))

    def __str__(self) -> str:
        return self._path

    @property
    def name(self) -> str:
        """The name of the table."""
        return Path(self._path).name

    @property
    def run_id(self) -> str:
        """The run whose folder has the table."""
        return Path(self._path).parent.name

    @property
    def url(self) -> str:
        """The absolute URL."""
        return Path(self._path).absolute().as_uri()

    def absolute(self) -> Self:
        return type(self)(str(Path(self._path).absolute()))

    def is_same(self, other: Location) -> bool:
        """Returns True if both exist and are the same place, such as a folder and a link to it."""
        try:
            return Path(self._path).samefile(str(other))
        except FileNotFoundError:
            return False

    def file(self, path: str) -> TableFile:
        """Returns a file of the table. The path is relative to the table."""
        return TableFile(self, path)

    def log_file(self, name: str) -> TableFile:
        """Returns a file of the log."""
        return TableFile(self, f"{LOG}/{name}")

    @property
    def log(self) -> str:
        """The folder of the log, for messages."""
        return str(Path(self._path, LOG))

    def exists(self) -> bool:
        """Returns True if the table has a log. It may have no commit yet."""
        return Path(self._path, LOG).is_dir()

    def may_exist(self) -> bool:
        """Like `exists`, but also True if nobody can say: on an unmounted disk, or without permission."""
        return _may_exist(Path(self._path, LOG), Path(self._path))

    def lacks_log(self) -> bool:
        """Returns True if there are Parquet files but no commit: the log is lost, or it never was a Delta table.

        Our tables have a commit before their first file. Looks at the first files and folders only, because pages ask
        often, and what lies in the folder may be anything.
        """
        try:
            if any(name.endswith((".json", ".parquet")) for name in os.listdir(self.log)):  # noqa: PTH208
                return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return False
        first = islice(_entries_below(self._path), _FIRST_ENTRIES)
        return any(entry.name.endswith(".parquet") and not entry.is_dir(follow_symlinks=False) for entry in first)

    def has_commits(self) -> bool:
        return any(Path(self._path, LOG).glob("*.json"))

    def names(self) -> list[str]:
        """Returns the names of all files, without those of the log."""
        return [entry.name for entry in Path(self._path).iterdir()]

    def log_names(self) -> list[str]:
        """Returns the names of all files of the log, in order. None if there is no log, or if it cannot be read."""
        return sorted(entry.name for entry in Path(self._path, LOG).glob("*"))

    def bytes_of(self, prefix: str) -> int:
        """Returns the size of all Parquet files that begin with this text, also of those that are being written."""
        return sum(file.stat().st_size for file in Path(self._path).glob(f"{prefix}*.parquet"))

    def make(self) -> None:
        """Makes the place durably. Another indexer may make it at the same time."""
        disk.make_directory(Path(self._path), shared=3)

    def make_log(self) -> None:
        """Makes the place of the log durably."""
        disk.make_directory(Path(self._path, LOG), shared=3)

    def file_system(self) -> FileSystem:
        """Returns the file system in which Arrow finds the files of the table by their paths."""
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        return SubTreeFileSystem(self._path, LocalFileSystem())


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table or of its log. `path` is relative to the table, as in the log."""

    location: Location
    path: str

    def __str__(self) -> str:
        return str(self._path)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def source(self) -> str:
        """What Arrow reads from and writes to."""
        return str(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def facts(self) -> Facts:
        """Raises FileNotFoundError if the file does not exist, as do the following methods."""
        found = self._path.stat()
        return Facts(found.st_size, found.st_mtime_ns)

    def read(self) -> bytes:
        return self._path.read_bytes()

    def blocks(self) -> Iterator[bytes]:
        """Yields the content in blocks."""
        with self._path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def sync(self) -> None:
        """Makes the content and the name durable."""
        disk.sync(self._path)
        disk.sync(self._path.parent)

    def remove(self) -> None:
        """Removes a file that is not part of a commit, if it exists. After a crash, vacuum removes it."""
        with faults.around("lake.remove"):
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return Path(str(self.location), self.path)


def _entries_below(path: str) -> Iterator[os.DirEntry[str]]:
    """Yields the files and folders below a folder, without those of logs. A folder is read while it is iterated."""
    waiting = [path]
    for folder in waiting:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.name != LOG:
                    waiting.append(entry.path)
                yield entry


def _may_exist(path: Path, folder: Path) -> bool:
    """Returns False only if there is no such path. A folder that is a link to nothing may be on an unmounted disk."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return folder.is_symlink() and not folder.exists()
    except OSError:
        return True
    return True
