"""The ledger of a table: which ticks it has. The Delta log is the only record, so nothing can disagree with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from ticklake.errors import LakeUnwritable
from ticklake.lake.empty import EMPTY, REMOVED, joined, unpacked
from ticklake.lake.log import DeltaLog, one_line
from ticklake.lake.parquet import ParquetFile
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]

# A file without statistics (another engine may write such) could hold any tick.
_ANY_TICK = TickRange(0, np.iinfo(np.int64).max)


class _Bounds(NamedTuple):
    """The files of the table at one version, and the first and last tick of each."""

    version: int
    paths: list[str]
    low: Ticks
    high: Ticks


class Ledger(DeltaLog):
    """A table opened for indexing."""

    def __init__(self, directory: Path, table: Table) -> None:
        super().__init__(directory, table.name, table.schema)
        self._ordinal = table.ordinal
        self._bounds = self._read_bounds()
        self._empty = self.recorded_empty()

    def present(self, wanted: Sequence[TickRange]) -> Ticks:
        """The ticks of these ranges that the table has. Reads no file where no file's bounds overlap a range."""
        if self._bounds.version != self.version:
            self._bounds = self._read_bounds()
        _, paths, low, high = self._bounds
        found: list[Ticks] = []
        for ticks in wanted:
            found.append(self._empty[(self._empty >= ticks.start) & (self._empty <= ticks.end)])
            for index in np.flatnonzero((low <= ticks.end) & (high >= ticks.start)):
                found.extend(ticks_in(self.directory / unquote(paths[index]), ticks, self._ordinal))
        return joined(found)

    def commit(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        super().commit(files, provenance)
        self._empty = joined([self._empty, unpacked(provenance.get(EMPTY, "[]"))])

    def remove(self, ticks: TickRange) -> None:
        """Takes these ticks out of the table, so that they can be indexed again. Older versions still have them."""
        properties = CommitProperties(custom_metadata={REMOVED: json.dumps(ticks)})
        predicate = f"{self._ordinal} >= {ticks.start:d} AND {self._ordinal} <= {ticks.end:d}"
        try:
            self._delta.delete(predicate, commit_properties=properties)
        except (DeltaError, OSError) as error:
            raise LakeUnwritable(directory=str(self.directory), reason=one_line(error)) from error
        self.refresh()
        self.sync()
        self._empty = self.recorded_empty()

    def _read_bounds(self) -> _Bounds:
        files = self.files()
        if not files.num_rows:
            return _Bounds(self.version, [], np.empty(0, np.int64), np.empty(0, np.int64))
        low = files.column(f"min.{self._ordinal}").fill_null(_ANY_TICK.start).to_numpy()
        high = files.column(f"max.{self._ordinal}").fill_null(_ANY_TICK.end).to_numpy()
        return _Bounds(self.version, files.column("path").to_pylist(), low, high)


def ticks_in(path: Path, wanted: TickRange, ordinal: str = "tick_number") -> Iterator[Ticks]:
    """The ticks of one Parquet file within a range, from the bounds of its row groups where those tell."""
    with pq.ParquetFile(path) as file:
        column = file.schema_arrow.get_field_index(ordinal)
        for group in range(file.num_row_groups):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is not None and bounds.has_min_max:
                if bounds.max < wanted.start or bounds.min > wanted.end:
                    continue
                if bounds.min == bounds.max:
                    yield np.array([bounds.min], np.int64)
                    continue
            ticks = np.unique(file.read_row_group(group, columns=[ordinal]).column(0).to_numpy())
            yield ticks[(ticks >= wanted.start) & (ticks <= wanted.end)]
