"""A flush: one Spark job and one commit. Afterwards each tick of its slices is in the table exactly once."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ticklake import faults
from ticklake.lake.delta import SOURCES, CommitConflict, DeltaError, Head, ParquetFile, one_line
from ticklake.lake.empty import EMPTY, Ticks, even_sequences, joined, packed
from ticklake.lake.errors import DamagedTableFile, LakeUnreadable
from ticklake.lake.flush.job import Jobs, run_empty_job, run_job
from ticklake.lake.flush.task import Checked, Failed, Indexed, Result, Spent, Unavailable, Work
from ticklake.lake.ledger import Ledger
from ticklake.lake.slices import Piece, Slice, Source
from ticklake.storage import BatchFile, stretches_of
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Flushed:
    """The result of a flush: the slices that failed (by position), and what the others added.

    `proven` are the slices for which all ticks of the file that must be indexed were valid.
    """

    failures: dict[int, Failed]
    ticks: int
    ticks_present: int
    rows: int
    observed: dict[str, int]
    files: int
    bytes: int
    task_seconds: float
    version: int | None
    proven: frozenset[int] = frozenset()
    remaining: Mapping[int, Ticks] = field(default_factory=dict)
    """For slices with checks: the ticks of the file that were checked but not indexed."""
    present: Mapping[int, Ticks] = field(default_factory=dict)
    """For every slice that did not fail: the ticks that the table has now. Without a table: those of the file."""
    history: int = 0
    """The number of the table's history. It changes when the whole table is read again."""


