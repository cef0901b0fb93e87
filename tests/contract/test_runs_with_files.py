"""Runs with batch files that no coordinator knows are found, and finished ones cost little, on every database."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake import Database, RunCompleted, SimulationMetadata
from ticklake.coordination import Coordinator, FoundFile, Target
from ticklake.indexers.runs import pending as module
from ticklake.indexers.runs.pending import Files
from ticklake.indexers.runs.unfinished import WARM_SECONDS, Unfinished
from ticklake.monitoring import Monitor
from ticklake.storage import Storage, parse_batch_name
from ticklake.ticks import TickRange

TABLE = Target("table-1", "file:///lake/table", "here")
LATER = 1_000.0


class Runs:
    """Runs with empty batch files, and an indexer class that fills one table for each."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root, self.database, self.storage = root / "storage", database, Storage(root / "storage")
        self.tables: dict[str, Target] = {}
        self.asked: list[str] = []
        self._prefix = uuid4().hex[:8]

    def name(self, number: int) -> str:
        return f"20261101-120000-{self._prefix}-{number:05}"

    def make(self, number: int, *files: str) -> str:
        """Makes a run, or adds files to it."""
        run_id = self.name(number)
        if not (self.root / run_id).exists():
            self.storage.write_metadata(SimulationMetadata(simulation_run_id=run_id, sampling_interval=1))
        for file in files:
            (self.root / run_id / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / run_id / file).touch()
        return run_id

    def settle(self, number: int) -> None:
        """Makes the folders of a run look as if they had not changed for an hour."""
        for folder in [self.root / self.name(number), *(self.root / self.name(number)).rglob("*/")]:
            past = folder.stat().st_mtime_ns - 3600 * 10**9
            os.utime(folder, ns=(past, past))

    def end(self, number: int, last_tick: int) -> None:
        self.storage.write_completion(RunCompleted(simulation_run_id=self.name(number), last_tick=last_tick))

    def coordinator(self, number: int) -> Coordinator:
        self.tables[self.name(number)] = TABLE
        return Coordinator(self.database.run(self.name(number)), "DummyIndexer", step=1, table=TABLE)

    def index(self, number: int, *files: str, complete: bool = True) -> None:
        coordinator = self.coordinator(number)
        found = [FoundFile(file, ticks) for file in files if (ticks := parse_batch_name(file.rpartition("/")[2]))]
        claims = coordinator.claim(found, len(found))
        if complete:
            assert coordinator.complete(claims) == len(files)

    def files(self) -> Files:
        return Files(self.storage, self.database, "DummyIndexer", self._table)

    def unfinished(self) -> Unfinished:
        return Unfinished(self.storage, self.files(), "all", Monitor("test"))

    def _table(self, run_id: str) -> Target | None:
        self.asked.append(run_id)
        return self.tables.get(run_id)


@pytest.fixture
def runs(tmp_path: Path, database: Database) -> Runs:
    return Runs(tmp_path, database)


A, B, C = (f"batch_{first:010}_{first + 9:010}.pb" for first in (0, 10, 20))


def test_runs_with_files_are_found_newest_first(runs: Runs) -> None:
    found = [runs.make(number, A) for number in range(3)]
    runs.make(3)
    unfinished = runs.unfinished()
    assert unfinished.look(0.0, ()) == found[::-1]
    assert not unfinished.complete


def test_what_is_completed_is_no_work_and_what_is_claimed_is(runs: Runs) -> None:
    for number, complete in ((1, True), (2, False)):
        runs.make(number, A, B)
        runs.index(number, A, B, complete=complete)
    runs.make(3, A, B)
    runs.index(3, A)
    assert [runs.files().count(runs.name(number)) for number in (1, 2, 3)] == [0, 2, 1]
    assert [runs.files().is_left(runs.name(number)) for number in (1, 2, 3)] == [False, True, True]


def test_failed_files_are_not_tried_again(runs: Runs) -> None:
    run_id = runs.make(1, A)
    coordinator = runs.coordinator(1)
    (claim,) = coordinator.claim([FoundFile(A, parse_batch_name(A))], 1)  # type: ignore[arg-type]
    coordinator.fail(claim, "bad")
    assert not runs.files().is_left(run_id)


def test_a_run_whose_table_was_removed_has_work(runs: Runs) -> None:
    run_id = runs.make(1, A)
    runs.index(1, A)
    runs.tables.clear()
    assert runs.files().is_left(run_id)


def test_the_end_of_a_run_is_work_until_it_is_recorded(runs: Runs) -> None:
    run_id = runs.make(1, A)
    runs.index(1, A)
    runs.end(1, 29)
    assert runs.files().is_left(run_id)
    runs.coordinator(1).record_end(29)
    assert not runs.files().is_left(run_id)


