"""One node and 1,000 runs with a small backlog each: how long a live run waits for its rows, and what this costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench.processes import Peak, processor_seconds
from bench.results import Figure, Section
from deltalake import DeltaTable

from ticklake.contracts import BatchInfo, MetadataInfo
from ticklake.services.closing import end_of
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage import EncodedTick, Storage, encode_ticks
from ticklake.topics import Database, Run

COMMAND = "from ticklake.cli import main; main()"
PRODUCERS = ("simulation", "metadata-persistence-service", "persistence-service", "completion-service")
GROUPS = ("environment-indexer", "organism-indexer")
LIVE = "20261101-120000-live0000"
TICKS_A_FILE = 10
GAP = 0.25
WARM_UP = 10.0
LIVE_SECONDS = 60.0
CALM_SECONDS = 65.0
"""An indexer asks a run again for a minute after its last change."""
REST_SECONDS = 20.0


class Held(NamedTuple):
    """What a node has held at most, and what it has used of a core while nothing happened."""

    mebibytes: float
    files: int
    idle_share: float


def measure(directory: Path, runs: int = 1000) -> Section:
    without, idle, _ = observe(directory / "idle", 1)
    latency, held, seconds = observe(directory / "backlog", runs)
    return Section(
        "Many runs in one node",
        "A node with the configuration of `ticklake init`, without its simulation, in a process of its own."
        f" {runs:,} ended runs with three small files each wait for it, announced on SQLite. Meanwhile another process"
        f" writes a live run: {TICKS_A_FILE} ticks every {GAP} s for {LIVE_SECONDS:.0f} s. The same is measured with"
        " one old run, which is complete before the live one begins. A reader opens `environment_data` again and again."
        " Flushes wait 5 s for more files, so a file is visible after 2.5 s on average at best. Memory is the"
        " proportional set size of JVM, driver and workers together. The idle share is measured a minute after all"
        " runs are complete.",
        [
            Figure("publication to visible, idle node, median", without[49], "s"),
            Figure("publication to visible, idle node, p95", without[94], "s"),
            Figure(f"publication to visible, {runs:,} runs, median", latency[49], "s"),
            Figure(f"publication to visible, {runs:,} runs, p95", latency[94], "s"),
            Figure("median ÷ idle node's", latency[49] / without[49], "times", at_most=2),
            Figure("p95 ÷ idle node's", latency[94] / without[94], "times", at_most=2),
            Figure(f"until {runs:,} runs are complete", seconds, "seconds"),
            Figure("peak memory, idle node", idle.mebibytes, "MiB"),
            Figure(f"peak memory, {runs:,} runs", held.mebibytes, "MiB", at_most=3072),
            Figure("open files of the driver, idle node, at most", idle.files, "files"),
            Figure(f"open files of the driver, {runs:,} runs, at most", held.files, "files", at_most=300),
            Figure("idle node", idle.idle_share, "of a core"),
            Figure(f"idle node with {runs:,} complete runs", held.idle_share, "of a core", at_most=0.1),
        ],
    )


def observe(directory: Path, runs: int) -> tuple[list[float], Held, float]:
    """Returns the percentiles of the live run's latency, what the node has held, and the seconds until all is done."""
    directory.mkdir()
    old = [f"20261001-{number // 3600:02}{number // 60 % 60:02}{number % 60:02}-{number:08}" for number in range(runs)]
    configure(directory)
    produce_all(directory, old)
    started = time.monotonic()
    with node(directory) as pid, Peak(pid) as peak, OpenFiles(pid) as files:
        wait_until(partial(is_done, directory, old[-1]))  # Spark is warm then
        seconds = live(directory)
        for run_id in [LIVE, *old]:
            wait_until(partial(is_done, directory, run_id))
        done = time.monotonic() - started
        time.sleep(CALM_SECONDS if len(old) > 1 else 0)
        used, since = processor_seconds(pid), time.monotonic()
        time.sleep(REST_SECONDS)
        share = (processor_seconds(pid) - used) / (time.monotonic() - since)
    return quantiles(seconds, n=100), Held(peak.mebibytes, files.most, share), done


def configure(directory: Path) -> None:
    """Writes the configuration of `ticklake init`, without the services that produce a run."""
    subprocess.run([sys.executable, "-c", COMMAND, "init"], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    file = directory / "ticklake.conf"
    text = file.read_text()
    for name in PRODUCERS:
        text, count = re.subn(rf"^  {name} {{\n(?:   .*\n)*  }}\n", "", text, flags=re.MULTILINE)
        assert count == 1
    file.write_text(text)


@contextmanager
def node(directory: Path) -> Iterator[int]:
    """A node that is ready."""
    command = [sys.executable, "-c", COMMAND, "run", "ticklake.conf"]
    child = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        assert any(line.startswith("Running") for line in child.stderr)
        printing = threading.Thread(target=sys.stderr.writelines, args=(child.stderr,), daemon=True)
        printing.start()
        yield child.pid
    finally:
        child.terminate()
        child.wait()


class OpenFiles:
    """Remembers the most files and connections that a process had open."""

    def __init__(self, pid: int, seconds: float = 0.5) -> None:
        self._pid, self._seconds = pid, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0

    def __enter__(self) -> OpenFiles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            self.most = max(self.most, sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir()))