class Flusher:
    """Turns slices into rows of one table. Several flushers may write to the same table.

    Flushes can overlap in time if their slices do not overlap: one commits while the job of the other runs.
    """

    def __init__(
        self, spark: Callable[[], SparkSession], work: Work, ledger: Ledger | None, jobs: Jobs = run_job
    ) -> None:
        """`spark` is called for every flush, because a session may end and its cluster may grow."""
        self.spark = spark
        self.jobs = jobs
        self.work = work
        self.ledger = ledger
        self.ledger_lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name in error messages."""
        return self.work.name

    @property
    def step(self) -> int:
        """The sampling interval of the run."""
        return self.work.world.sampling_interval if self.work.world else 1

    def check_spark(self) -> None:
        """Raises `SparkUnavailable` if an empty job fails. Then no slice caused the failure of a flush."""
        run_empty_job(self.spark())

    def check(self, sources: Sequence[Source]) -> list[Ticks | str]:
        """Checks whole sources without writing. Returns for each its ticks, or the reason why it cannot be indexed."""
        pieces = [Piece(number, Slice(source, source.ticks), check=True) for number, source in enumerate(sources)]
        results = run_job(self.spark(), self.work, pieces, self.step) if pieces else []
        for result in results:
            if isinstance(result, Unavailable):
                raise result.error
        failed, ticks = _failed(results), _checked(results)
        return [failed[number].error if number in failed else ticks[number] for number in range(len(sources))]

    def flush(self, slices: Sequence[Slice]) -> Flushed:
        """Indexes the ticks of these slices that the table lacks. Slices must not overlap. Durable on return."""
        return self.begin(slices).run()

    def begin(self, slices: Sequence[Slice]) -> Flush:
        """Returns a flush whose progress can be watched while another thread runs it."""
        return Flush(self, slices)


class Flush:
    """One flush: finds the ticks that the table lacks, indexes them, and commits them."""

    def __init__(self, flusher: Flusher, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._spark, self._jobs = flusher.spark, flusher.jobs
        self._work, self._ledger = flusher.work, flusher.ledger
        self._lock = flusher.ledger_lock
        self._id = ""
        self._looked_at: tuple[int, Head] | None = None
        self._asked = itertools.count()
        self._present_ticks = np.empty(0, np.int64)
        self._damaged: dict[int, Failed] = {}
        self._partial: dict[int, Failed] = {}
        self._step = flusher.step

    def run(self) -> Flushed:
        """Runs the flush. Durable on return."""
        try:
            return self._run()
        except (DeltaError, OSError) as error:
            raise LakeUnreadable(table=self._work.name, reason=one_line(error)) from error

    def _run(self) -> Flushed:
        while True:
            with self._lock:
                pieces, ticks_present = self._look()
            results = self._index(pieces)
            if self._has_partial_slices(results):
                self._discard(results)
                continue
            try:
                with self._lock:
                    return self._commit(results, ticks_present)
            except CommitConflict:
                # Another indexer has written some of these ticks. Run again without them.
                log.debug("Another writer has added ticks of flush %s; running it again without them", self._id)
                self._discard(results)

    def progress(self) -> int:
        """Returns the bytes that its tasks have written. They grow while it works, but not if it hangs."""
        if self._ledger is None:
            # Nothing is written, so the progress is unknown. Report some, because running twice does no harm.
            return next(self._asked)
        with suppress(FileNotFoundError):
            return self._ledger.location.bytes_of(f"{self._id}-") if self._id else 0
        return -1

    def _look(self) -> tuple[list[Piece], int]:
        """Returns the pieces to index, and the number of ticks that the table already has."""
        if self._ledger is None:
            return [Piece(number, slice_) for number, slice_ in enumerate(self._slices)], 0
        self._ledger.refresh()
        self._looked_at = self._ledger.loads, self._ledger.head
        present = self._present(self._ledger)
        self._present_ticks = np.array(present, np.int64)
        pieces: list[Piece] = []
        skipped = 0
        for number, whole in enumerate(self._slices):
            if number in self._damaged or number in self._partial:
                continue
            slice_ = whole.without(present)
            skipped += len(slice_.skip)
            if not self._is_done(slice_):
                pieces.append(Piece(number, slice_))
                # Check also ticks that the table has: a file with any invalid tick adds nothing.
                checks = [*whole.rest(), *slice_.skipped()]
                pieces += [Piece(number, check, check=True) for check in checks]
        return pieces, skipped

    def _is_done(self, slice_: Slice) -> bool:
        """Returns whether the table has every tick of a slice. If it has some, the file says which ticks these are."""
        storage, file = self._work.storage, slice_.source
        if not slice_.skip or storage is None or not isinstance(file, BatchFile):
            return slice_.done(self._step)
        return slice_.done(self._step, stretches_of(storage, file, self._step))

    def _present(self, ledger: Ledger) -> list[int]:
        """Returns the ticks of these slices that the table has. A slice that overlaps a damaged file fails."""
        self._damaged = {}
        found: list[int] = []
        try:
            found += ledger.present([slice_.whole or slice_.ticks for slice_ in self._slices]).tolist()
            return found
        except DamagedTableFile:
            log.debug("Flush %s found a damaged file; checking one slice after the other", self._id)
        for number, slice_ in enumerate(self._slices):
            try:
                found += ledger.present([slice_.whole or slice_.ticks]).tolist()
            except DamagedTableFile as error:
                self._damaged[number] = Failed(number, str(error), "")
        return found

    def _index(self, pieces: Sequence[Piece]) -> list[Result]:
        if not pieces:
            return []
        self._id = uuid.uuid4().hex
        faults.reach("lake.flush.before_job")
        results = self._jobs(self._spark(), replace(self._work, flush_id=self._id), pieces, self._step)
        for result in results:
            if isinstance(result, Unavailable):
                self._discard(results)
                raise result.error
        return results

    def _has_partial_slices(self, results: Sequence[Result]) -> bool:
        """Returns True if files hold rows of a slice that failed in another task. Then the job runs again without it.

        The second job is needed only for an invalid slice that was divided. The alternative, separate files for each
        slice, would make every flush write more and smaller files.
        """
        failed = _failed(results)
        partial = any(isinstance(result, Indexed) and result.rows and result.number in failed for result in results)
        if partial:
            self._partial |= failed
        return partial

    def _commit(self, results: Sequence[Result], ticks_present: int) -> Flushed:
        failed = self._damaged | self._partial | _failed(results)
        indexed = [result for result in results if isinstance(result, Indexed) and result.number not in failed]
        files = [result for result in results if isinstance(result, ParquetFile)]
        # Ticks without rows are recorded too. Otherwise they would look like missing ticks.
        if self._ledger is not None and any(len(one.ticks) for one in indexed):
            self._add(self._ledger, files, indexed, _provenance(self._slices, indexed))
        elif self._ledger is not None:
            self._check_continued(self._ledger)
            # The writer of an existing commit may have died before it was on disk.
            self._ledger.sync()
        observed: dict[str, int] = {}
        for one in indexed:
            for name, count in one.observed.items():
                observed[name] = observed.get(name, 0) + count
        return Flushed(
            failures=failed,
            proven=frozenset(one.number for one in indexed),
            remaining=_checked(results),
            present={n: self._present_after(n, indexed) for n in range(len(self._slices)) if n not in failed},
            ticks=sum(len(one.ticks) for one in indexed),
            ticks_present=ticks_present,
            rows=sum(one.rows for one in indexed),
            observed=observed,
            files=len(files),
            bytes=sum(file.size for file in files),
            task_seconds=sum(result.seconds for result in results if isinstance(result, Spent)),
            version=self._ledger.version if self._ledger else None,
            history=self._looked_at[0] if self._looked_at else 0,
        )

    def _present_after(self, number: int, indexed: Sequence[Indexed]) -> Ticks:
        ticks = self._slices[number].ticks
        before = self._present_ticks[(self._present_ticks >= ticks.start) & (self._present_ticks <= ticks.end)]
        return joined([before, *(one.ticks for one in indexed if one.number == number)])

    def _add(
        self, ledger: Ledger, files: Sequence[ParquetFile], indexed: Sequence[Indexed], provenance: dict[str, str]
    ) -> None:
        """Commits. If another writer was faster, tries again unless it wrote one of the same ticks."""
        ticks = np.concatenate([one.ticks for one in indexed])
        while True:
            # A parallel flush may have refreshed the ledger. Its new commits were not compared with this flush yet.
            if (ledger.loads, ledger.head) != self._looked_at:
                self._check_continued(ledger)
                self._looked_at = ledger.loads, ledger.head
                if np.isin(ledger.present(_ranges(ticks, self._step)), ticks).any():
                    raise CommitConflict
            try:
                return ledger.commit(files, provenance)
            except CommitConflict:
                ledger.refresh()

    def _check_continued(self, ledger: Ledger) -> None:
        """Raises CommitConflict if the history of the table was replaced. More commits are allowed.

        A table that was created again does not have the files of this flush. A table whose commits were set aside
        lacks ticks that it had.
        """
        if self._looked_at is None or ledger.loads != self._looked_at[0]:
            raise CommitConflict

    def _discard(self, results: Sequence[Result]) -> None:
        if self._ledger is None:
            return
        with self._lock:
            self._ledger.discard([result for result in results if isinstance(result, ParquetFile)])


def _failed(results: Sequence[Result]) -> dict[int, Failed]:
    return {result.number: result for result in results if isinstance(result, Failed)}


def _checked(results: Sequence[Result]) -> dict[int, Ticks]:
    checked: dict[int, list[Ticks]] = {}
    for result in results:
        if isinstance(result, Checked):
            checked.setdefault(result.number, []).append(result.ticks)
    return {number: joined(ticks) for number, ticks in checked.items()}


def _provenance(slices: Sequence[Slice], indexed: Sequence[Indexed]) -> dict[str, str]:
    """Returns the sources of a commit, for `DESCRIBE HISTORY`: exactly the ticks that it adds."""
    added: dict[int, list[Ticks]] = {}
    formats = {one.number: one.format for one in indexed if one.format}
    for one in indexed:
        added.setdefault(one.number, []).append(one.ticks)
    sources = [
        {
            **slices[number].source.provenance(first, last),
            "step": step,
            **({"format": formats[number]} if formats.get(number) else {}),
            "message": slices[number].message_id,
            "claim": slices[number].claim_version,
        }
        for number, ticks in sorted(added.items())
        for first, last, step in even_sequences(joined(ticks))
    ]
    empty = joined(one.empty for one in indexed)
    return {SOURCES: json.dumps(sources)} | ({EMPTY: packed(empty)} if len(empty) else {})


def _ranges(ticks: Ticks, step: int) -> list[TickRange]:
    """Returns ticks as ranges without gaps, so that ticks of other writers in between are not read."""
    ascending = np.sort(ticks)
    holes = np.flatnonzero(np.diff(ascending) > step)
    starts, ends = np.append(0, holes + 1), np.append(holes, len(ascending) - 1)
    return [TickRange(int(ascending[start]), int(ascending[end])) for start, end in zip(starts, ends, strict=True)]
