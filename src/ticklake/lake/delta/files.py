"""The files that a table consists of, as its log lists them, and what each one holds.

The log has statistics of a file if its writer gave any, and delta-rs reads those of the first columns only. What the
log does not tell is read from the file itself: a file without statistics is no file without rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from ticklake.lake.delta.footers import Contents, contents
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile
from ticklake.lake.delta.types import leaves
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    # It loads pandas, which takes a second. Those who only write do not need it.
    from pyarrow.dataset import Dataset

# Columns whose statistics readers use, unless the table asks for more.
_INDEXED = 32


class Listed(NamedTuple):
    """A file and what the log tells of it and of one of its columns; None for what it does not tell."""

    written: str
    size: int
    rows: int | None
    nulls: int | None
    low: int | None
    high: int | None

    @property
    def path(self) -> str:
        """delta-rs tells it as a URL, with other characters than the folder's."""
        return unquote(self.written)

    @property
    def contents(self) -> Contents | None:
        if self.rows is None or self.nulls is None:
            return None
        if self.low is None or self.high is None:
            return Contents(self.rows, self.nulls, None) if self.nulls == self.rows else None
        return Contents(self.rows, self.nulls, TickRange(self.low, self.high))


def listed(delta: DeltaTable, column: str) -> list[Listed]:
    adds = pa.table(delta.get_add_actions(flatten=True))
    names = ("num_records", *(f"{kind}.{column}" for kind in ("null_count", "min", "max")))
    told = (_values(adds, name) for name in names)
    return list(map(Listed, adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), *told))


def paths_of(delta: DeltaTable, directory: Path) -> list[Path]:
    return [directory / file.path for file in listed(delta, "")]


def sizes_of(delta: DeltaTable) -> list[int]:
    return [file.size for file in listed(delta, "")]


def live_files(delta: DeltaTable, ordinal: str) -> list[LiveFile]:
    return [LiveFile(file.path, file.size, file.rows, _bounds(file), file.written) for file in listed(delta, ordinal)]


def bounded(file: LiveFile, directory: Path, ordinal: str) -> LiveFile | None:
    """The file with bounds: those of its footer if the log tells none. None if it cannot be read."""
    if file.ticks != ANY_TICK or not ordinal:
        return file
    read = _read(directory / file.path, ordinal)
    if read is None:
        return None
    return file._replace(ticks=read.bounds or ANY_TICK)


def statistics_property(schema: pa.Schema, ordinal: str) -> dict[str, str]:
    """Has readers use the statistics of the first columns as far as the one that the table counts by.

    There is also a property that names columns, but delta-rs (1.6) then finds none in a table with a struct.
    """
    behind = schema.names.index(ordinal) + 1
    count = sum(leaves(field.type) for field in list(schema)[:behind])
    return {"delta.dataSkippingNumIndexedCols": str(count)} if count > _INDEXED else {}


def is_counted_by(delta: DeltaTable, column: str) -> bool:
    """Whether the table has this column, and integers in it."""
    schema = pa.schema(delta.schema().to_arrow())
    return column in schema.names and pa.types.is_integer(schema.field(column).type)


def contents_of(delta: DeltaTable, directory: Path, column: str) -> list[Contents | None]:
    """What each file holds: as the log tells, else as the file itself does. None if that cannot be read."""
    return [file.contents or _read(directory / file.path, column) for file in listed(delta, column)]


def rows_in(delta: DeltaTable, directory: Path) -> int | None:
    """All rows of a table that is not counted by a column; None if a file without statistics cannot be read."""
    found = [_rows(file, directory) for file in listed(delta, "")]
    return None if None in found else sum(filter(None, found))


def _rows(file: Listed, directory: Path) -> int | None:
    if file.rows is not None:
        return file.rows
    read = _read(directory / file.path, "")
    return None if read is None else read.rows


def _read(path: Path, column: str) -> Contents | None:
    try:
        return contents(path, column)
    except (OSError, pa.ArrowException):
        return None


def _values(adds: pa.Table, name: str) -> Sequence[Any]:
    """Nothing is known if the name is there twice: a column with a dot in its name has that of a field of a struct."""
    return adds[name].to_pylist() if adds.schema.names.count(name) == 1 else [None] * adds.num_rows


def _bounds(file: Listed) -> TickRange:
    return TickRange(ANY_TICK.start if file.low is None else file.low, ANY_TICK.end if file.high is None else file.high)


def dataset_of(delta: DeltaTable, directory: Path) -> Dataset:
    """The files of a table as an Arrow dataset, read through Arrow's own file system.

    The file system of delta-rs runs Python in Arrow's threads. A process that ends while one of them closes a file is
    aborted.
    """
    return delta.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(directory), LocalFileSystem()))
