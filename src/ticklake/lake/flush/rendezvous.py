"""Runs flushes of several tables in one Spark job, so that each batch file is read once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from ticklake.lake.errors import FlushFailed
from ticklake.lake.flush.job import run_job, run_tasks
from ticklake.lake.flush.shared_read import Common, Request, common_slices, index_together
from ticklake.lake.flush.task import Result, Spent, Work
from ticklake.lake.session import parallelism
from ticklake.lake.slices import Piece, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds that the first flush waits for the other tables. A table that is late is not waited for again.
_PATIENCE = 1.0


class _Member(NamedTuple):
    """One flush and its future results."""

    request: Request
    results: Future[list[Result]]


class Sharing:
    """Lets the indexers of one run share the reading. Each keeps its own group, flushes, commits and acks."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._expected: set[str] = set()
        self._round: list[_Member] = []
        self._runs: WeakValueDictionary[str, Sharing] = WeakValueDictionary()

    def of_run(self, run_id: str) -> Sharing:
        """Returns what the indexers of that run share. It lasts as long as one of them uses it."""
        with self._changed:
            found = self._runs.get(run_id)
            if found is None:
                found = self._runs[run_id] = Sharing(self._patience)
            return found

    def expect(self, table: str) -> None:
        """Makes flushes of the other tables wait a moment for this one."""
        with self._changed:
            self._expected.add(table)

    def run_job(self, spark: SparkSession, work: Work, pieces: Sequence[Piece], step: int) -> list[Result]:
        """Returns the same results as its own job, from a shared job if other tables flush in time."""
        member = _Member(Request(work, pieces), Future())
        with self._changed:
            members = self._round
            members.append(member)
            self._expected.add(work.name)
            self._changed.notify_all()
            if members[0] is member:
                self._wait_for_others(members)
                self._round = []
        if members[0] is member:
            _run(spark, members, step)
        return member.results.result()

    def _wait_for_others(self, members: Sequence[_Member]) -> None:
        def missing() -> set[str]:
            return self._expected - {member.request.work.name for member in members}

        self._changed.wait_for(lambda: not missing(), self._patience)
        self._expected -= missing()


def _run(spark: SparkSession, members: Sequence[_Member], step: int) -> None:
    try:
        for member, results in zip(
            members, _run_together(spark, [member.request for member in members], step), strict=True
        ):
            member.results.set_result(results)
    except Exception as error:
        for member in members:
            if isinstance(error, FlushFailed) and len(members) > 1:
                _run_alone(spark, member, step)
            else:
                member.results.set_exception(error)


def _run_alone(spark: SparkSession, member: _Member, step: int) -> None:
    """Runs one table alone. If a shared job dies, this finds the culprit."""
    try:
        member.results.set_result(run_job(spark, member.request.work, member.request.pieces, step))
    except Exception as error:
        member.results.set_exception(error)


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
