"""The files of a table as its log lists them, and what each one holds.

The log has statistics of a file only if its writer added them, and delta-rs reads those of the first columns only. What
is missing in the log is read from the file itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from ticklake.lake.delta.footers import Contents, contents
from ticklake.lake.delta.location import Location, TableFile
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile
from ticklake.lake.delta.types import leaves
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    # It loads pandas, which takes a second. Writers do not need it.
    from pyarrow.dataset import Dataset

# The number of columns whose statistics readers use by default.
_INDEXED = 32


class Listed(NamedTuple):
    """A file with the statistics of one column from the log. None means unknown."""

    written: str
    size: int
    rows: int | None
    nulls: int | None
    low: int | None
    high: int | None

    @property
    def path(self) -> str:
        """The path in the folder. delta-rs returns it URL-encoded."""
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
    statistics = (_values(adds, name) for name in names)
    return list(map(Listed, adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), *statistics))


def files_of(delta: DeltaTable, location: Location) -> list[TableFile]:
    return [location.file(file.path) for file in listed(delta, "")]


def sizes_of(delta: DeltaTable) -> list[int]:
    return [file.size for file in listed(delta, "")]


def live_files(delta: DeltaTable, ordinal: str) -> list[LiveFile]:
    return [LiveFile(file.path, file.size, file.rows, _bounds(file), file.written) for file in listed(delta, ordinal)]


def bounded(file: LiveFile, location: Location, ordinal: str) -> LiveFile | None:
    """Returns the file with bounds, from its footer if the log has none. None if it cannot be read."""
    if file.ticks != ANY_TICK or not ordinal:
        return file
    read = _read(location.file(file.path), ordinal)
    if read is None:
        return None
    return file._replace(ticks=read.bounds or ANY_TICK)


def statistics_property(schema: pa.Schema, ordinal: str) -> dict[str, str]:
    """Returns the table property that makes readers use statistics of all columns up to `ordinal`.

    Another property names columns, but with it delta-rs (1.6) finds no statistics in a table with a struct.
    """
    end = schema.names.index(ordinal) + 1
    count = sum(leaves(field.type) for field in list(schema)[:end])
    return {"delta.dataSkippingNumIndexedCols": str(count)} if count > _INDEXED else {}


def is_counted_by(delta: DeltaTable, column: str) -> bool:
    """Returns True if the table has this column and it holds integers."""
    schema = pa.schema(delta.schema().to_arrow())
    return column in schema.names and pa.types.is_integer(schema.field(column).type)


def contents_of(delta: DeltaTable, location: Location, column: str) -> list[Contents | None]:
    """Returns what each file holds, from the log or from the file itself. None if it cannot be read."""
    return [file.contents or _read(location.file(file.path), column) for file in listed(delta, column)]


def rows_in(delta: DeltaTable, location: Location) -> int | None:
    """Returns the number of rows, or None if a file without statistics cannot be read."""
    found = [_rows(file, location) for file in listed(delta, "")]
    return None if None in found else sum(filter(None, found))


def _rows(file: Listed, location: Location) -> int | None:
    if file.rows is not None:
        return file.rows
    read = _read(location.file(file.path), "")
    return None if read is None else read.rows


def _read(file: TableFile, column: str) -> Contents | None:
    try:
        return contents(file, column)
    except (OSError, pa.ArrowException):
        return None


def _values(adds: pa.Table, name: str) -> Sequence[Any]:
    """Returns None values if the name is ambiguous: `a.b` can be a column or a field of struct `a`."""
    return adds[name].to_pylist() if adds.schema.names.count(name) == 1 else [None] * adds.num_rows


def _bounds(file: Listed) -> TickRange:
    return TickRange(ANY_TICK.start if file.low is None else file.low, ANY_TICK.end if file.high is None else file.high)


def dataset_of(delta: DeltaTable, location: Location) -> Dataset:
    """Returns the files of a table as an Arrow dataset, read through Arrow's own file system.

    The file system of delta-rs calls Python in Arrow's threads. A process that ends while one of them closes a file is
    aborted.
    """
    return delta.to_pyarrow_dataset(filesystem=location.file_system())


def dataset_from(files: Sequence[TableFile], schema: pa.Schema) -> Dataset:
    """Returns some files of a table as an Arrow dataset. Checks the checksum of every page that has one."""
    import pyarrow.dataset as ds

    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    return ds.dataset([file.source for file in files], schema=schema, format=parquet)
