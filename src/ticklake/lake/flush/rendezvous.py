"""Flushes of several tables meet in one Spark job, so that each batch file is read once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from ticklake.lake.errors import FlushFailed
from ticklake.lake.flush.job import run_job, run_tasks
from ticklake.lake.flush.shared_read import Common, Request, common_slices, index_together
from ticklake.lake.flush.task import Result, Spent, Work
from ticklake.lake.session import parallelism
from ticklake.lake.slices import Piece, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For so long the first flush waits for those of the other tables. One that has not come is not waited for again.
_PATIENCE = 1.0


class _Guest(NamedTuple):
    """One flush that waits for its results."""

    request: Request
    results: Future[list[Result]]


class Sharing:
    """What indexers of one run share: reading. Each keeps its own group, flushes, commits and acks."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._expected: set[str] = set()
        self._meeting: list[_Guest] = []

    def expect(self, table: str) -> None:
        """Flushes of the other tables wait a moment for those of this one."""
        with self._changed:
            self._expected.add(table)

    def run_job(self, spark: SparkSession, work: Work, pieces: Sequence[Piece], step: int) -> list[Result]:
        """The same as a job of its own would give, out of a job with others where any come in time."""
        guest = _Guest(Request(work, pieces), Future())
        with self._changed:
            meeting = self._meeting
            meeting.append(guest)
            self._expected.add(work.name)
            self._changed.notify_all()
            if meeting[0] is guest:
                self._wait_for_others(meeting)
                self._meeting = []
        if meeting[0] is guest:
            _run(spark, meeting, step)
        return guest.results.result()

    def _wait_for_others(self, meeting: Sequence[_Guest]) -> None:
        def missing() -> set[str]:
            return self._expected - {guest.request.work.name for guest in meeting}

        self._changed.wait_for(lambda: not missing(), self._patience)
        self._expected -= missing()


def _run(spark: SparkSession, guests: Sequence[_Guest], step: int) -> None:
    try:
        for guest, results in zip(guests, _run_together(spark, [guest.request for guest in guests], step), strict=True):
            guest.results.set_result(results)
    except Exception as error:
        for guest in guests:
            if isinstance(error, FlushFailed) and len(guests) > 1:
                _run_alone(spark, guest, step)
            else:
                guest.results.set_exception(error)


def _run_alone(spark: SparkSession, guest: _Guest, step: int) -> None:
    """A job that died is nobody's fault but one's: whose, a job of its own for each will tell."""
    try:
        guest.results.set_result(run_job(spark, guest.request.work, guest.request.pieces, step))
    except Exception as error:
        guest.results.set_exception(error)


def _run_together(spark: SparkSession, requests: Sequence[Request], step: int) -> list[list[Result]]:
    if len(requests) == 1:
        return [run_job(spark, *requests[0], step)]
    works = [request.work for request in requests]
    wanted = common_slices(requests)
    shares = [
        [Common(piece.slice, wanted[piece.number].wanted) for piece in dealt]
        for dealt in spread([one.slice for one in wanted], parallelism(spark), step)
    ]

    def act(number: int) -> list[tuple[int, Result]]:
        started = time.perf_counter()
        results = index_together(works, number, shares[number])
        spent = Spent((time.perf_counter() - started) / len(works))
        return [*results, *((place, spent) for place in range(len(works)))]

    results: list[list[Result]] = [[] for _ in requests]
    for place, result in run_tasks(spark, " and ".join(work.name for work in works), len(shares), act):
        results[place].append(result)
    return results
