"""Looks at a run again and again while others work on it: as `verify`, as `status` and `top`, and as the pages do.

What it is told is compared with the table's own rows, read before and after: rows only grow, so a figure lies between
the two. Nothing is compared across an act of an operator. It must never be told "complete" while rows are missing, nor
get an error that the product has no words for.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError
from truth import indexed

from ticklake import Database
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Coverage, Verdict
from ticklake.errors import TickLakeError
from ticklake.insights import Places
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.presence import Presence
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.web.feeds.survey import surveyed
from ticklake.web.site import Site


@dataclass(frozen=True)
class Onlooker:
    """`ticks` is how many the whole run has; `root/go` is touched whenever an operator has ended his act."""

    root: Path
    url: str
    run_id: str
    table: str
    ticks: int

    @staticmethod
    def journal(root: Path) -> list[dict[str, Any]]:
        """Every look there was: what it was, and what was `wrong` with it."""
        file = root / "looks"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@dataclass(frozen=True)
class State:
    """The table itself. `rows` is None if nothing can be read; `steady` tells apart what operators have done."""

    steady: int | None
    rows: int | None = None
    ticks: frozenset[int] = field(default_factory=frozenset)


def watch(onlooker: Onlooker) -> None:
    """Until it is told to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with Database(onlooker.url) as database, (onlooker.root / "looks").open("a") as journal:
        looks = Looks(onlooker, database)
        while not stopped.is_set():
            for name, look in looks.kinds.items():
                journal.write(json.dumps({"look": name, "wrong": list(looks.wrong(name, look))}) + "\n")
                journal.flush()


class Looks:
    def __init__(self, onlooker: Onlooker, database: Database) -> None:
        self._who, self._database = onlooker, database
        self._storage, self._lake = Storage(onlooker.root / "storage"), onlooker.root / "lake"
        self._presence = Presence()
        self.kinds: dict[str, Callable[[State, Callable[[], State]], Iterator[str]]] = {
            "verify": self._verify, "status": self._status, "a page": self._page,
        }  # fmt: skip

    def wrong(self, name: str, look: Callable[[State, Callable[[], State]], Iterator[str]]) -> Iterator[str]:
        """What was wrong with one look. An error of ours is an answer too."""
        try:
            for complaint in look(self._state(), self._state):
                yield f"{name}: {complaint}"
        except TickLakeError:
            return
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"

    def _verify(self, before: State, now: Callable[[], State]) -> Iterator[str]:
        whole = Completeness(self._who.run_id, self._storage, Catalog(self._lake), self._database)
        found = whole.verify()
        after = now()
        yield from self._claims(found.verdict, before, after)
        for table in found.tables:
            if table.table == self._who.table and not table.unreadable:
                yield from self._between("rows", table.rows, before, after)
                yield from self._covered(table.coverage, table.step, before, after)
                if table.duplicated:
                    yield f"{table.duplicated} keys are there twice"

    def _status(self, before: State, now: Callable[[], State]) -> Iterator[str]:
        places = Places(self._storage, Catalog(self._lake), [self._database], self._presence)
        found = [places.report(self._who.run_id).tables, places.glance(self._who.run_id).tables]
        after = now()
        for table in (table for tables in found for table in tables if table.name == self._who.table):
            yield from self._between("rows", table.rows, before, after)

    def _page(self, before: State, now: Callable[[], State]) -> Iterator[str]:
        found = surveyed(self._who.run_id, self._storage, Site(self._storage, self._lake, [self._database]))
        after = now()
        yield from self._claims(found.verdict, before, after)
        for table in found.tables:
            if table.table != self._who.table or not _comparable(before, after):
                continue
            if not len(before.ticks) <= table.ticks <= len(after.ticks):
                yield f"{table.ticks} ticks of {len(before.ticks)} to {len(after.ticks)}"

    def _claims(self, verdict: Verdict, before: State, after: State) -> Iterator[str]:
        most = max(len(before.ticks), len(after.ticks))
        if verdict is Verdict.COMPLETE and most < self._who.ticks:
            yield f"complete, with {most} of {self._who.ticks} ticks"

    def _between(self, what: str, figure: int | None, before: State, after: State) -> Iterator[str]:
        if figure is None or before.rows is None or after.rows is None or not _comparable(before, after):
            return
        if not before.rows <= figure <= after.rows:
            yield f"{figure} {what} of {before.rows} to {after.rows}"

    def _covered(self, coverage: Coverage, step: int, before: State, after: State) -> Iterator[str]:
        if before.rows is None or after.rows is None or not _comparable(before, after):
            return
        if denied := before.ticks & {*_numbers(coverage.missing, step)}:
            yield f"tick {min(denied)} is missing, which was there"
        if made_up := {*_numbers(coverage.covered, step)} - after.ticks:
            yield f"tick {min(made_up)} is there, which was not"

    def _state(self) -> State:
        try:
            steady = (self._who.root / "go").stat().st_mtime_ns
        except FileNotFoundError:
            return State(None)
        with suppress(DeltaError, OSError):
            found = indexed(self._lake / self._who.run_id / self._who.table, "cell_id")
            return State(steady, found.total(), frozenset(tick for tick, _ in found))
        return State(steady)


def _comparable(before: State, after: State) -> bool:
    """Whether no operator has done anything in between."""
    return before.steady is not None and before.steady == after.steady


def _numbers(ranges: list[TickRange], step: int) -> Iterator[int]:
    return (tick for start, end in ranges for tick in range(start, end + 1, step))
