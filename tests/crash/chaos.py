"""A whole pipeline under random faults, checked against what the simulation says: `python tests/crash/chaos.py --help`.

Rounds of a run each: a producer with two persistence services, two instances of each indexer, and a reconciliation, all
processes of their own; in every thirteenth round one instance of each indexer, on a Spark of its own. Faults come
from a seed that is printed. Then everything is left in peace, and checked: every tick in storage, every key once in
each table, every message acknowledged or a dead letter with a reason, no gap, no orphan that vacuum leaves.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import small_disk
import topic_clients
from chaos_child import WORLD
from deltalake.exceptions import DeltaError
from in_process import InProcess
from pipeline import RUN_ID, Pipeline, Server, acknowledged, database, settled
from pyarrow.lib import ArrowException
from torment import Torment
from truth import KEYS, indexed, orphans, simulated

from ticklake import Database
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.storage.files import Storage

TICKS_A_FAULT, FAULTS_A_ROUND, PATIENCE = 50, 25, 180.0
SPARK_ROUNDS, FIRST_ON_SPARK = 13, 3


@dataclass
class Report:
    """What one or more rounds have shown."""

    faults: Counter[str] = field(default_factory=Counter)
    hits: int = 0
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
            f"at a point  {self.hits:,} processes died where they were told to",
            f"ticks       {self.ticks:,}",
            f"rows        {self.rows:,}",
            f"lost        {self.lost:,}",
            f"duplicated  {self.duplicated:,}",
            f"dead        {self.dead_letters:,}",
            f"recovery    p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, slowest {slowest[1]}, {len(times):,} measured",
        ]
        return "\n".join([*lines, *(f"wrong       {complaint}" for complaint in self.complaints)])


def play(
    root: Path,
    url: str,
    seed: int,
    faults: int,
    *,
    bug: str = "",
    server: Server | None = None,
    spark: bool = False,
    only: Collection[str] = (),
) -> Report:
    """One round."""
    rng, report = random.Random(seed), Report()
    pipeline = Pipeline(root, url, bug, spark)
    try:
        torment = Torment(pipeline, rng, server, only)
        wait(pipeline, lambda: all(acknowledged(url).values()))
        for _ in range(faults):
            kind = torment.one()
            pipeline.note(kind)
            report.faults[kind] += 1
            before, begun = acknowledged(url), time.monotonic()
            wait(pipeline, lambda before=before: all(now > before[group] for group, now in acknowledged(url).items()))
            report.recoveries.append((time.monotonic() - begun, kind))
        torment.relent()
        pipeline.let_end(TICKS_A_FAULT * faults)
        wait(pipeline, lambda: settled(pipeline))
    except TimeoutError:
        report.complaints.append(f"seed {seed} stood still for {PATIENCE:.0f} s")
    finally:
        pipeline.close()
    report.hits = pipeline.hits
    check(pipeline, report)
    return report


def wait(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        pipeline.tend()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def check(pipeline: Pipeline, report: Report) -> None:
    """Against the simulation's own record."""
    expected = simulated(WORLD, pipeline.ticks)
    storage, lake = Storage(pipeline.disk / "storage"), Lake(pipeline.disk / "lake")
    stored = {tick for file in storage.every_batch(RUN_ID) for tick in range(file.ticks.start, file.ticks.end + 1)}
    report.ticks = len(stored)
    if missing := set(range(pipeline.ticks)) - stored:
        report.lost += len(missing)
        report.complaints.append(f"{len(missing)} ticks are not in storage")
    for table, key in KEYS.items():
        location = lake.location(RUN_ID, table)
        found = readable(Path(str(location)), key, report)
        report.rows += found.total()
        lost, twice = expected[table] - found.keys(), found.total() - len(found)
        if lost or twice or found.keys() - expected[table]:
            report.complaints.append(
                f"{table}: {len(lost)} lost, {twice} twice, {len(found.keys() - expected[table])} from nowhere"
            )
        report.lost, report.duplicated = report.lost + len(lost), report.duplicated + twice
        if found:
            report.complaints += [f"{path.name} is left behind" for path in orphans(Path(str(location)))]
    with Database(pipeline.url) as database:
        letters = database.run(RUN_ID).dead_letters.list(limit=10_000)
        report.complaints += gaps(Completeness(RUN_ID, storage, Catalog(pipeline.disk / "lake"), database))
    report.dead_letters = len(letters)
    report.complaints += [f"{letter.message_id} is dead for no reason" for letter in letters if not letter.error]