class Producer:
    """Writes and announces runs. All runs have the same ticks."""

    def __init__(self, directory: Path) -> None:
        self.storage = Storage(directory / "data" / "storage")
        self._world = Ecosystem(SimulationSettings(shape=(16, 16), seed=7))
        self._ticks: list[EncodedTick] = []

    def begin(self, run: Run) -> None:
        key = self.storage.write_metadata(self._world.metadata(run.id, 0))
        with run.writer("metadata-topic") as writer:
            writer.send(MetadataInfo(simulation_run_id=run.id, storage_key=key))

    def write(self, run: Run, number: int) -> BatchInfo:
        ticks = self._file(number)
        renamed = [EncodedTick(one.number, one.data.replace(LIVE.encode(), run.id.encode())) for one in ticks]
        file = self.storage.write_batch(run.id, renamed)
        return BatchInfo(simulation_run_id=run.id, storage_key=file.key)

    def _file(self, number: int) -> list[EncodedTick]:
        while len(self._ticks) < (number + 1) * TICKS_A_FILE:
            self._ticks += encode_ticks(LIVE, [self._world.columns(0)])
            self._world.step()
        return self._ticks[number * TICKS_A_FILE : (number + 1) * TICKS_A_FILE]


def database(directory: Path) -> Database:
    return Database(f"sqlite:///{directory / 'data' / 'database'}")


def produce_all(directory: Path, run_ids: list[str], files: int = 3) -> None:
    """Writes ended runs."""
    producer = Producer(directory)
    for run_id in run_ids:
        with database(directory) as opened:
            run = opened.run(run_id)
            producer.begin(run)
            with run.writer("batch-topic") as writer:
                writer.send_many([producer.write(run, number) for number in range(files)])
            producer.storage.write_completion(end_of(run_id, files * TICKS_A_FILE - 1))


def live(directory: Path) -> list[float]:
    """Has another process write the live run. Returns the seconds until the rows of each file were visible."""
    command = [sys.executable, "-m", "bench.many_runs", str(directory)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen: dict[int, float] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(directory, seen, ended), daemon=True)
    watcher.start()
    published = dict(map(json.loads, child.stdout))
    assert child.wait() == 0
    last = max(published)
    wait_until(lambda: max(seen, default=-1) >= last)
    ended.set()
    watcher.join()
    first = min(published.values()) + WARM_UP
    visible = {tick: min(moment for highest, moment in seen.items() if highest >= tick) for tick in published}
    return [visible[tick] - moment for tick, moment in published.items() if moment >= first]


def watch(directory: Path, seen: dict[int, float], ended: threading.Event) -> None:
    """Notes when the highest tick of the live run's table has grown."""
    table = directory / "data" / "lake" / LIVE / "environment_data"
    while not ended.wait(0.05):
        if not DeltaTable.is_deltatable(str(table)):
            continue
        highest = max(DeltaTable(table).get_add_actions(flatten=True)["max.tick_number"].to_pylist(), default=-1)
        seen.setdefault(highest, time.monotonic())


def is_done(directory: Path, run_id: str) -> bool:
    """Returns whether all indexers of batch files have acknowledged all messages of a run."""
    with database(directory) as opened:
        lags = {one.group: one.lag for one in opened.run(run_id, create=False).groups.list("batch-topic")}
    return all(lags.get(group) == 0 for group in GROUPS)


def wait_until(condition: Callable[[], bool], seconds: float = 1200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds")
        time.sleep(0.5)


def main(directory: Path) -> None:
    """Writes the live run. Prints the last tick of each file and when it was announced."""
    producer = Producer(directory)
    until = time.monotonic() + LIVE_SECONDS
    with database(directory) as opened:
        run = opened.run(LIVE)
        producer.begin(run)
        with run.writer("batch-topic") as writer:
            number = 0
            while time.monotonic() < until:
                info = producer.write(run, number)
                writer.send(info)
                number += 1
                print(json.dumps([number * TICKS_A_FILE - 1, time.monotonic()]), flush=True)
                time.sleep(GAP)
    producer.storage.write_completion(end_of(LIVE, number * TICKS_A_FILE - 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
