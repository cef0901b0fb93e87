"""A flush: one Spark job and one commit, so that each tick of its slices is in the table exactly once."""

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
from ticklake.lake.empty import EMPTY, Ticks, even_runs, joined, packed
from ticklake.lake.errors import DamagedTableFile, LakeUnreadable
from ticklake.lake.flush.job import Jobs, run_empty_job, run_job
from ticklake.lake.flush.task import Checked, Failed, Indexed, Result, Spent, Unavailable, Work
from ticklake.lake.ledger import Ledger
from ticklake.lake.slices import Piece, Slice, Source
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Flushed:
    """What became of a flush: which slices failed (by their place in it), and what the rest added.

    `proven` are the slices whose whole file, as far as it was to be indexed, is known to be good.
    """

    failures: dict[int, Failed]
    ticks: int
    present: int
    rows: int
    observed: dict[str, int]
    files: int
    bytes: int
    task_seconds: float
    version: int | None
    proven: frozenset[int] = frozenset()
    left: Mapping[int, Ticks] = field(default_factory=dict)
    """The ticks that the file of a proven slice has beside it and the table lacks, if they were looked at."""
    there: Mapping[int, Ticks] = field(default_factory=dict)
    """Of every slice that did not fail, the ticks that the table has now. Without a table: those of the file."""
    history: int = 0
    """Which history of the table this is part of: another number if the table was opened from the start since."""


class Flusher:
    """Turns slices into rows of one table. Any number of flushers may compete for a table.

    Flushes may be under way at the same time where their slices do not overlap: one commits while the other's job runs.
    """

    def __init__(
        self, spark: Callable[[], SparkSession], work: Work, ledger: Ledger | None, jobs: Jobs = run_job
    ) -> None:
        """`spark` is asked for every flush: a session may end, and its cluster may grow."""
        self.spark = spark
        self.jobs = jobs
        self.work = work
        self.ledger = ledger
        self.ledger_lock = threading.Lock()

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.work.name

    @property
    def step(self) -> int:
        """How far apart the ticks of the run are."""
        return self.work.world.sampling_interval if self.work.world else 1

    def check_spark(self) -> None:
        """Raises `SparkUnavailable` if an empty job fails: then no slice is to blame for a flush that does."""
        run_empty_job(self.spark())

    def check(self, sources: Sequence[Source]) -> list[Ticks | str]:
        """What a flush of all of it would say of each source, without writing any: its ticks, or why it is bad."""
        pieces = [Piece(number, Slice(source, source.ticks), check=True) for number, source in enumerate(sources)]
        results = run_job(self.spark(), self.work, pieces, self.step) if pieces else []
        for result in results:
            if isinstance(result, Unavailable):
                raise result.error
        failed, ticks = _failed(results), _checked(results)
        return [failed[number].error if number in failed else ticks[number] for number in range(len(sources))]

    def flush(self, slices: Sequence[Slice]) -> Flushed:
        """Indexes what the table lacks of these slices, which must not overlap. Durable when it returns."""
        return self.begin(slices).run()

    def begin(self, slices: Sequence[Slice]) -> Flush:
        """A flush that can be watched while another thread runs it."""
        return Flush(self, slices)


