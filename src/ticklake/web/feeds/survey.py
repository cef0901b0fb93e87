"""The completeness of a run in compact form, and its ranges as stripes of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticklake.completeness import Completeness, FilesVerdict, MessagesVerdict, TableVerdict, Verdict
from ticklake.storage import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database, runs_in
from ticklake.web.feeds.sampling import PerRun, Sampler
from ticklake.web.site import Site

SECONDS = 2.0
WIDTH = 1000
LISTED_RANGES = 50
"""Number of ranges that are listed."""

MAX_MESSAGES = 100_000
"""Finding unannounced files reads all messages. With more messages, use `ticklake verify`."""


class Stripe(NamedTuple):
    """A part of a map, in thousandths of the shown range."""

    kind: str
    x: float
    width: float


class Ranges:
    """Ranges of ticks, in order and without overlaps."""

    def __init__(self, ranges: Sequence[TickRange]) -> None:
        self._bounds: npt.NDArray[np.int64] = np.array(ranges, np.int64).reshape(-1, 2)
        self.first = list(ranges[:LISTED_RANGES])

    def __len__(self) -> int:
        return len(self._bounds)

    def stripes(self, kind: str, shown: TickRange, step: int) -> list[Stripe]:
        """Returns stripes. Ranges closer than half a pixel are merged; each stripe is wide enough to be visible."""
        low, high = self._bounds.T
        seen = slice(np.searchsorted(high, shown.start), np.searchsorted(low, shown.end, "right"))
        scale = WIDTH / (shown.end - shown.start + step)
        left = (np.maximum(low[seen], shown.start) - shown.start) * scale
        right = (np.minimum(high[seen], shown.end) + step - shown.start) * scale
        if not len(left):
            return []
        apart = np.flatnonzero(left[1:] - right[:-1] >= 0.5)
        starts, ends = left[np.append(0, apart + 1)], right[np.append(apart, len(right) - 1)]
        widths = np.maximum(1.0, ends - starts)
        return [Stripe(kind, round(float(x), 2), round(float(w), 2)) for x, w in zip(starts, widths, strict=True)]


@dataclass(frozen=True)
class TableMap:
    """The ticks of a table: present, waiting in a file, and without a file."""

    table: str
    verdict: Verdict
    step: int
    unit: str
    whole: TickRange
    ticks: int
    covered: Ranges
    waiting: Ranges
    lost: Ranges
    missing: Ranges
    problem: str = ""
    """Why the table cannot be read."""

    @classmethod
    def of(cls, found: TableVerdict) -> TableMap:
        coverage = found.coverage
        return cls(
            found.table,
            found.verdict,
            found.step,
            found.unit,
            coverage.expected,
            coverage.ticks,
            Ranges(coverage.covered),
            Ranges(coverage.waiting),
            Ranges(coverage.lost),
            Ranges(coverage.missing),
            found.unreadable,
        )

    def seen(self, shown: TickRange | None) -> TickRange | None:
        """Returns the part to draw: the shown ticks, or everything if the table does not count ticks."""
        return shown if self.unit == "ticks" else self.whole or None

    def stripes(self, shown: TickRange) -> list[Stripe]:
        """Returns the stripes, with missing ranges above present ones."""
        kinds = (("covered", self.covered), ("missing", self.waiting), ("lost", self.lost))
        return [stripe for kind, ranges in kinds for stripe in ranges.stripes(kind, shown, self.step)]


@dataclass(frozen=True)
class Survey:
    """A run at one moment. `messages` is None if they were not compared."""

    verdict: Verdict
    ticks: TickRange
    files: FilesVerdict
    messages: MessagesVerdict | None
    tables: list[TableMap]
    unjudged: list[str]
    metadata: str | None = None


def surveyed(run_id: str, storage: Storage, site: Site) -> Survey:
    """Surveys a run. Does not count rows, which would read every key of every table; `ticklake verify` does."""
    topic = site.settings.places().batch_topic if site.settings is not None else None
    looked = Completeness(run_id, storage, site.catalog, *site.databases, topic=topic)
    found = looked.verify(count_rows=False, read_messages=_few_messages(site.databases, run_id))
    tables = [TableMap.of(table) for table in found.tables]
    ticks, unjudged = looked.expected.ticks, found.unjudged
    return Survey(found.verdict, ticks, found.storage, found.messages, tables, unjudged, found.metadata)


def surveys(site: Site) -> PerRun[Sampler[Survey]]:
    """Returns a sampler per run, shared by all viewers."""

    def of(run_id: str) -> Sampler[Survey]:
        assert site.storage is not None  # noqa: S101  the page checks it
        storage = site.storage
        return Sampler(lambda: surveyed(run_id, storage, site), SECONDS)

    return PerRun(of, most=4)


def _few_messages(databases: Sequence[Database], run_id: str) -> bool:
    topics = [topic for run in runs_in(databases, run_id) for topic in run.topics()]
    return sum(topic.messages for topic in topics) <= MAX_MESSAGES
