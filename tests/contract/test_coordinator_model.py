"""Files appear in any order, overlap, lie about their ticks and fail; indexers poll, finish, give back and die.

The sampling interval in the metadata is corrected, and indexers that still use the old one change nothing.

Whatever happens: every good file is completed once, and the gaps are the ticks that a brute-force set says.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from ticklake import RunCompleted
from ticklake.coordination import NO_TABLE, End, recorded_end
from ticklake.coordination.claims import Batch, Claim
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.errors import SamplingIntervalCorrected
from ticklake.coordination.gaps import MissingTicks
from ticklake.indexers.batches import Delivery
from ticklake.indexers.coordinated import CoordinatedBatches
from ticklake.lives import bounds_of, life_of
from ticklake.monitoring import Monitor
from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch
from ticklake.ticks import TickRange, on_grid, ranges_of, subtract
from ticklake.topics import Run

LEASE = 60.0
GIVE_UP_MS = 100_000
INDEXERS = 3
UNIT = 60
# The names of the files fit all of these sampling intervals except the last.
STEPS = [10, 20, 30, 60, 70]
MISFIT = 70
LAST = (2**63 - 1) // UNIT * UNIT
# The ticks that the model looks at: every one that a modest name can promise, and the last there can be.
TICKS = [*range(0, 30 * UNIT, 10), LAST]
_NUMBERS = itertools.count()

modest = st.tuples(st.integers(0, 15), st.integers(0, 8)).map(lambda pair: (pair[0] * UNIT, sum(pair) * UNIT))
hostile = st.integers(0, 15).map(lambda start: (start * UNIT, LAST))


class Fleet(RuleBasedStateMachine):
    """Some indexers over one storage. What a file holds is what its name promises, unless it is bad or lacks ticks."""

    deliveries = Bundle("deliveries")
    database_run: Run
    root: Path
    pass_seconds: Callable[[float], None]

    def __init__(self) -> None:
        super().__init__()
        number = next(_NUMBERS)
        self.run = self.database_run
        self.indexer_class = f"Indexer{number}"
        self.storage = Storage(self.root / str(number), compress=False)
        self.folder = self.root / str(number) / self.run.id
        self.folder.mkdir(parents=True)
        self.now = 0.0
        self.looks = 0.0
        type(self).pass_seconds(0)
        self.bad: set[str] = set()
        self.lacks: dict[str, set[int]] = {}
        self.completed: Counter[str] = Counter()
        self.reopened: Counter[str] = Counter()
        self.step = 10
        self.coordinator = self.new_coordinator()
        self.indexers = [self.new_indexer() for _ in range(INDEXERS)]

    def new_coordinator(self) -> Coordinator:
        return Coordinator(self.run, self.indexer_class, step=self.step, lease=LEASE)

    def new_indexer(self) -> CoordinatedBatches:
        indexer = CoordinatedBatches(
            self.new_coordinator(), self.storage, self.run.id, Monitor("i"), gap_warning_timeout_ms=GIVE_UP_MS
        )
        indexer._watch = Watch(self.storage, self.run.id, self.next_look)
        return indexer

    def next_look(self) -> float:
        """A clock that runs so fast that every look lists everything."""
        self.looks += 1000
        return self.looks

    @rule(files=st.lists(st.tuples(st.one_of(*[modest] * 9, hostile), st.sampled_from(["", "a"])), max_size=3))
    def good_files_appear(self, files: list[tuple[tuple[int, int], str]]) -> None:
        for ticks, copy in files:
            self._appear(ticks, copy, bad=False)

    @rule(ticks=modest, copy=st.sampled_from(["", "a"]))
    def a_bad_file_appears(self, ticks: tuple[int, int], copy: str) -> None:
        self._appear(ticks, copy, bad=True)

    def _appear(self, ticks: tuple[int, int], copy: str, bad: bool) -> None:
        name = f"batch_{ticks[0]:010d}_{ticks[1]:010d}.pb"
        (self.folder / copy).mkdir(exist_ok=True)
        path = self.folder / copy / name
        if not path.exists():
            path.touch()
            key = f"{self.run.id}/{copy}/{name}" if copy else f"{self.run.id}/{name}"
            self.bad |= {key} if bad or ticks[1] == LAST else set()

    @rule(target=deliveries, who=st.integers(0, INDEXERS - 1), limit=st.integers(1, 4))
    def poll(self, who: int, limit: int) -> object:
        return multiple(*((self.indexers[who], one) for one in self.indexers[who].poll(limit, 0)))

    @rule(who=st.integers(0, INDEXERS - 1), lacking=st.lists(st.sampled_from(TICKS), max_size=9))
    def work(self, who: int, lacking: Sequence[int] = ()) -> None:
        for delivery in self.indexers[who].poll(2, 0):
            self.finish((self.indexers[who], delivery), lacking)

    @rule(held=consumes(deliveries), lacking=st.lists(st.sampled_from(TICKS), max_size=5))
    def finish(self, held: tuple[CoordinatedBatches, Delivery], lacking: Sequence[int] = ()) -> None:
        indexer, delivery = held
        if delivery.file.key in self.bad:
            self._fail(held, "bad")
            return
        claim: Claim = delivery.claim  # type: ignore[attr-defined]
        step = indexer._coordinator.step
        lacks = {tick for tick in lacking if tick in delivery.ticks and tick % step == 0}
        short = MissingTicks(tuple(ranges_of(np.array(sorted(lacks), np.int64), step)), "a stamp")
        try:
            done = indexer._coordinator.complete([claim], {claim.name: short} if lacks else {})
        except SamplingIntervalCorrected:
            assert step != self.step
            return
        self.completed[delivery.file.key] += done
        if done:
            self.lacks[claim.name] = lacks

    @rule(held=consumes(deliveries))
    def fail_for_another_reason(self, held: tuple[CoordinatedBatches, Delivery]) -> None:
        self._fail(held, "a worker died")

    def _fail(self, held: tuple[CoordinatedBatches, Delivery], reason: str) -> None:
        try:
            held[0].fail(held[1], reason)
        except SamplingIntervalCorrected:
            assert held[0]._coordinator.step != self.step

    @rule(held=consumes(deliveries))
    def release(self, held: tuple[CoordinatedBatches, Delivery]) -> None:
        held[0].release([held[1]])

    @rule(who=st.integers(0, INDEXERS - 1))
    def die(self, who: int) -> None:
        self.indexers[who] = self.new_indexer()

    @rule(step=st.sampled_from(STEPS))
    def the_sampling_interval_is_corrected(self, step: int) -> None:
        """All indexers start again with it. What they held stays claimed until its lease expires."""
        old, self.step = self.step, step
        if step % old:
            self.reopened.update(
                f"{self.run.id}/{one.name}" for one in self.coordinator.batches() if _is_completed(one)
            )
        for name, lacks in self.lacks.items():
            ranges = ranges_of(np.array(sorted(lacks), np.int64), old)
            self.lacks[name] = {tick for tick in self._sampled() if any(tick in one for one in ranges)}
        self.coordinator = self.new_coordinator()
        self.coordinator.register(lambda *_: None)
        self.indexers = [self.new_indexer() for _ in range(INDEXERS)]

    def _sampled(self) -> list[int]:
        return [tick for tick in TICKS if tick % self.step == 0]

    @rule(seconds=st.sampled_from([20.0, LEASE + 1, GIVE_UP_MS / 1000 + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        type(self).pass_seconds(self.now)

    @rule()
    def retry_failed(self) -> None:
        self.coordinator.retry_failed()

    @rule(ticks=modest, changed=st.booleans())
    def the_table_lacks(self, ticks: tuple[int, int], changed: bool) -> None:
        before = {one.name: one for one in self.coordinator.batches(TickRange(*ticks)) if _is_completed(one)}
        for name in self.coordinator.reopen_missing([TickRange(*ticks)], self.lacks if changed else ()):
            wanted = {tick for tick in self._sampled() if tick in TickRange(*ticks) and tick in before[name].ticks}
            assert changed or wanted - self.lacks[name], "a file is not read again for what it lacks"
            self.reopened[f"{self.run.id}/{name}"] += 1

    @rule(last_tick=st.integers(0, 25))
    def the_run_ends(self, last_tick: int) -> None:
        self.the_run_goes_on()
        if self.storage.read_completion(self.run.id) is None:
            self.storage.write_completion(RunCompleted(simulation_run_id=self.run.id, last_tick=last_tick * UNIT))

    @rule()
    def its_producer_is_silent(self) -> None:
        if self.storage.read_completion(self.run.id) is None:
            files = [file.ticks for file in self.storage.every_batch(self.run.id)]
            last = max((ticks.end for ticks in files), default=-1)
            never = bounds_of(subtract([TickRange(0, last)], files, self.step))
            end = RunCompleted(simulation_run_id=self.run.id, last_tick=last, abandoned_by="silence")
            end.never_written.extend(never)
            self.storage.write_completion(end)

    @rule()
    def the_run_goes_on(self) -> None:
        end = self.storage.read_completion(self.run.id)
        if end is not None and end.abandoned_by:
            assert self.storage.remove_completion(end)

    @invariant()
    def gaps_are_what_no_good_batch_has(self) -> None:
        batches, gaps = self.coordinator.batches(), [gap.ticks for gap in self.coordinator.gaps()]
        good = [batch.ticks for batch in batches if batch.status != "failed"]
        for batch in batches:
            if batch.status == "failed":
                self.lacks.pop(batch.name, None)
        has = [(batch.ticks, self.lacks.get(batch.name, set())) for batch in batches if batch.status != "failed"]
        frontier, (known_end, never_written) = self.coordinator.frontier(), self._known_end()
        ends = [ticks.end for ticks in good] + ([] if known_end is None else [known_end])
        assert frontier == max(ends, default=None)
        reach = max([batch.ticks.end for batch in batches] + ([] if known_end is None else [known_end]), default=-1)
        sampled = self._sampled()
        there = {tick for ticks, lacks in has for tick in sampled if tick in ticks and tick not in lacks}
        promised = [batch.ticks for batch in batches]
        excused = {tick for ticks in never_written for tick in sampled if tick in ticks}
        excused -= {tick for ticks in promised for tick in sampled if tick in ticks}
        missing = [tick for tick in sampled if tick <= reach and tick not in there | excused]
        if self.step != MISFIT:
            assert [tick for tick in sampled if any(tick in ticks for ticks in gaps)] == missing
            assert all(on_grid(ticks, self.step) == ticks for ticks in gaps)
        assert not any(one.overlaps(other) for one, other in itertools.combinations(gaps, 2))

    @invariant()
    def a_file_is_completed_once(self) -> None:
        assert all(count <= 1 + self.reopened[key] for key, count in self.completed.items())

    def teardown(self) -> None:
        """Everybody dies; one comes and works until nothing is left; what failed for another reason is tried again."""
        try:
            self.time_passes(LEASE + 1)
            if self.step == MISFIT:
                self.the_sampling_interval_is_corrected(10)
            self._work_off()
            self.coordinator.retry_failed()
            self._work_off()
            done = {f"{self.run.id}/{one.name}" for one in self.coordinator.batches() if _is_completed(one)}
            good = {file.key for file in self.storage.every_batch(self.run.id)} - self.bad
            assert done == good
            assert all(self.completed[key] >= 1 for key in good)
            self.gaps_are_what_no_good_batch_has()
            self.a_file_is_completed_once()
            life = life_of(self.storage.read_completion(self.run.id))
            assert self._known_end() == (life.last_tick, life.never_written)
        finally:
            super().teardown()

    def _work_off(self) -> None:
        last = self.new_indexer()
        while not last.exhausted:
            for delivery in last.poll(7, 0):
                self.finish((last, delivery))

    def _known_end(self) -> End:
        return recorded_end(self.run, self.indexer_class, NO_TABLE)


def _is_completed(batch: Batch) -> bool:
    return batch.status == "completed"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Failures, take-overs and gaps are what this is about. Each poll looks for the end of the run."""
    monkeypatch.setattr("ticklake.indexers.coordinated._END_SECONDS", 0.0)
    log = logging.getLogger("ticklake")
    level = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(level)


