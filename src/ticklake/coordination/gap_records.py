"""The recorded gaps of a coordinator, and the missing ticks of the files that it has read."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

from ticklake.coordination.claims import Batch
from ticklake.coordination.gaps import End, Gap, MissingTicks, gap_changes, joined_if_many, with_ages
from ticklake.database.schema import Row, Statements
from ticklake.monitoring import Monitor
from ticklake.ticks import TickRange, hull, merged, on_grid, split, subtract

log = logging.getLogger(__name__)
ALL_TICKS = TickRange(0, 2**63 - 1)


class GapRecords:
    """The gaps of one table. Each call is part of the caller's transaction, which holds the lock of the frontier."""

    def __init__(self, key: Mapping[str, str], step: int, first: int, monitor: Monitor) -> None:
        """`key`: the indexer class and the id of the table. `first`: the tick with which the run begins."""
        self._key = key
        self._indexer_class = key["indexer_class"]
        self._step, self._first = step, first
        self._monitor = monitor

    def overlapping(self, sql: Statements, ticks: TickRange) -> list[Gap]:
        return list(map(read_gap, sql.overlapping_gaps(**self._key, first=ticks.start, last=ticks.end)))

    def add(self, sql: Statements, gap: Gap, *, new: bool = False) -> None:
        with self._monitor.percentiles("mark_gap_pending_latency").timed():
            sql.add_gap(
                **self._key,
                first=gap.ticks.start,
                last=gap.ticks.end,
                first_detected=None if new else gap.first_detected_ms,
                status=gap.status,
            )
        log.debug("Gap in %s: %s", self._indexer_class, gap.ticks)

    def record(self, sql: Statements, ticks: TickRange) -> None:
        """Records the ticks that no good batch has as gaps. A very large number of gaps becomes one gap.

        Ticks that were never written to an abandoned run are no gaps.
        """
        known = list(map(read_batch, sql.batches(**self._key, first=ticks.start, last=ticks.end)))
        good = [part for batch in known if batch.status != "failed" for part in batch.present_ticks(self._step)]
        gaps = [gap.ticks for gap in self.overlapping(sql, ticks)]
        missing = joined_if_many(subtract([ticks], [*gaps, *good, *self._excused(sql, known)], self._step))
        for gap in subtract(missing, gaps, self._step):
            self.add(sql, Gap(gap, 0), new=True)

    def update(self, sql: Statements, frontier: int | None, ticks: TickRange) -> int:
        reach = -1 if frontier is None else frontier
        with self._monitor.percentiles("has_gap_before_latency").timed():
            near = self.overlapping(sql, TickRange(min(ticks.start, reach + 1), ticks.end))
        change = gap_changes(frontier, near, ticks, self._step, self._first)
        for gap in change.closed:
            with self._monitor.percentiles("release_gap_pending_latency").timed():
                sql.remove_gap(**self._key, first=gap.ticks.start)
            self._monitor.counter("gaps_released").add()
        for gap in change.remaining:
            self.add(sql, gap)
        for opened in change.opened:
            self.add(sql, Gap(opened, 0), new=True)
        return change.frontier

    def known_end(self, sql: Statements) -> End:
        (row,) = sql.known_end(**self._key)
        return End.stored(*row)

    def record_tail(self, sql: Statements, frontier: int | None, last_tick: int) -> None:
        """Records the ticks between the frontier and the end of the run as gaps."""
        whole = TickRange(self._first if frontier is None else frontier + 1, last_tick)
        if whole:
            beyond = [gap.ticks for gap in self.overlapping(sql, whole)]
            for ticks in subtract([whole], beyond, self._step):
                self.add(sql, Gap(ticks, 0), new=True)

    def close(self, sql: Statements, never_written: Sequence[TickRange]) -> None:
        """Removes ticks from the gaps, because nobody expects them any more. Ticks that a file promises stay."""
        files = [
            read_batch(row).ticks
            for ticks in never_written
            for row in sql.batches(**self._key, first=ticks.start, last=ticks.end)
        ]
        for ticks in subtract(never_written, files, self._step):
            self._remove(sql, ticks)

    def _remove(self, sql: Statements, ticks: TickRange) -> None:
        """Removes ticks from the gaps."""
        for gap in self.overlapping(sql, ticks):
            sql.remove_gap(**self._key, first=gap.ticks.start)
            for piece in split(gap.ticks, ticks, self._step):
                if on_grid(piece, self._step):
                    self.add(sql, gap._replace(ticks=piece))

    def set_missing(
        self, sql: Statements, frontier: int | None, name: str, before: str | None, missing: MissingTicks
    ) -> None:
        """Records the missing ticks of a file that was read. They become gaps; ticks that it has are not gaps."""
        if missing.ranges or before or missing.reach is not None:
            self._store_missing(sql, name, missing)
        if missing.reach is not None:
            self._remove(sql, TickRange(*sql.ticks_of(**self._key, filename=name)[0]))
        missing_before = MissingTicks.stored(before, None).ranges
        if missing_before and missing_before != missing.ranges:
            for ticks in joined_if_many(subtract([hull(missing_before)], missing.ranges, self._step)):
                self.update(sql, frontier, ticks)
        if missing.ranges:
            self.record(sql, hull(missing.ranges))

    def put_on_grid(self, sql: Statements, recorded: int | None) -> None:
        """Puts the missing ticks of files, and the gaps, on the grid of this sampling interval.

        If it is a multiple of the recorded one, the missing ticks of each file are known. Otherwise, no file was read
        on this grid, so the completed batches are reopened. Records of earlier versions have no sampling interval:
        `None` is treated like 1. Files with ticks off the grid fail, so the ticks between missing ones are missing too.
        """
        batches = self._batches(sql)
        for batch in batches:
            missing = MissingTicks(tuple(merged(batch.missing.ranges, self._step)), batch.missing.stamp)
            if missing.ranges != batch.missing.ranges:
                self._store_missing(sql, batch.name, missing)
        if self._step % (recorded or 1):
            sql.reopen(**self._key, filenames=json.dumps([one.name for one in batches if one.status == "completed"]))
        self.find_again(sql)

    def _store_missing(self, sql: Statements, name: str, missing: MissingTicks) -> None:
        lacks = json.dumps(missing.ranges) if missing.ranges else None
        reach = -1 if missing.reach is None else missing.reach
        sql.set_missing(**self._key, filename=name, lacks=lacks, stamp=missing.stamp, reach=reach)

    def _excused(self, sql: Statements, batches: Sequence[Batch]) -> list[TickRange]:
        """Returns the ticks that nobody expects. Ticks that one of these files promises are expected."""
        return subtract(self.known_end(sql).never_written, [batch.ticks for batch in batches], self._step)

    def _batches(self, sql: Statements) -> list[Batch]:
        return list(map(read_batch, sql.batches(**self._key, first=ALL_TICKS.start, last=ALL_TICKS.end)))

    def find_again(self, sql: Statements) -> None:
        """Replaces all gaps by the ticks that no good batch has. Ticks that were a gap before keep its age and status.

        Only this way is a gap exact that stands for the many holes of a file.
        """
        batches, end = self._batches(sql), self.known_end(sql).last_tick
        before = self.overlapping(sql, ALL_TICKS)
        sql.remove_gaps(**self._key)
        good = [batch for batch in batches if batch.status != "failed"]
        reach = max([batch.ticks.end for batch in batches], default=-1)
        reach = reach if end is None else max(reach, end)
        first = min([self._first, *(batch.ticks.start for batch in batches)])
        there = [*self._excused(sql, batches), *(batch.ticks for batch in good)]
        for ticks in subtract([TickRange(first, reach)], there, self._step):
            self.add(sql, Gap(ticks, 0), new=True)
        for batch in good:
            if missing := merged(batch.missing.ranges, self._step):
                self.record(sql, hull(missing))
        known, new = with_ages([gap.ticks for gap in self.overlapping(sql, ALL_TICKS)], before, self._step)
        sql.remove_gaps(**self._key)
        for gap in known:
            self.add(sql, gap)
        for ticks in new:
            self.add(sql, Gap(ticks, 0), new=True)


def read_gap(row: Row) -> Gap:
    first, last, detected, status = row
    return Gap(TickRange(first, last), detected, status)


def read_batch(row: Row) -> Batch:
    name, first, last, status, error, *missing = row
    return Batch(name, TickRange(first, last), status, error, MissingTicks.stored(*missing))
