"""A flush: one Spark job and one commit, so that each tick of its slices is in the table exactly once."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from ticklake import faults
from ticklake.errors import FlushFailed, LakeUnreadable, SparkUnavailable
from ticklake.lake import task
from ticklake.lake.durable import remove
from ticklake.lake.empty import EMPTY, joined, packed
from ticklake.lake.ledger import Ledger
from ticklake.lake.log import CommitConflict, one_line
from ticklake.lake.parquet import ParquetFile
from ticklake.lake.slices import Piece, Slice, spread
from ticklake.lake.spark import job_died, leave_if_gone, parallelism, reason_of, share_cores_fairly
from ticklake.lake.task import Failed, Indexed, Result, Unavailable, Work
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Flushed:
    """What became of a flush: which slices failed (by their place in it), and what the rest added."""

    failures: dict[int, Failed]
    ticks: int
    present: int
    rows: int
    observed: dict[str, int]
    files: int
    version: int | None


class Flusher:
    """Turns slices into rows of one table. One flush at a time; any number of flushers may compete for a table."""

    def __init__(self, spark: Callable[[], SparkSession], work: Work, ledger: Ledger | None) -> None:
        """`spark` is asked for every flush: a session may end, and its cluster may grow."""
        self._spark = spark
        self._work = work
        self._ledger = ledger
        self._flush_id = ""
        self._asked = itertools.count()
        self._step = work.world.sampling_interval if work.world else 1

    def flush(self, slices: Sequence[Slice]) -> Flushed:
        """Indexes what the table lacks of these slices, which must not overlap. Durable when it returns."""
        try:
            return self._flush(slices)
        except (DeltaError, OSError) as error:
            raise LakeUnreadable(table=self._work.name, reason=one_line(error)) from error

    def _flush(self, slices: Sequence[Slice]) -> Flushed:
        while True:
            pieces, present = self._look(slices)
            results = self._run(pieces)
            try:
                return self._commit(slices, results, present)
            except CommitConflict:
                # Another indexer has written some of these very ticks: leave those out and do the rest again.
                log.debug("Flush %s lost its ticks to another writer, looking again", self._flush_id)
                self._discard(results)

    def progress(self) -> int:
        """Changes while the tasks of the running flush write: what tells work from a hang."""
        if self._ledger is None:
            # Nothing is written, so nothing can be written twice, and nothing shows how far it is.
            return next(self._asked)
        files = self._ledger.directory.glob(f"{self._flush_id}-*.parquet")
        with suppress(FileNotFoundError):
            return sum(file.stat().st_size for file in files)
        return -1

    def _look(self, slices: Sequence[Slice]) -> tuple[list[Piece], int]:
        """What is left to do, and how many ticks the table has already."""
        pieces = [Piece(number, piece) for number, piece in enumerate(slices)]
        if self._ledger is None:
            return pieces, 0
        self._ledger.refresh()
        present = self._ledger.present([piece.ticks for piece in slices]).tolist()
        if not present:
            return pieces, 0
        left = [Piece(number, piece.without(present)) for number, piece in pieces]
        return [piece for piece in left if not piece.slice.done(self._step)], len(present)

    def _run(self, pieces: Sequence[Piece]) -> list[Result]:
        if not pieces:
            return []
        self._flush_id = uuid.uuid4().hex
        faults.reach("lake.flush.before_job")
        work = replace(self._work, flush_id=self._flush_id)
        spark = self._spark()
        shares = [
            [Piece(pieces[share.number].number, share.slice) for share in dealt]
            for dealt in spread([piece.slice for piece in pieces], parallelism(spark), self._step)
        ]
        results = _run_job(spark, work, shares)
        for result in results:
            if isinstance(result, Unavailable):
                self._discard(results)
                raise result.error
        return results

    def _commit(self, slices: Sequence[Slice], results: Sequence[Result], present: int) -> Flushed:
        indexed = [result for result in results if isinstance(result, Indexed)]
        failed = {result.number: result for result in results if isinstance(result, Failed)}
        files = [result for result in results if isinstance(result, ParquetFile)]
        # A tick without rows leaves its trace too: only then can a table prove that it lacks nothing.
        if self._ledger is not None and any(len(one.ticks) for one in indexed):
            self._add(self._ledger, files, indexed, _provenance(slices, indexed))
        elif self._ledger is not None:
            # What is there may be the commit of somebody who died before it was on disk.
            self._ledger.sync()
        observed: dict[str, int] = {}
        for one in indexed:
            for name, count in one.observed.items():
                observed[name] = observed.get(name, 0) + count
        return Flushed(
            failures=failed,
            ticks=sum(len(one.ticks) for one in indexed),
            present=present,
            rows=sum(one.rows for one in indexed),
            observed=observed,
            files=len(files),
            version=self._ledger.version if self._ledger else None,
        )

    def _add(
        self, ledger: Ledger, files: Sequence[ParquetFile], indexed: Sequence[Indexed], provenance: dict[str, str]
    ) -> None:
        """Commits; where another writer was faster, commits again unless it wrote any of the same ticks."""
        ticks = np.concatenate([one.ticks for one in indexed])
        written = _ranges(ticks)
        while True:
            try:
                return ledger.commit(files, provenance)
            except CommitConflict:
                ledger.refresh()
                if files and ledger.has(files[0]):
                    # It was ours: some file systems report a conflict after the fact.
                    return ledger.sync()
                if np.isin(ledger.present(written), ticks).any():
                    raise

    def _discard(self, results: Sequence[Result]) -> None:
        if self._ledger is not None:
            for result in results:
                if isinstance(result, ParquetFile):
                    remove(self._ledger.directory / result.path)


def _run_job(spark: SparkSession, work: Work, shares: Sequence[Sequence[Piece]]) -> list[Result]:
    """One task a share. Slices travel in the closure and results come back as rows: no shuffle, nothing in the JVM."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                results = task.index(work, number, shares[number])
                yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result) for result in results]})

    count = len(shares)
    try:
        share_cores_fairly(spark, work.name)
        rows = spark.range(0, count, 1, count).mapInArrow(run, "result binary").collect()
    except Exception as error:
        if job_died(error):
            raise FlushFailed(table=work.name, reason=reason_of(error)) from error
        leave_if_gone(spark)
        raise SparkUnavailable(reason=reason_of(error)) from error
    # What comes back was made by our own tasks a moment ago.
    return [pickle.loads(bytes(row["result"])) for row in rows]  # noqa: S301


def _provenance(slices: Sequence[Slice], indexed: Sequence[Indexed]) -> dict[str, str]:
    """Where the rows of a commit came from, for `DESCRIBE HISTORY`."""
    sources = [
        {
            "file": slices[number].file.key,
            "ticks": list(slices[number].ticks),
            "message": slices[number].message_id,
            "claim": slices[number].claim_version,
        }
        for number in sorted({one.number for one in indexed})
    ]
    empty = joined(one.empty for one in indexed)
    return {"ticklake.sources": json.dumps(sources)} | ({EMPTY: packed(empty)} if len(empty) else {})


def _ranges(ticks: np.typing.NDArray[np.int64]) -> list[TickRange]:
    return [TickRange(int(ticks.min()), int(ticks.max()))] if len(ticks) else []
