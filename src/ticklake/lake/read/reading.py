"""Rows of a table for Arrow, pandas and Polars, without a JVM. Reads only the needed parts of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.delta import split_run
from ticklake.lake.errors import NoSuchColumn, NoTicksInTable, PolarsMissing, TableNotInRun
from ticklake.lake.read.catalog import Catalog
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_TICK = "tick_number"


@dataclass(frozen=True)
class Rows:
    """Rows of a table as of when it was opened. Each call reads them again."""

    dataset: pa.dataset.Dataset
    columns: list[str]
    ticks: TickRange | None

    def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table."""
        return self._scanner().to_table()

    def to_pandas(self) -> pd.DataFrame:
        """Returns all rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a Polars DataFrame. Raises `PolarsMissing` if Polars is not installed."""
        try:
            import polars
        except ImportError as error:
            raise PolarsMissing() from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101  a table never becomes a series
        return frame

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields one record batch at a time, for more rows than fit into memory."""
        yield from self._scanner().to_batches()

    def __len__(self) -> int:
        return int(self._scanner().count_rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Lets DuckDB, Polars and others read the rows directly."""
        return self._scanner().to_reader().__arrow_c_stream__(requested_schema)

    def _scanner(self) -> pa.dataset.Scanner:
        # Row groups are read in turn: a tick is in one or two of them.
        return self.dataset.scanner(columns=self.columns, filter=self._filter())

    def _filter(self) -> pc.Expression | None:
        if self.ticks is None:
            return None
        return (pc.field(_TICK) >= self.ticks.start) & (pc.field(_TICK) <= self.ticks.end)


def read(
    run: str | PathLike[str],
    table: str,
    *,
    ticks: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
    lake: str | PathLike[str] | None = None,
) -> Rows:
    """Returns the rows of `table` in the run at `LAKE/RUN`, or in the run with that id in `lake`.

    `ticks` is the first and the last tick, both included. Files and row groups without them are not read.
    """
    root, run_id = (lake, fspath(run)) if lake is not None else split_run(run)
    catalog = Catalog(root)
    catalog.chosen(run_id)
    tables = catalog.tables(run_id)
    if table not in tables:
        raise TableNotInRun(table=table, run_id=run_id, found=", ".join(tables))
    dataset = catalog.dataset(run_id, table)
    if ticks is not None and _TICK not in dataset.schema.names:
        raise NoTicksInTable(table=table)
    if unknown := [name for name in columns or () if name not in dataset.schema.names]:
        raise NoSuchColumn(table=table, column=unknown[0], found=", ".join(dataset.schema.names))
    return Rows(dataset, list(columns or dataset.schema.names), TickRange(*ticks) if ticks is not None else None)
