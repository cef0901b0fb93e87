"""Rows of a table for Arrow, pandas and Polars: no JVM, and of the files only what the ticks need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ticklake.checks.places import local_path
from ticklake.lake.errors import NoSuchColumn, NoTicksInTable, PolarsMissing, TableNotInRun
from ticklake.lake.read.catalog import Catalog
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_TICK = "tick_number"


@dataclass(frozen=True)
class Rows:
    """Some rows of a table, as it was when it was opened. They are read when they are asked for, each time anew."""

    dataset: pa.dataset.Dataset
    columns: list[str]
    ticks: TickRange | None

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self._scanner().to_table()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame. Raises `PolarsMissing` if Polars is not installed."""
        try:
            import polars
        except ImportError as error:
            raise PolarsMissing() from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101  a table is no series
        return frame

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One record batch at a time, for more rows than fit into memory."""
        yield from self._scanner().to_batches()

    def __len__(self) -> int:
        return int(self._scanner().count_rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """What lets DuckDB, Polars and others take it as it is."""
        return self._scanner().to_reader().__arrow_c_stream__(requested_schema)

    def _scanner(self) -> pa.dataset.Scanner:
        # Row groups are read one after the other: a tick is in one or two of them.
        return self.dataset.scanner(columns=self.columns, filter=self._filter())

    def _filter(self) -> pc.Expression | None:
        if self.ticks is None:
            return None
        return (pc.field(_TICK) >= self.ticks.start) & (pc.field(_TICK) <= self.ticks.end)


def read(
    run: str | os.PathLike[str],
    table: str,
    *,
    ticks: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
    lake: str | os.PathLike[str] | None = None,
) -> Rows:
    """The rows of `table` in the run at `LAKE/RUN`, or in the run of that id in `lake`.

    `ticks` are the first and the last wanted, both included; files and row groups without them are not read.
    """
    root, run_id = (lake, os.fspath(run)) if lake is not None else os.path.split(local_path(run, "A run of a lake"))
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