class Flush:
    """One flush: looks at what the table lacks, has it indexed, commits it."""

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
        self._torn: dict[int, Failed] = {}
        self._step = flusher.step

    def run(self) -> Flushed:
        """Durable when it returns."""
        try:
            return self._run()
        except (DeltaError, OSError) as error:
            raise LakeUnreadable(table=self._work.name, reason=one_line(error)) from error

    def _run(self) -> Flushed:
        while True:
            with self._lock:
                pieces, present = self._look()
            results = self._index(pieces)
            if self._tears(results):
                self._discard(results)
                continue
            try:
                with self._lock:
                    return self._commit(results, present)
            except CommitConflict:
                # Another indexer has written some of these very ticks: leave those out and do the rest again.
                log.debug("Flush %s lost its ticks to another writer, looking again", self._id)
                self._discard(results)

    def progress(self) -> int:
        """The bytes that its tasks have written: they grow while it works, and not while it hangs."""
        if self._ledger is None:
            # Nothing is written, so nothing can be written twice, and nothing shows how far it is.
            return next(self._asked)
        files = self._ledger.directory.glob(f"{self._id}-*.parquet") if self._id else ()
        with suppress(FileNotFoundError):
            return sum(file.stat().st_size for file in files)
        return -1

    def _look(self) -> tuple[list[Piece], int]:
        """What is left to do, and how many ticks the table has already."""
        if self._ledger is None:
            return [Piece(number, piece) for number, piece in enumerate(self._slices)], 0
        self._ledger.refresh()
        self._looked_at = self._ledger.loads, self._ledger.head
        present = self._present(self._ledger)
        self._present_ticks = np.array(present, np.int64)
        pieces: list[Piece] = []
        skipped = 0
        for number, whole in enumerate(self._slices):
            if number in self._damaged or number in self._torn:
                continue
            piece = whole.without(present)
            skipped += len(piece.skip)
            if not piece.done(self._step):
                pieces.append(Piece(number, piece))
                # Also what the table has: a file that is bad in any tick adds none.
                checks = [*whole.rest(), *piece.skipped()]
                pieces += [Piece(number, check, check=True) for check in checks]
        return pieces, skipped

    def _present(self, ledger: Ledger) -> list[int]:
        """What the table has of these slices. One that overlaps a damaged file fails, for it cannot be told."""
        self._damaged = {}
        found: list[int] = []
        try:
            found += ledger.present([piece.whole or piece.ticks for piece in self._slices]).tolist()
            return found
        except DamagedTableFile:
            log.debug("Flush %s meets a damaged file, looking at one slice after the other", self._id)
        for number, piece in enumerate(self._slices):
            try:
                found += ledger.present([piece.whole or piece.ticks]).tolist()
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

    def _tears(self, results: Sequence[Result]) -> bool:
        """Whether files hold rows of a slice that failed in another task. Then the job is run again without it.

        It costs a second job, but only for a bad slice that was cut: files of their own for what may fail would make
        every flush write more and smaller files.
        """
        failed = _failed(results)
        torn = any(isinstance(result, Indexed) and result.rows and result.number in failed for result in results)
        if torn:
            self._torn |= failed
        return torn

    def _commit(self, results: Sequence[Result], present: int) -> Flushed:
        failed = self._damaged | self._torn | _failed(results)
        indexed = [result for result in results if isinstance(result, Indexed) and result.number not in failed]
        files = [result for result in results if isinstance(result, ParquetFile)]
        # A tick without rows leaves its trace too: only then can a table prove that it lacks nothing.
        if self._ledger is not None and any(len(one.ticks) for one in indexed):
            self._add(self._ledger, files, indexed, _provenance(self._slices, indexed))
        elif self._ledger is not None:
            self._check_continued(self._ledger)
            # What is there may be the commit of somebody who died before it was on disk.
            self._ledger.sync()
        observed: dict[str, int] = {}
        for one in indexed:
            for name, count in one.observed.items():
                observed[name] = observed.get(name, 0) + count
        return Flushed(
            failures=failed,
            proven=frozenset(one.number for one in indexed),
            left=_checked(results),
            there={number: self._there(number, indexed) for number in range(len(self._slices)) if number not in failed},
            ticks=sum(len(one.ticks) for one in indexed),
            present=present,
            rows=sum(one.rows for one in indexed),
            observed=observed,
            files=len(files),
            bytes=sum(file.size for file in files),
            task_seconds=sum(result.seconds for result in results if isinstance(result, Spent)),
            version=self._ledger.version if self._ledger else None,
            history=self._looked_at[0] if self._looked_at else 0,
        )

    def _there(self, number: int, indexed: Sequence[Indexed]) -> Ticks:
        ticks = self._slices[number].ticks
        before = self._present_ticks[(self._present_ticks >= ticks.start) & (self._present_ticks <= ticks.end)]
        return joined([before, *(one.ticks for one in indexed if one.number == number)])

    def _add(
        self, ledger: Ledger, files: Sequence[ParquetFile], indexed: Sequence[Indexed], provenance: dict[str, str]
    ) -> None:
        """Commits; where another writer was faster, commits again unless it wrote any of the same ticks."""
        ticks = np.concatenate([one.ticks for one in indexed])
        while True:
            # The flush beside this one may have moved the ledger on, over commits of others that nobody compared.
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
        """The table must still be the one that was looked at, with or without more commits.

        Otherwise it was made anew, so that the files of this flush are elsewhere, or commits were set aside, so that
        ticks which were there are missing.
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
    """Where the rows of a commit came from, for `DESCRIBE HISTORY`: the very ticks that it adds, and no others."""
    added: dict[int, list[Ticks]] = {}
    for one in indexed:
        added.setdefault(one.number, []).append(one.ticks)
    sources = [
        {
            **slices[number].source.claim(first, last),
            "step": step,
            "message": slices[number].message_id,
            "claim": slices[number].claim_version,
        }
        for number, ticks in sorted(added.items())
        for first, last, step in even_runs(joined(ticks))
    ]
    empty = joined(one.empty for one in indexed)
    return {SOURCES: json.dumps(sources)} | ({EMPTY: packed(empty)} if len(empty) else {})


def _ranges(ticks: Ticks, step: int) -> list[TickRange]:
    """The stretches without a hole that ticks lie in: what competitors wrote in between is not looked at."""
    ascending = np.sort(ticks)
    holes = np.flatnonzero(np.diff(ascending) > step)
    starts, ends = np.append(0, holes + 1), np.append(holes, len(ascending) - 1)
    return [TickRange(int(ascending[start]), int(ascending[end])) for start, end in zip(starts, ends, strict=True)]