def readable(directory: Path, key: str, report: Report) -> Counter[tuple[int, int]]:
    """What a table holds: nothing, where it cannot be read."""
    try:
        return indexed(directory, key)
    except (OSError, ArrowException, DeltaError) as error:
        report.complaints.append(f"{directory.name} cannot be read: {error}")
        return Counter()


def gaps(run: Completeness) -> list[str]:
    """What the product itself says of the run: `ticklake verify --deep`, which decodes every file again."""
    here: Any = InProcess()
    found = run.verify(spark=here)
    missing = [f"{table.table} has gaps: {table.coverage.missing}" for table in found.tables if table.coverage.missing]
    if found.storage.lost:
        missing.append(f"the storage has gaps: {found.storage.lost}")
    return missing or ([] if found.verdict is Verdict.COMPLETE else [f"the run is {found.verdict}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--acts", type=int, default=100_000, help="of clients of a topic, whose order is checked")
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--only", metavar="FAULT", action="append", default=[], help="no others")
    parser.add_argument("--spark", action="store_true", help="on a Spark in every round, not only in every thirteenth")
    options = parser.parse_args()
    whole, kinds, begun = Report(), options.database or ["sqlite", "postgres"], time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.write(f"seed        {options.seed}\n")
    interrupted = True
    with suppress(KeyboardInterrupt):  # whoever has seen enough gets the report of what was
        for report in play_rounds(options.faults, options.seed, kinds, options.spark, options.only):
            whole.add(report)
        interrupted = False
    sys.stdout.write(f"\nseed        {options.seed}\n{whole.text()}\n")
    violations = 0 if interrupted else check_histories(kinds, options.acts // len(kinds), options.seed)
    sys.stdout.write(f"took        {time.monotonic() - begun:.0f} s\n")
    raise SystemExit(bool(whole.complaints or whole.lost or whole.duplicated or violations))


def play_rounds(
    faults: int, first_seed: int, kinds: Sequence[str], always_spark: bool, only: Collection[str]
) -> Iterator[Report]:
    rounds = max(1, -(-faults // FAULTS_A_ROUND))
    for number in range(rounds):
        kind, seed = kinds[number % len(kinds)], first_seed + number
        spark = always_spark or number % SPARK_ROUNDS == FIRST_ON_SPARK
        with own_disk() as root, database(kind, root / "disk") as (url, server):
            count = min(FAULTS_A_ROUND, faults - number * FAULTS_A_ROUND)
            kept = Path(tempfile.gettempdir()) / f"tl-chaos-{seed}.log"
            try:
                report = play(root, url, seed, count, server=server, spark=spark, only=only)
            except Exception:
                shutil.copy(root / "log", kept)
                raise
            if report.complaints:
                shutil.copy(root / "log", kept)
        seconds, after = max(report.recoveries, default=(0.0, "none"))
        state, where = f"wrong, see {kept}" if report.complaints else "fine", f"{kind}{' and Spark' if spark else ''}"
        slowest = f"slowest recovery {seconds:.1f} s after {after}"
        sys.stdout.write(f"round {number + 1}/{rounds}, {where}, seed {seed}: {count} faults, {state}, {slowest}\n")
        sys.stdout.flush()
        yield report


@contextmanager
def own_disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-chaos-") as folder, small_disk.mounted(Path(folder, "disk")):
        yield Path(folder)


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
    small_disk.enter()
    main()
