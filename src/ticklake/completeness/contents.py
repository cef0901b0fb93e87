"""The contents of one table that a verdict needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ticklake.lake.delta import Location
from ticklake.lake.empty import Ticks
from ticklake.lake.errors import DamagedCommit, TableUnreadable
from ticklake.lake.verify import check_owner, covered, properties_of, row_counts


@dataclass(frozen=True)
class Contents:
    """The contents of a table. `numbers` are its ticks, or its batches of events.

    `counts` has the number of rows of each number in `counted`; None if rows were not counted. `properties` is empty if
    it was not requested. `unreadable` says why the table could not be read completely.
    """

    numbers: Ticks = field(default_factory=lambda: np.empty(0, np.int64))
    counted: Ticks = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Ticks | None = None
    duplicated: int = 0
    duplicates: list[dict[str, int]] = field(default_factory=list)
    properties: Mapping[str, str] = field(default_factory=dict)
    unreadable: str = ""

    @classmethod
    def read(cls, location: Location, run_id: str, *, count_rows: bool, with_properties: bool = False) -> Self:
        """Reads a table. If it is unreadable or of another run, raises only if rows are not counted."""
        properties, counts, numbers, unreadable = dict[str, str](), None, np.empty(0, np.int64), ""
        try:
            check_owner(location, run_id)
            properties |= properties_of(location) if with_properties else {}
            counts = row_counts(location) if count_rows else None
            # Of the same version: an indexer may add rows meanwhile.
            numbers = covered(location, counts.version if counts is not None else None).ticks
        except (TableUnreadable, DamagedCommit) as error:
            if not count_rows:
                # The caller shows only ticks, and there are none to show.
                raise
            unreadable = str(error)
        if counts is None:
            return cls(numbers, properties=properties, unreadable=unreadable)
        rows = counts.rows
        return cls(numbers, counts.ticks, rows, counts.duplicated, counts.duplicates, properties, unreadable)

    @property
    def rows(self) -> int | None:
        """The number of all rows; None if they were not counted."""
        return None if self.counts is None else int(self.counts.sum())

    @property
    def flaws(self) -> int:
        return self.duplicated + bool(self.unreadable)

    def rows_by_number(self) -> dict[int, int]:
        counts = [] if self.counts is None else self.counts.tolist()
        return dict(zip(self.counted.tolist(), counts, strict=True))