def test_an_end_that_has_changed_is_work_until_it_is_recorded(runs: Runs) -> None:
    run_id = runs.make(1, A, C)
    runs.index(1, A, C)
    silent = RunCompleted(simulation_run_id=run_id, last_tick=29, abandoned_by="silence", never_written=[10, 19])
    runs.storage.write_completion(silent)
    runs.coordinator(1).record_end(29, [TickRange(10, 19)])
    assert not runs.files().is_left(run_id)
    assert runs.storage.remove_completion(runs.storage.read_completion(run_id))
    assert runs.files().is_left(run_id)
    runs.coordinator(1).record_end(None)
    assert not runs.files().is_left(run_id)
    runs.end(1, 29)
    assert runs.files().is_left(run_id)
    runs.coordinator(1).record_end(29)
    assert not runs.files().is_left(run_id)


@pytest.mark.parametrize("folder", ["", "000/", "000/000/"])
def test_an_unchanged_run_is_not_asked_and_a_new_file_is_found(runs: Runs, folder: str) -> None:
    run_id = runs.make(1, folder + A)
    runs.index(1, folder + A)
    runs.settle(1)
    unfinished = runs.unfinished()
    for moment in range(3):
        assert unfinished.look(moment * LATER, ()) == []
    asked = len(runs.asked)
    assert unfinished.look(3 * LATER, ()) == [] and unfinished.complete
    assert len(runs.asked) == asked
    runs.make(1, folder + B)
    assert unfinished.look(3 * LATER + WARM_SECONDS / 2, ()) == [run_id]


def test_complete_runs_are_asked_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look checks the times of some of their folders. No folder is listed again."""
    for number in range(300):
        runs.make(number, f"000/{A}")
        runs.settle(number)
    files, looked = runs.files(), list[str]()
    changed_at = runs.storage.changed_at
    monkeypatch.setattr(files, "count", lambda _: 0)  # what a database says of complete runs
    monkeypatch.setattr(runs.storage, "changed_at", lambda folder: looked.append(folder) or changed_at(folder))
    unfinished = Unfinished(runs.storage, files, "all", Monitor("test"))
    now = 0.0
    while not unfinished.complete:
        assert unfinished.look(now, ()) == []
        now += LATER
    looked.clear()
    unfinished.look(now, ())
    assert 0 < len(looked) <= 201  # the storage itself is one


class NoTimes(Storage):
    """A storage that has no times of changes, like an object store."""

    listed = 0

    def changed_at(self, folder: str) -> None:
        return None

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        self.listed += 1
        return super().entries(folder)


def test_without_times_a_run_is_listed_once_a_minute_and_a_complete_one_only_once(runs: Runs) -> None:
    storage, clock = NoTimes(runs.storage.url), [0.0]
    for number in (1, 2):
        runs.make(number, A)
        runs.index(number, A)
    runs.end(2, 9)
    runs.coordinator(2).record_end(9)
    files = Files(storage, runs.database, "DummyIndexer", runs.tables.get, clock=lambda: clock[0])
    unfinished = Unfinished(storage, files, "all", Monitor("test"))
    for moment in range(4):
        clock[0] = moment * LATER
        unfinished.look(clock[0], ())
    before = storage.listed
    for second in range(1, 11):
        clock[0] = 3 * LATER + 2 * module.LIST_SECONDS + second
        unfinished.look(clock[0], ())
    assert storage.listed - before == 1
    runs.make(1, B)
    clock[0] += module.LIST_SECONDS
    assert unfinished.look(clock[0], ()) == [runs.name(1)]


def test_without_times_an_abandoned_run_that_goes_on_is_found(runs: Runs) -> None:
    storage, clock = NoTimes(runs.storage.url), [0.0]
    run_id = runs.make(1, A)
    runs.index(1, A)
    abandoned = RunCompleted(simulation_run_id=run_id, last_tick=9, abandoned_by="silence")
    runs.storage.write_completion(abandoned)
    runs.coordinator(1).record_end(9)
    files = Files(storage, runs.database, "DummyIndexer", runs.tables.get, clock=lambda: clock[0])
    unfinished = Unfinished(storage, files, "all", Monitor("test"))
    for moment in range(4):
        clock[0] = moment * LATER
        assert unfinished.look(clock[0], ()) == []
    assert runs.storage.remove_completion(runs.storage.read_completion(run_id))
    runs.make(1, B)
    clock[0] += LATER + module.LIST_SECONDS
    assert unfinished.look(clock[0], ()) == [run_id]


def test_a_run_that_vanishes_meanwhile_stops_no_other(runs: Runs) -> None:
    for number in (1, 2):
        runs.make(number, A)
    files = runs.files()
    unfinished = Unfinished(runs.storage, files, "all", Monitor("test"))
    for path in (runs.root / runs.name(2)).iterdir():
        path.unlink()
    runs.storage._folder.folders = lambda: [runs.name(1), runs.name(2)]  # type: ignore[method-assign]
    (runs.root / runs.name(2)).rmdir()
    assert unfinished.look(0.0, ()) == [runs.name(1)]
