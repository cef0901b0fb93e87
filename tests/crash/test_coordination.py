"""Indexers that share a run through the coordinator while its files arrive in any order, late, or never, and die."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.gaps import PERMANENT
from ticklake.coordination.target import Target
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.ticks import TickRange, subtract
from ticklake.topics import Database

pytestmark = [pytest.mark.chaos]

CHILD = Path(__file__).with_name("coordination_child.py")
TICKS = 3
STEP = 10
WARNING_SECONDS = 1.5
DAY = 86_400


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


class Crew:
    """Indexer processes that are killed and replaced."""

    def __init__(self, root: Path, run_id: str, url: str, clock: Path) -> None:
        self._arguments = [sys.executable, str(CHILD), str(root), run_id, url]
        self._clock = clock
        # SQLite's clock is that of the machine, so there all processes have it; a server has its own.
        self._everywhere = url.startswith("sqlite")
        self.members: list[subprocess.Popen[bytes]] = []

    def hire(self, count: int) -> None:
        for _ in range(count):
            wrong = self._everywhere or not self.members
            clock = str(self._clock) if wrong else "-"
            self.members.append(subprocess.Popen([*self._arguments, clock], stderr=subprocess.PIPE))

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        place = self.members.index(victim)
        victim.kill()
        _, complaint = victim.communicate()
        assert victim.returncode == -signal.SIGKILL, complaint.decode()
        self.members.pop(place)

    def dismiss(self) -> None:
        for member in self.members:
            member.send_signal(signal.SIGTERM)
        for member in self.members:
            try:
                _, complaint = member.communicate(timeout=60)
            finally:
                member.kill()
            # One that was hired a moment ago may not have come to the point where it stops in good order.
            assert member.returncode in (0, -signal.SIGTERM), complaint.decode()


class Arrivals:
    """Files made beforehand that appear in random order: some late, some never."""

    def __init__(self, maker: Any, staged: Any, count: int, rng: random.Random) -> None:
        self._folder = Path(maker.storage.url) / maker.run_id
        staged.metadata(step=STEP)
        maker.metadata(step=STEP)
        self.files = [self._make(staged, number) for number in range(count)]
        self._staged = Path(staged.storage.url) / maker.run_id
        order = rng.sample(range(count - 1), count - 1)
        never, late = max(2, count // 100), count // 20
        self.never = sorted(order[:never])
        self.late = order[never : never + late]
        # The last one comes, and in time: what is behind the last file nobody can miss.
        self.in_time = [*order[never + late :], count - 1]

    def appear(self, number: int) -> None:
        (self._staged / self.files[number]).rename(self._folder / self.files[number])

    def ticks(self) -> list[int]:
        there = [number for number in range(len(self.files)) if number not in self.never]
        return [(number * TICKS + tick) * STEP for number in there for tick in range(TICKS)]

    def missing(self) -> list[TickRange]:
        whole = TickRange(0, (len(self.files) * TICKS - 1) * STEP)
        return subtract([whole], [_ticks(n) for n in range(len(self.files)) if n not in self.never], STEP)

    @staticmethod
    def _make(staged: Any, number: int) -> str:
        return str(staged.batch(*_ticks(number), step=STEP, cells=1).storage_key.rpartition("/")[2])


def _ticks(number: int) -> TickRange:
    return TickRange(number * TICKS * STEP, ((number + 1) * TICKS - 1) * STEP)


def work_through(
    maker: Any, tmp_path: Path, url: str, eventually: Callable[..., None], count: int, kills: int, crew_size: int = 4
) -> None:
    rng = random.Random(count)
    maker.run_id = f"20251014-143025-{uuid4().hex[:8]}"
    staged = type(maker)(tmp_path / "staged")
    staged.run_id = maker.run_id
    arrivals = Arrivals(maker, staged, count, rng)
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    clock = tmp_path / "clock"
    clock.write_text("0")
    crew = Crew(tmp_path, maker.run_id, url, clock)
    crew.hire(crew_size)
    with Database(url) as database:
        ledger = maker.lake.ledger(maker.run_id, OrganismIndexer.table)
        table = Target.at(ledger.id, ledger.location.url)
        coordinator = Coordinator(database.run(maker.run_id), "OrganismIndexer", step=STEP, table=table)
        try:
            _let_arrive(arrivals, crew, clock, kills, rng, eventually, coordinator)
            eventually(lambda: _all_done(coordinator, arrivals), 240)
        finally:
            crew.dismiss()
        gaps = [(gap.ticks, gap.status) for gap in coordinator.gaps()]
    assert gaps == [(ticks, PERMANENT) for ticks in arrivals.missing()]
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in arrivals.ticks()]


def _let_arrive(
    arrivals: Arrivals,
    crew: Crew,
    clock: Path,
    kills: int,
    rng: random.Random,
    eventually: Callable[..., None],
    coordinator: Coordinator,
) -> None:
    """In bursts, each of which the indexers begin to work on; a kill in between; a day forward, and back."""
    bursts = [arrivals.in_time[start :: kills + 1] for start in range(kills + 1)]
    for number, burst in enumerate(bursts):
        before = len(coordinator.batches())
        for file in burst:
            arrivals.appear(file)
        eventually(lambda before=before: len(coordinator.batches()) > before, 120)
        clock.write_text(str([DAY, 0][number % 2]))
        if number < kills:
            crew.kill(rng.choice(crew.members))
            crew.hire(1)
    clock.write_text("0")
    appeared = time.monotonic()
    eventually(
        lambda: all(gap.status == PERMANENT for gap in coordinator.gaps()) and coordinator.frontier() is not None, 120
    )
    eventually(lambda: time.monotonic() > appeared + WARNING_SECONDS)
    for file in arrivals.late:
        arrivals.appear(file)


def _all_done(coordinator: Coordinator, arrivals: Arrivals) -> bool:
    batches = coordinator.batches()
    there = len(arrivals.files) - len(arrivals.never)
    done = len(batches) == there and all(batch.status == "completed" for batch in batches)
    return done and all(gap.status == PERMANENT for gap in coordinator.gaps())


@pytest.mark.timeout(280)
def test_late_lost_and_unordered_files_and_killed_indexers_leave_each_tick_once_and_each_hole_one_gap(
    maker: Any, tmp_path: Path, url: str, eventually: Callable[..., None]
) -> None:
    work_through(maker, tmp_path, url, eventually, count=150, kills=2, crew_size=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_files(maker: Any, tmp_path: Path, url: str, eventually: Callable[..., None]) -> None:
    work_through(maker, tmp_path, url, eventually, count=2000, kills=12)
