"""Batch files that are partly bad, indexed by several processes, some of which die: through a topic, or shared out by
the coordinator to one lake or to two of them on the same database.

In the end each table must hold all that is in good files, once, and nothing that is in a bad one; and what no good file
holds must be on record as missing.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from crew import Crew, wait
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from harvest_child import LEASE, Part, index, index_again
from onlooker import Onlooker, watch
from pipeline import Server
from report import Findings, Script
from spoiled import SpoiledRun
from truth import indexed

from ticklake import BatchInfo, Database
from ticklake.completeness.completeness import Completeness
from ticklake.errors import DatabaseLocked, DatabaseUnusable, TickLakeError
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.delta import Location
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.storage.files import Storage
from ticklake.storage.names import parse_batch_name

ACTS = {
    "kill": 3,
    "term": 2,
    "zombie": 1,  # an indexer stands still for longer than its lease
    "second lake": 2,  # one more lake is filled from the same database
    "index": 1,  # `ticklake index` beside the indexers
    "remake": 2,  # the table is moved away and indexed again, while a flush is under way
    "restore": 2,  # an older copy of the table is put in its place and indexed again, while a flush is under way
    "power cut": 2,  # everybody dies, a commit of another engine is cut off, and two open the table at once
    "retype": 2,  # another engine changes the type of a column while a flush is under way; later it is undone
    "no links": 1,  # the file system has no hard links, and its renames take a moment
    "retention": 2,  # old messages are removed; `ticklake reconcile` must not announce their files again
    "vacuum": 1,
}
TABLE, TOPIC = "environment_data", "batch-topic"
FILES, PATIENCE = 24, 30.0
COMMIT_SECONDS = 1.0
BOOT_SECONDS = 60
REFUSED = "has the columns"


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
    except (TimeoutError, DeltaError) as error:
        scene.complain(str(error).replace("\n", " ")[:300])
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
        self._watch()

    def goes_on(self) -> bool:
        """Brings the next file, if there is one."""
        if self._brought == FILES:
            return False
        self.bring(self.order[self._brought])
        return True

    def _bring_good(self) -> bool:
        """Brings files up to the next good one. False if there is none."""
        while not (good := self._brought < FILES and self._run.files[self.order[self._brought]].counts):
            if not self.goes_on():
                return False
        self.goes_on()
        return good

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
        if keys and self.rng.random() < 0.5:
            before = self._version()
            wait(COMMIT_SECONDS, lambda: self._version() != before)

    def act(self, name: str) -> None:
        self.findings.acts[name] += 1
        getattr(self, f"_{name.replace(' ', '_')}")()

    def end(self) -> None:
        self._run.complete()
        wait(PATIENCE, self._settled, every=0.2)
        for name in list(self.crew.processes):
            wait(PATIENCE, lambda name=name: self.crew.handles(name, signal.SIGTERM))  # one may have just been started
            code = self.crew.end(name, signal.SIGTERM)
            if code and not (name == "onlooker" and code == -signal.SIGTERM):  # it had just been started
                self.complain(f"{name} ended with {code} when it was told to stop: {self.crew.last_error()}")

    def check(self) -> None:
        """Against what the good files hold."""
        expected = self._run.keys()
        how = "shared out" if self._part.shared else "announced"
        bad = Counter(file.fate for file in self._run.files)
        looks = Onlooker.journal(self._part.root)
        self.findings.figures.update(files=FILES, rows=len(expected) * len(self._lakes), looks=len(looks), **bad)
        for wrong in {what for look in looks for what in look["wrong"]}:
            self.complain(f"an onlooker was told what was not so: {wrong}")
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
            if not self.crew.join("index", PATIENCE):
                raise TimeoutError(f"`index` does not end: {self.crew.last_error()}")
            if code := self.crew.end("index"):
                self.complain(f"`index` ended with {code}: {self.crew.last_error()}")

    def _remake(self) -> None:
        with self._held_in_flush():
            self._move_away()
            self._index()

    def _restore(self) -> None:
        """As documented: copied next to the table, then renamed."""
        backup = self._part.root / "backup"
        with self._held_in_flush(backup):
            self._move_away()
            if backup.is_dir():
                backup.rename(self._table())
            self._index()

    def _power_cut(self) -> None:
        """Our own commits are on disk before they have a name, so the torn one is of another engine.

        One has seen that it is torn, and is slow; the other mends the table meanwhile and goes on.
        """
        self._until_rows()
        hired = [name for name in self.crew.processes if name.startswith("lake")]
        for name in list(self.crew.processes):
            self.crew.end(name)
        self._tear_commit_of_another_engine()
        with self._hold():
            self._hire("lake-0", held="lake.torn")
            self._until_held()
            for name in hired:
                if name != "lake-0":
                    self._hire(name)
            for _ in range(2):
                before = self._version()
                if self._bring_good():
                    wait(PATIENCE, lambda before=before: self._version() > before)  # type: ignore[misc]
        self._watch()

    def _retype(self) -> None:
        """Whoever indexes must refuse the table as it is then, and go on as soon as it is as it was."""
        with self._held_in_flush():
            if self._version() < 0:
                return
            log = self._part.root / "log"
            told = len(log.read_text())
            delta = DeltaTable(self._table())
            rows, before = delta.to_pyarrow_table(), delta.version()
            place = rows.schema.get_field_index("cell_id")
            other = rows.set_column(place, "cell_id", rows["cell_id"].cast(pa.int64()))
            properties = delta.metadata().configuration
            write_deltalake(delta, other, mode="overwrite", schema_mode="overwrite", configuration=properties)
            (self._part.root / "go").touch()
            if not wait(PATIENCE, lambda: REFUSED in log.read_text()[told:]):
                self.complain("another type of a column was refused by nobody")
            if self._version() > before + 1:
                self.complain("somebody wrote to a table with another type of a column")
            DeltaTable(self._table()).restore(before)
            self._replace_dead()

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
            vacuum = Vacuum(
                Location.of(self._table()), self._table().parent.name, 24 * 7, clock=lambda: time.time() + 8 * 86_400
            )
            list(vacuum.remove(vacuum.find()))

    @contextmanager
    def _held_in_flush(self, backup: Path | None = None) -> Iterator[None]:
        """The indexers of the first lake have looked at the table and claimed files, and do not begin their job.

        They have made a commit since the backup, if there is to be one.
        """
        names, copied = self._indexers(), -1
        for name in names:
            self.crew.end(name)
        if backup is not None and (copied := self._version()) >= 0:
            shutil.copytree(self._table(), backup)
        for name in names:
            self._hire(name, held="lake.flush.before_job")
        while not wait(2.0, lambda: self._version() > max(copied, 0)) and self.goes_on():
            self._replace_dead()
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

    def _move_away(self) -> None:
        """What is wrong with the table is gone with it, so that is looked at first."""
        if self._version() >= 0:
            found = indexed(self._table(), "cell_id")
            if twice := found.total() - len(found):
                self.complain(f"{twice} rows are twice in the table that is moved away")
        if self._table().is_dir():
            self._table().rename(self._part.root / f"moved-{time.monotonic_ns()}")

    def _tear_commit_of_another_engine(self) -> None:
        if self._version() < 0:
            return
        DeltaTable(self._table()).alter.set_table_properties({"another.engine": "yes"}, raise_if_not_exists=False)
        newest = self._commits()[-1]
        os.truncate(newest, self.rng.choice((0, newest.stat().st_size // 2)))
        written = newest.stat().st_mtime - BOOT_SECONDS
        os.utime(newest, (written, written))

    def _commits(self) -> list[Path]:
        return sorted(path for path in (self._table() / "_delta_log").glob("*.json") if path.stem.isdigit())

    def _version(self) -> int:
        """-1 if there is no table."""
        return max((int(path.stem) for path in self._commits()), default=-1)

    def _table(self) -> Path:
        return Path(str(Lake(self._part.root / "lake").location(self._part.run_id, TABLE)))

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

    def _watch(self) -> None:
        ticks = self._run.last_tick // self._run.step + 1
        root, _, url, run_id, *_ = self._part
        self.crew.start("onlooker", watch, Onlooker(root, url, run_id, TABLE, ticks))

    def _hire(self, name: str, held: str = "") -> None:
        self.crew.start(name, index, self._part._replace(lake=name.partition("-")[0], held=held))

    def _replace_dead(self) -> None:
        for name in [name for name in self.crew.processes if not self.crew.alive(name)]:
            self.crew.end(name)
            if name.startswith("lake"):
                self._hire(name)
            elif name == "onlooker":
                self.complain(f"who looks at the run has died: {self.crew.last_error()}")
                self._watch()

    def _settled(self) -> bool:
        self._replace_dead()
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
            return indexed(Path(str(Lake(self._part.root / lake).location(self._part.run_id, TABLE))), "cell_id")
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