@pytest.mark.hypothesis
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quiet")
def test_every_good_file_is_completed_once_and_gaps_are_exact(
    run: Run, tmp_path: Path, clock: object, set_time: Callable[[float], None]
):
    Fleet.database_run, Fleet.root, Fleet.pass_seconds = run, tmp_path / "storages", staticmethod(set_time)
    run_machine(Fleet, settings=settings(max_examples=settings().max_examples // 4, stateful_step_count=25))


a_file = st.tuples(st.one_of(*[modest] * 9, hostile), st.sampled_from(["", "a"]), st.booleans())
bursts_of_files = st.lists(st.lists(a_file, min_size=1, max_size=4), min_size=2, max_size=4)


@pytest.mark.hypothesis
@pytest.mark.usefixtures("quiet")
def test_no_file_is_hidden_by_the_names_of_those_that_came_before(
    run: Run, tmp_path: Path, set_time: Callable[[float], None]
):
    """Files come in bursts; each burst is worked off, in turns by all indexers, before the next one comes."""
    Fleet.database_run, Fleet.root, Fleet.pass_seconds = run, tmp_path / "bursts", staticmethod(set_time)

    @settings(max_examples=settings().max_examples // 4)
    @given(bursts=bursts_of_files)
    def arrive(bursts: list[list[tuple[tuple[int, int], str, bool]]]) -> None:
        fleet = Fleet()
        for burst in bursts:
            for ticks, copy, bad in burst:
                fleet._appear(ticks, copy, bad)
            for who in range(INDEXERS):
                fleet.work(who)
            fleet.gaps_are_what_no_good_batch_has()
        fleet.teardown()

    arrive()


@pytest.fixture
def set_time(clock: object, pass_time: Callable[[float], None]) -> Callable[[float], None]:
    """Sets the database's clock to so many seconds ahead."""
    return lambda seconds: pass_time(seconds - clock.ahead_ms / 1000)  # type: ignore[attr-defined]
