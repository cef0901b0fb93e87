"""Batch files that are partly bad, indexed by several processes, some of which die: through a topic, or shared out by
the coordinator to one lake or to two of them on the same database.

In the end each table must hold all that is in good files, once, and nothing that is in a bad one; and what no good file
holds must be on record as missing.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from crew import Crew
from deltalake.exceptions import DeltaError
from in_process import InProcess
from pipeline import Server
from report import Findings, Script
from spoiled import SpoiledRun
from truth import indexed

from ticklake import BatchInfo, Database, faults
from ticklake.completeness import Completeness
from ticklake.errors import DatabaseLocked, DatabaseUnusable, TickLakeError
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.coordinated import coordinated
from ticklake.indexers.environment import EnvironmentIndexer
from ticklake.indexers.finished import FinishedRun
from ticklake.indexers.metadata import MetadataIndexer
from ticklake.lake.catalog import Catalog
from ticklake.lake.lake import Lake
from ticklake.lake.vacuum import Vacuum
from ticklake.storage.files import Storage
from ticklake.storage.names import parse_batch_name

ACTS = {
    "kill": 3,
    "term": 2,
    "zombie": 1,  # an indexer stands still for longer than its lease
    "second lake": 2,  # one more lake is filled from the same database
    "index": 1,  # `ticklake index` beside the indexers
    "remake": 2,  # the table is moved away and indexed again, while a flush is under way
    "repair": 2,  # a commit is cut off and, as documented, the table is indexed again, while a flush is under way
    "openers": 2,  # a commit is cut off, and two open the table at once
    "no links": 1,  # the file system has no hard links, and its renames take a moment
    "retention": 2,  # old messages are removed; `ticklake reconcile` must not announce their files again
    "vacuum": 1,
}
TABLE, TOPIC, GROUP = "environment_data", "batch-topic", "environment-indexer"
FILES, LEASE, GAP_MS, ATTEMPTS, PATIENCE = 24, 2.0, 1500, 2, 30.0
HELD_AT_MOST = 60.0


class Part(NamedTuple):
    root: Path
    lake: str
    url: str
    run_id: str
    shared: bool
    held: str = ""
    links: bool = True


def index(part: Part) -> None:
    """One indexer, until it is told to end. It is held at the point `held`."""
    if part.held:
        take_time(part.held, part.root)
    if not part.links:
        forbid_links(part.root)
    options = IndexerOptions(
        part.run_id, insert_batch_size=30, flush_timeout_ms=100, claim_timeout=LEASE, poll_interval_ms=50,
        gap_warning_timeout_ms=GAP_MS, max_delivery_attempts=ATTEMPTS,
    )  # fmt: skip
    spark: Any = InProcess()
    with Database(part.url) as database:
        resources = IndexerResources(
            Storage(part.root / "storage"), Lake(part.root / part.lake), database, spark=lambda: spark
        )
        source = (coordinated(database, resources, EnvironmentIndexer, options),) if part.shared else ()
        indexer = EnvironmentIndexer(GROUP, resources, options, *source)
        signal.signal(signal.SIGTERM, lambda *_: indexer.stop(0))
        indexer.start()
        while not indexer.join(0.2):
            pass
        if indexer.error is not None:
            raise indexer.error


def index_again(part: Part) -> None:
    """`ticklake index RUN`, as an operator would call it."""
    spark: Any = InProcess()
    resources = IndexerResources(Storage(part.root / "storage"), Lake(part.root / part.lake), spark=lambda: spark)
    # All in one commit: the fewer there are, the less their numbers say.
    work = FinishedRun(resources, part.run_id, [EnvironmentIndexer], insert_batch_size=100_000).start()
    while not work.wait(0.1):
        pass


def take_time(point: str, root: Path) -> None:
    """Whoever reaches this point leaves a mark and stays there until the file `go` is there."""
    reach = faults.reach

    def slowly(name: str) -> None:
        if name == point and not (root / "go").exists():
            (root / "held").touch()
            wait(HELD_AT_MOST, (root / "go").exists)
        reach(name)

    faults.reach = slowly


def forbid_links(root: Path) -> None:
    """As on some file systems of the network. Whoever publishes a commit waits a moment for another who does it too."""
    rename = os.rename

    def slow_rename(*arguments: Any, **options: Any) -> None:
        time.sleep(random.uniform(0.1, 0.3))
        rename(*arguments, **options)

    def no_link(_: str, name: str, **__: Any) -> None:
        if name.endswith(".json"):
            (root / f"publishing-{name}-{os.getpid()}").touch()
            wait(1.0, lambda: len([*root.glob(f"publishing-{name}-*")]) > 1)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    os.link, os.rename = no_link, slow_rename


def wait(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met


def play(
    root: Path, url: str, run_id: str, seed: int, acts: int, *, server: Server | None = None, only: Collection[str] = ()
) -> Findings:
    scene = Harvest(root, url, run_id, seed)
    script = Script(ACTS, scene.rng, only)
    try:
        while scene.goes_on():
            if script and acts and scene.rng.random() < 2 * acts / FILES:
                acts -= 1
                scene.act(script.draw())
        scene.end()
    except TimeoutError as error:
        scene.complain(str(error))
    finally:
        scene.crew.close()
    scene.check()
    return scene.findings


class Harvest:
    def __init__(self, root: Path, url: str, run_id: str, seed: int) -> None:
        self.crew, self.rng, self.findings = Crew(root), random.Random(seed), Findings()
        self._seed = seed
        self._part = Part(root, "lake", url, run_id, shared=self.rng.random() < 0.7)
        self._run = SpoiledRun(root / "storage", run_id, self.rng, FILES)
        self._lakes: list[str] = []
        self._brought, self._told = 0, set[str]()
        # In order, but for a few that are late.
        late = self.rng.sample(range(FILES), 4)
        self.order = [number for number in range(FILES) if number not in late] + late
        (root / "go").touch()
        self._start("lake")

    def goes_on(self) -> bool:
        """Brings the next file, if there is one."""
        if self._brought == FILES:
            return False
        self.bring(self.order[self._brought])
        return True

    def bring(self, number: int) -> None:
        """A file, and the news of it if there is a topic."""
        self._brought += 1
        keys = self._run.arrive(number)
        self._told |= {*keys}
        if keys and not self._part.shared:
            with Database(self._part.url) as database, database.run(self._part.run_id).writer(TOPIC) as writer:
                for key in keys:
                    ticks = parse_batch_name(key.rpartition("/")[2])
                    assert ticks
                    told = BatchInfo(simulation_run_id=self._part.run_id, storage_key=key)
                    told.tick_start, told.tick_end = ticks
                    writer.send(told)
        time.sleep(self.rng.uniform(0, 0.15))

    def act(self, name: str) -> None:
        self.findings.acts[name] += 1
        getattr(self, f"_{name.replace(' ', '_')}")()

    def end(self) -> None:
        self._run.complete()
        deadline = time.monotonic() + PATIENCE
        while not self._settled() and time.monotonic() < deadline:
            self._replace_dead()
            time.sleep(0.2)
        for name in list(self.crew.processes):
            if code := self.crew.end(name, signal.SIGTERM):
                self.complain(f"{name} ended with {code} when it was told to stop: {self.crew.last_error()}")

    def check(self) -> None:
        """Against what the good files hold."""
        expected = self._run.keys()
        how = "shared out" if self._part.shared else "announced"
        bad = Counter(file.fate for file in self._run.files)
        self.findings.figures.update(files=FILES, rows=len(expected) * len(self._lakes), **bad)
        for lake in self._lakes:
            found = self._found(lake)
            lost, strange = expected - found.keys(), found.keys() - expected
            twice = found.total() - len(found)
            if lost or strange or twice:
                self.complain(f"{how}, {lake}: {len(lost)} rows lost, {len(strange)} of bad files, {twice} twice")
        if self._part.shared:
            gaps = self._gaps()
            if gaps != self._run.missing():
                unknown, wrong = len(self._run.missing() - gaps), len(gaps - self._run.missing())
                self.complain(f"{how}: {unknown} missing ticks are in no gap, {wrong} ticks of gaps are not missing")
        else:
            self._check_letters()

    def _check_letters(self) -> None:
        bad = [file for file in self._run.files if file.fate not in ("good", "never")]
        with Database(self._part.url) as database:
            run = database.run(self._part.run_id)
            dead, lag = run.dead_letters.count(), sum(group.lag for group in run.groups.list(TOPIC))
        # A bad file whose twin came first brings nothing new, and is not looked into.
        if lag or not sum(not file.twin for file in bad) <= dead <= len(bad):
            self.complain(f"{dead} dead letters and a lag of {lag} after {len(bad)} bad files of {len(self._told)}")

    # Acts

    def _kill(self) -> None:
        self._end_one(signal.SIGKILL)

    def _term(self) -> None:
        self._end_one(signal.SIGTERM)

    def _zombie(self) -> None:
        self.crew.freeze(self.rng.choice(list(self.crew.processes)), 1.2 * LEASE)

    def _second_lake(self) -> None:
        """A topic's group is one for both, so only where the coordinator shares out."""
        if self._part.shared and len(self._lakes) == 1:
            self._start("lake2")

    def _index(self) -> None:
        """It ends when all that is in storage is in the table."""
        for lake in self._lakes:
            self.crew.start("index", index_again, self._part._replace(lake=lake))
            deadline = time.monotonic() + PATIENCE
            while self.crew.alive("index"):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"`index` does not end: {self.crew.last_error()}")
                time.sleep(0.02)
            if code := self.crew.end("index"):
                self.complain(f"`index` ended with {code}: {self.crew.last_error()}")

    def _remake(self) -> None:
        with self._held_in_flush():
            if self._table().is_dir():
                self._table().rename(self._part.root / f"moved-{time.monotonic_ns()}")
            self._index()

    def _repair(self) -> None:
        with self._held_in_flush():
            self._cut_newest_commit()
            self._index()

    def _openers(self) -> None:
        """One has seen that the newest commit is torn, and is slow; the other mends the table meanwhile."""
        self._until_rows()
        for name in self._indexers():
            self.crew.end(name)
        self._cut_newest_commit()
        with self._hold():
            self._hire("lake-0", held="lake.torn")
            self._until_held()
            self._index()
        self._hire("lake-1")

    def _no_links(self) -> None:
        """From now on."""
        self._part = self._part._replace(links=False)
        for name in self._indexers():
            self.crew.end(name)
            self._hire(name)

    def _retention(self) -> None:
        if self._part.shared:
            return
        with Database(self._part.url) as database:
            run = database.run(self._part.run_id)
            if not wait(PATIENCE, lambda: bool(run.groups.list(TOPIC))):  # what no group needs may go
                raise TimeoutError(f"no group joins: {self.crew.last_error()}")
            run.remove_outdated(TOPIC, max_count=2)
            lake = Catalog(self._part.root / "lake")
            completeness = Completeness(self._part.run_id, Storage(self._part.root / "storage"), lake, database)
            again = self._told.intersection(completeness.plan().unannounced)
        if again:
            self.complain(f"after retention `reconcile` would announce {len(again)} files again")

    def _vacuum(self) -> None:
        """As if it were in eight days: also what a flush has just written and not committed is old enough."""
        if (self._table() / "_delta_log").is_dir():
            vacuum = Vacuum(self._table(), 24 * 7, clock=lambda: time.time() + 8 * 86_400)
            list(vacuum.remove(vacuum.find()))

    @contextmanager
    def _held_in_flush(self) -> Iterator[None]:
        """The indexers of the first lake have looked at the table and claimed files, and do not begin their job."""
        for name in self._indexers():
            self.crew.end(name)
            self._hire(name, held="lake.flush.before_job")
        self._until_rows()
        with self._hold():
            self._until_held()
            yield

    @contextmanager
    def _hold(self) -> Iterator[None]:
        for name in ("go", "held"):
            (self._part.root / name).unlink(missing_ok=True)
        try:
            yield
        finally:
            (self._part.root / "go").touch()

    def _until_held(self) -> None:
        """Brings more files until somebody is there."""
        while not wait(2.0, (self._part.root / "held").exists):
            if not self.goes_on():
                self.findings.figures["missed"] += 1
                return

    def _until_rows(self) -> None:
        while not wait(2.0, lambda: bool(self._found("lake"))) and self.goes_on():
            self._replace_dead()

    def _cut_newest_commit(self) -> None:
        found = sorted(path for path in (self._table() / "_delta_log").glob("*.json") if path.stem.isdigit())
        if len(found) > 1:
            os.truncate(found[-1], found[-1].stat().st_size // 2)

    def _table(self) -> Path:
        return Lake(self._part.root / "lake").directory(self._part.run_id, TABLE)

    def _indexers(self) -> list[str]:
        return [name for name in self.crew.processes if name.startswith("lake-")]

    def _end_one(self, how: signal.Signals) -> None:
        name = self.rng.choice([name for name in self.crew.processes if name.startswith("lake")])
        self.crew.end(name, how)
        self._hire(name)

    # The scene

    def _start(self, lake: str) -> None:
        self._lakes.append(lake)
        resources = IndexerResources(Storage(self._part.root / "storage"), Lake(self._part.root / lake))
        MetadataIndexer("metadata-indexer", resources).write(self._part.run_id)
        for number in range(2):
            self._hire(f"{lake}-{number}")

    def _hire(self, name: str, held: str = "") -> None:
        self.crew.start(name, index, self._part._replace(lake=name.partition("-")[0], held=held))

    def _replace_dead(self) -> None:
        for name in [name for name in self.crew.processes if not self.crew.alive(name)]:
            self.crew.end(name)
            if name.startswith("lake"):
                self._hire(name)

    def _settled(self) -> bool:
        expected = self._run.keys()
        if any(self._found(lake).keys() != expected for lake in self._lakes):
            return False
        return self._gaps() == self._run.missing() if self._part.shared else self._quiet()

    def _quiet(self) -> bool:
        with suppress(TickLakeError), Database(self._part.url) as database:
            return not any(group.lag for group in database.run(self._part.run_id).groups.list(TOPIC))
        return False

    def _found(self, lake: str) -> Counter[tuple[int, int]]:
        with suppress(DeltaError, OSError):
            return indexed(Lake(self._part.root / lake).directory(self._part.run_id, TABLE), "cell_id")
        return Counter()

    def _gaps(self) -> set[int]:
        """Of the first lake; what the coordinator has written down."""
        query = "SELECT gap_start_tick, gap_end_tick FROM coordinator_gaps"
        ranges: list[Any] = []
        with (
            suppress(DatabaseUnusable, DatabaseLocked),  # until there is such a table
            Database(self._part.url) as database,
            database.run(self._part.run_id).reading() as view,
        ):
            ranges = view.execute(query, {})
        last_tick = self._run.last_tick  # a name can promise more than the run has
        return {tick for first, last in ranges for tick in range(first, min(last, last_tick) + 1, self._run.step)}

    def complain(self, what: str) -> None:
        acts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.acts.items()))
        self.findings.complaints.append(f"seed {self._seed}: {what} (acts: {acts or 'none'})")
