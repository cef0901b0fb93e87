"""A commit is added only to the very history that its writer looked at, whatever operators do to the table meanwhile.

Real processes: one is held just before its commit, the table changes under it, and it is let go.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(280)]

CHILD = Path(__file__).with_name("history_child.py")
BATCHES, TICKS = 12, 7
Process = subprocess.Popen[str]


class Table:
    """The table `organism_data` of a run, and the processes that work on it."""

    def __init__(self, maker: Any, root: Path) -> None:
        self.maker, self.root = maker, root
        self.directory: Path = maker.folder("organism_data")
        self.processes: list[Process] = []

    def start(self, role: str = "index", fault: str = "") -> Process:
        mark = self.root / f"mark-{len(self.processes)}"
        process = subprocess.Popen(
            [sys.executable, str(CHILD), role, str(self.root), self.maker.run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TICKLAKE_FAULT": fault, "TICKLAKE_FAULT_MARK": str(mark)},
        )
        self.processes.append(process)
        return process

    def is_held(self, process: Process) -> bool:
        assert process.poll() is None, process.communicate()[1]
        return (self.root / f"mark-{self.processes.index(process)}").exists()

    def end(self, process: Process) -> str:
        """Waits for its end; what it wrote to its log."""
        _, complaint = process.communicate(timeout=240)
        assert process.returncode == 0, complaint
        return complaint

    def release(self, process: Process) -> str:
        process.send_signal(signal.SIGUSR1)
        return self.end(process)

    def versions(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.directory / "_delta_log").glob("*.json") if path.stem.isdigit())

    def commit(self, version: int) -> Path:
        return self.directory / "_delta_log" / f"{version:020d}.json"

    def keys(self, directory: Path | None = None) -> list[int]:
        return sorted(DeltaTable(directory or self.directory).to_pyarrow_table().column("tick_number").to_pylist())

    def is_complete(self) -> None:
        assert self.versions() == list(range(len(self.versions())))
        assert self.keys() == list(range(BATCHES * TICKS))


@pytest.fixture
def table(maker: Any, tmp_path: Path) -> Iterator[Table]:
    maker.metadata()
    maker.batches(BATCHES, TICKS, cells=1)
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    made = Table(maker, tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


# The first file that a writer creates is the commit that makes the table.
@pytest.mark.parametrize(
    ("held", "new"),
    [
        pytest.param("storage.write:hold:6", 1, marks=pytest.mark.slow),
        ("storage.publish:hold:6", 5),
        pytest.param("lake.commit.before:hold:5", BATCHES, marks=pytest.mark.slow),
    ],
)
def test_a_commit_for_a_table_that_was_moved_away_never_lands_in_the_one_made_anew(
    table: Table, eventually: Callable[..., None], held: str, new: int
) -> None:
    late = table.start(fault=held)
    eventually(lambda: table.is_held(late))
    away = table.directory.with_name("away")
    table.directory.rename(away)
    anew = table.start(fault=f"lake.commit.after:hold:{new}")
    eventually(lambda: table.is_held(anew))
    table.release(late)
    table.release(anew)
    table.is_complete()
    assert len(set(table.keys(away))) == len(table.keys(away)) in (4 * TICKS, 5 * TICKS)


@pytest.mark.parametrize("new", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_commit_never_lands_behind_one_that_was_set_aside(
    table: Table, eventually: Callable[..., None], new: int
) -> None:
    late = table.start(fault="lake.commit.before:hold:5")
    eventually(lambda: table.is_held(late))
    os.truncate(table.commit(3), 100)
    table.commit(4).unlink()
    other = table.start(fault=f"lake.commit.after:hold:{new}")
    eventually(lambda: table.is_held(other))
    table.release(late)
    assert "aside" in table.release(other)
    table.is_complete()


def test_the_slower_of_two_that_open_a_torn_log_leaves_the_new_commit_of_the_other_alone(
    table: Table, eventually: Callable[..., None]
) -> None:
    table.end(table.start())
    os.truncate(table.commit(BATCHES), 100)
    slower = table.start(fault="lake.torn:hold")
    eventually(lambda: table.is_held(slower))
    assert "aside" in table.end(table.start())
    assert "aside" not in table.release(slower)
    table.is_complete()


class Operator:
    """Somebody who repairs a table while processes work on it, and looks only at what a listing shows."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table, self._rng = table, random.Random(seed)
        self._away = 0

    def act(self) -> None:
        with suppress(FileNotFoundError, IndexError):
            self._rng.choice([self._move_away, self._tear, self._take])()

    def _move_away(self) -> None:
        """And makes it anew, as an indexer does that is started then: the others wait for a table."""
        self._away += 1
        self._table.directory.rename(self._table.directory.with_name(f"away-{self._away}"))
        self._table.maker.lake.ledger(self._table.maker.run_id, OrganismIndexer.table)

    def _tear(self) -> None:
        """Another engine has begun a commit, and the power went: one of ours is never torn."""
        begun = self._table.commit(self._table.versions()[-1] + 1)
        with suppress(FileExistsError), begun.open("x") as file:
            file.write('{"commitInfo":{"operation":"WR')
        os.utime(begun, (0, 0))

    def _take(self) -> None:
        self._newest().rename(self._table.root / f"taken-{self._rng.random()}")

    def _newest(self) -> Path:
        newest = self._table.commit(self._table.versions()[-1])
        # Without the commit that makes it there is no table.
        return newest if self._table.versions()[-1] else self._table.root / "missing"


def race(table: Table, seed: int, acts: int, eventually: Callable[..., None]) -> None:
    """Indexers that start again whenever they have caught up, compaction and vacuum, and an operator."""
    operator, rng = Operator(table, seed), random.Random(seed)
    background = [table.start("compact"), table.start("vacuum")]
    indexers: list[Process] = []
    for _ in range(acts):
        while len(indexers) < 2:
            indexers.append(table.start())
        seen, few = table.versions(), rng.randint(1, 4)
        eventually(lambda seen=seen, few=few: len(table.versions()) >= len(seen) + few or ended(indexers))
        operator.act()
        for one in [one for one in indexers if one.poll() is not None]:
            table.end(one)
            indexers.remove(one)
    for one in indexers:
        table.end(one)
    for one in background:
        # It may have met a table that was moved away under its hands; it is started again then, as a service is.
        one.communicate()
    table.end(table.start())
    table.is_complete()
    for away in table.directory.parent.glob("away-*"):
        with suppress(TableNotFoundError):
            keys = table.keys(away)
            assert len(set(keys)) == len(keys), away


def ended(processes: list[Process]) -> bool:
    return any(one.poll() is not None for one in processes)


def test_whatever_an_operator_does_while_indexers_race_each_key_is_there_once(
    table: Table, eventually: Callable[..., None]
) -> None:
    race(table, 7, 5, eventually)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed else pytest.mark.slow) for seed in range(10)]
)
def test_whatever_an_operator_does_for_long_each_key_is_there_once(
    table: Table, eventually: Callable[..., None], seed: int
) -> None:
    race(table, seed, 40, eventually)
