"""Writers, compaction, whoever opens the table, and operators, in any order of their steps: no tick is lost or doubled.

The real code on real files. Every actor is a thread that stops at every fault point and at every lock that is taken;
Hypothesis says whose turn it is.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ticklake import disk, faults
from ticklake.errors import LakeUnreadable, TableReplaced, TickLakeError
from ticklake.lake.delta import Location, log
from ticklake.lake.delta.log import CommitConflict
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))

MOST_ROUNDS = 400


class Actor:
    """A thread that goes one step at a time."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = self.waits = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[act], daemon=True)
        self._thread.start()

    def step(self) -> None:
        self._turn.release()
        assert self._done.acquire(timeout=60), "an actor hangs"
        if self.error is not None:
            raise self.error

    def pause(self, *, waits: bool = False) -> None:
        self.waits = waits
        self._done.release()
        self._turn.acquire()

    def is_this(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self, act: Callable[[], None]) -> None:
        self._turn.acquire()
        try:
            act()
        except BaseException as error:
            self.error = error
        self.ended = True
        self._done.release()


class Stage:
    """A table, its actors, and what each of them was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "cells"
        self.actors: list[Actor] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.taken: set[int] = set()
        self.moved = 0
        self.gone: dict[str, int] = {}
        self.refusal: Exception | None = None

    # What actors do

    def index(self, ticks: range) -> None:
        """As a flush does: looks, writes, commits, looks again."""
        ledger = self._ledger()
        for tick in ticks:
            ledger = self._index(ledger, tick)

    def _index(self, ledger: Ledger, tick: int) -> Ledger:
        """Returns the ledger to go on with: as an indexer that is started again, with the table that is there."""
        while True:
            try:
                ledger.refresh()
                if len(ledger.present([TickRange(tick, tick)])):
                    ledger.sync()
                    break
                file = self._write(tick)
                try:
                    ledger.commit([file], {})
                    break
                except BaseException:
                    ledger.discard([file])
                    raise
            except (LakeUnreadable, TableReplaced):
                ledger = self._ledger()
            except (CommitConflict, OSError, TickLakeError) as error:
                self.refusal = error
                self.current().pause()
        self.acknowledged.append((ledger.id, tick))
        return ledger

    def compact(self) -> None:
        try:
            for _ in Compaction(self._ledger(), BY_HAND).steps():
                pass
        except (OSError, TickLakeError):
            return

    def checkpoint(self) -> None:
        try:
            self._ledger().checkpoint()
        except (DeltaError, OSError, TickLakeError):
            # A commit was torn in the middle of it.
            return

    def vacuum(self) -> None:
        try:
            it = Vacuum(Location.of(self.directory), self.directory.parent.name, 0, force=True)
            garbage = [one for one in it.find() if one.file.path.endswith(".parquet") and "/" not in one.file.path]
            list(it.remove(garbage))
        except (OSError, TickLakeError):
            return

    # What operators do, in one step

    def move_away(self) -> None:
        if self.directory.exists():
            self.moved += 1
            self.gone |= {self._id(): len(self.acknowledged)}
            self.directory.rename(self.directory.with_name(f"away-{self.moved}"))

    def tear(self) -> None:
        """Another engine has begun a commit, and the power went: one of ours is never torn."""
        found = sorted((self.directory / "_delta_log").glob("*.json"))
        if found:
            begun = found[-1].with_name(f"{int(found[-1].stem) + 1:020d}.json")
            begun.write_text('{"commitInfo":{"operation":"WR')
            os.utime(begun, (0, 0))

    def take(self) -> None:
        if (newest := self._newest()) is not None:
            newest.rename(newest.with_name(f"taken-{uuid4().hex}"))

    def _id(self) -> str:
        first = self.directory / "_delta_log" / f"{0:020d}.json"
        lines = first.read_bytes().splitlines() if first.exists() else []
        return next((str(parsed["metaData"]["id"]) for parsed in map(_parsed, lines) if "metaData" in parsed), "")

    def _newest(self) -> Path | None:
        """The newest commit; its ticks may be missing from now on."""
        found = sorted((self.directory / "_delta_log").glob("*.json"))
        if len(found) < 2 or list(found[0].parent.glob("*.checkpoint.parquet")):
            return None
        for line in found[-1].read_bytes().splitlines():
            add = _parsed(line).get("add")
            path = self.directory / add["path"] if add else None
            if path is not None and path.exists():
                self.taken |= set(pq.read_table(path).column("tick_number").to_pylist())
        return found[-1]

    # How they come together

    def current(self) -> Actor:
        return next(actor for actor in self.actors if actor.is_this())

    def reach(self, point: str) -> None:
        for actor in self.actors:
            if actor.is_this():
                actor.pause()

    def lock(self, file: Any, kind: int) -> None:
        for actor in self.actors:
            while actor.is_this():
                try:
                    return fcntl.flock(file, kind | fcntl.LOCK_NB)
                except BlockingIOError:
                    actor.pause(waits=True)
        return fcntl.flock(file, kind)

    def play(self, turns: list[int], operators: list[tuple[int, str]]) -> None:
        acts = dict(operators)
        for number, turn in enumerate(turns):
            if number in acts:
                getattr(self, acts[number])()
            living = [actor for actor in self.actors if not actor.ended]
            if living:
                living[turn % len(living)].step()
        for _ in range(MOST_ROUNDS):
            for actor in (actor for actor in self.actors if not actor.ended):
                actor.step()
        assert all(actor.ended for actor in self.actors), f"they go on for ever: {self.refusal}"

    def _ledger(self) -> Ledger:
        while True:
            try:
                return Ledger(Location.of(self.directory), TABLE)
            except (OSError, TickLakeError) as error:
                self.refusal = error
                self.current().pause()

    def _write(self, tick: int) -> ParquetFile:
        writer = ParquetFileWriter(Location.of(self.directory), f"{uuid4().hex}.parquet", TABLE)
        writer.append(pa.RecordBatch.from_arrays([[tick], [0]], schema=SCHEMA))
        file = writer.close()
        assert file is not None
        return file

    # What must hold in the end

    def check(self) -> None:
        ledger = Ledger(Location.of(self.directory), TABLE)
        ledger.checkpoint()
        for table in self.directory.parent.iterdir():
            if any((table / "_delta_log").glob("*.json")):
                if table != self.directory:
                    Ledger(Location.of(table), TABLE)
                counts = Counter(DeltaTable(table).to_pyarrow_table().column("tick_number").to_pylist())
                assert not [tick for tick, count in counts.items() if count > 1], f"doubled in {table}"
        there = set(DeltaTable(self.directory).to_pyarrow_table().column("tick_number").to_pylist())
        promised = {tick for table, tick in self.acknowledged if table == ledger.id}
        assert promised - self.taken <= there, "acknowledged and lost"
        for number, (table, tick) in enumerate(self.acknowledged):
            assert number < self.gone.get(table, number + 1), f"{tick} acknowledged for a table that was gone"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


@contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="ticklake-stage-") as directory, pytest.MonkeyPatch.context() as patch:
        made = Stage(Path(directory))
        made.directory.mkdir()
        for tick in (0, 1):
            start = Ledger(Location.of(made.directory), TABLE)
            start.commit([made._write(tick)], {})
        patch.setattr(faults, "reach", made.reach)
        patch.setattr(disk, "fcntl", Locks(made.lock))
        patch.setattr(log, "_CHECKPOINT_EVERY", 1000)
        # The power cuts and the repairs that operators try are told; here they are many.
        logging.getLogger("ticklake").setLevel(logging.ERROR)
        try:
            yield made
        finally:
            logging.getLogger("ticklake").setLevel(logging.NOTSET)


class Locks:
    """The part of `fcntl` that locks use."""

    LOCK_SH, LOCK_EX, LOCK_NB = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB

    def __init__(self, flock: Callable[[Any, int], None]) -> None:
        self.flock = flock


TURNS = st.lists(st.integers(0, 5), min_size=20, max_size=160)
OPERATORS = st.lists(st.tuples(st.integers(0, 100), st.sampled_from(["move_away", "tear", "take"])), max_size=3)
OTHERS = st.lists(st.sampled_from(["compact", "vacuum", "checkpoint"]), max_size=2)


def play(turns: list[int], operators: list[tuple[int, str]], others: list[str]) -> None:
    with stage() as made:
        made.actors += [Actor(lambda: made.index(range(2, 5))), Actor(lambda: made.index(range(4, 7)))]
        made.actors += [Actor(getattr(made, name)) for name in others]
        made.play(turns, operators)
        made.check()


WITHDRAWN = [0] * 12 + [1] * 4 + [2] * 2 + [1] * 9 + [0] + [1] * 4 + [0] + [1] * 2 + [0] * 12
"""A commit is withdrawn because its predecessor was taken, and meanwhile a torn one has appeared after it."""
WITHDRAWN_LATER = [0] * 13 + [1] * 14 + [0] * 6
"""The torn one appears when others had been set aside."""

WITHDRAWN_LAST = [int(turn) for turn in "001035002201522000320214355012154051251104313033003042502232452323252001224"]
"""The torn one appears while the withdrawn commit itself is set aside."""


@settings(max_examples=settings().max_examples // 4)
@given(TURNS, OPERATORS, OTHERS)
@example(WITHDRAWN_LAST, [(32, "take"), (42, "tear")], ["checkpoint", "checkpoint"])
@example(WITHDRAWN, [(10, "take"), (28, "tear")], ["compact"])
@example(WITHDRAWN_LATER, [(23, "take"), (27, "tear")], [])
def test_in_any_order_of_steps_no_tick_is_lost_or_doubled(
    turns: list[int], operators: list[tuple[int, str]], others: list[str]
) -> None:
    play(turns, operators, others)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=1500, deadline=None)
@given(TURNS, OPERATORS, OTHERS)
def test_in_very_many_orders_of_steps_no_tick_is_lost_or_doubled(
    turns: list[int], operators: list[tuple[int, str]], others: list[str]
) -> None:
    play(turns, operators, others)
