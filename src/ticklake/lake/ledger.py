"""The ledger of a table: which ticks it has. The Delta log is the only record, so nothing can disagree with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from ticklake import faults
from ticklake.errors import LakeUnwritable
from ticklake.lake.commits import Commit
from ticklake.lake.empty import REMOVED, joined
from ticklake.lake.log import KEY, CommitConflict, DeltaLog, one_line
from ticklake.lake.summary import Summary, recorded
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]


class Ledger(DeltaLog):
    """A table opened for indexing."""

    def __init__(self, directory: Path, table: Table) -> None:
        self.table = table
        super().__init__(directory, table.name, table.schema, table.key)

    def present(self, wanted: Sequence[TickRange]) -> Ticks:
        """The ticks of these ranges that the table has. Reads no file where no file's bounds overlap a range."""
        found: list[Ticks] = []
        for ticks in wanted:
            found.append(self._empty.within(ticks))
            for file in self.files.overlapping(ticks):
                found.extend(ticks_in(self.directory / file.path, ticks, self.table.ordinal))
        return joined(found)

    def remove(self, ticks: TickRange) -> None:
        """Takes these ticks out of the table, so that they can be indexed again. Older versions still have them."""
        properties = CommitProperties(custom_metadata={REMOVED: json.dumps(ticks)})
        # Checkpoints are ours: they follow what is on disk.
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        predicate = f"{self.table.ordinal} >= {ticks.start:d} AND {self.table.ordinal} <= {ticks.end:d}"
        try:
            delta = DeltaTable(self.directory)
            with faults.around("lake.delete"):
                delta.delete(predicate, commit_properties=properties, post_commithook_properties=hooks)
        except (DeltaError, OSError) as error:
            raise LakeUnwritable(directory=str(self.directory), reason=one_line(error)) from error
        self.refresh()
        self.sync()
        # Where no row goes, delta-rs commits nothing; ticks without rows go all the same.
        while len(self._empty.within(ticks)):
            with suppress(CommitConflict):
                self.commit([], {REMOVED: json.dumps(ticks)})
            self.refresh()

    def _load(self) -> None:
        super()._load()
        self._empty = recorded(self._log, self.id, self.version)

    def _take(self, commit: Commit) -> None:
        super()._take(commit)
        self._empty.take(commit.info)

    def _summary(self) -> Summary:
        return Summary(self.id, self.version, self._empty.text())


def open_existing(directory: Path) -> Ledger | None:
    """The ledger of a table that is there, whatever indexer it belongs to; None for one that is not kept by ticks."""
    delta = DeltaTable(directory)
    metadata = delta.metadata()
    if not (key := metadata.configuration.get(KEY)):
        return None
    schema = pa.schema(delta.schema().to_arrow())
    return Ledger(directory, Table(metadata.name or directory.name, schema, tuple(json.loads(key))))


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
