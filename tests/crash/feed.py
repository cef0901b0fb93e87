"""An event queue and its indexer in one process, which dies and is begun again: the scene `events`.

In the end the table holds every event that was acknowledged to its sender, once and in order. Between two lives
`verify` must agree with the table, and may not say "complete" while an acknowledged event is missing.
"""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from crew import Crew, wait
from deltalake import DeltaTable
from events_child import acknowledged, append
from in_process import InProcess
from pipeline import Server
from report import Findings, Script

from ticklake import SimulationMetadata, faults
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.contracts import EnvironmentConfig
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.indexers.events import TABLE, EventIndexer
from ticklake.lake.delta import Location
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.storage.files import Storage

ACTS = {
    "kill": 3,
    "kill at a point": 5,  # in the middle of a flush
    "term": 1,
    "compact": 2,  # beside the indexer
    "vacuum": 1,
}
POINTS = ("lake.flush.before_job", "lake.task.written", "lake.commit.before", "lake.commit.after", "events.commit")
PATIENCE, PACE = 30.0, 0.02
MORE = 20
"""Events that are acknowledged between two acts."""


class Place(NamedTuple):
    root: Path
    run_id: str
    fault: str = ""
    drain: bool = False

    @property
    def table(self) -> Path:
        return Path(str(Lake(self.root / "lake").location(self.run_id, TABLE.name)))


def work(place: Place) -> None:
    """Publishes and indexes until it is told to stop; with `drain`, only indexes what is left."""
    faults.arm(place.fault)
    stopped, spark = threading.Event(), InProcess()
    queue: Any = IndexerQueue(place.root / "queue.db", max_attempts=1_000_000)
    with queue:
        indexer = EventIndexer(
            queue, Lake(place.root / "lake"), place.run_id, lambda: spark, max_batches=3, until_drained=place.drain  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        indexer.start()
        if not place.drain:
            _publish(queue, place.root / "acked", stopped)
            indexer.stop(0)
        while not indexer.join(0.2):
            pass
        if indexer.error is not None:
            raise indexer.error


def _publish(queue: IndexerQueue, acked: Path, stopped: threading.Event) -> None:
    bus = EventBus()
    queue.subscribe_to_eventbus(bus)

    def send(thread: int, number: int) -> None:
        while not stopped.wait(PACE):
            bus.publish(Event(f"{thread}-{number}", str(thread), number))
            append(str(acked), f"{thread}-{number}\n")
            number += 1

    threads = [threading.Thread(target=send, args=one) for one in acknowledged(acked).items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play(
    root: Path, url: str, run_id: str, seed: int, acts: int, *, server: Server | None = None, only: Collection[str] = ()
) -> Findings:
    scene = Feed(Place(root, run_id), seed)
    script = Script(ACTS, scene.rng, only)
    try:
        for _ in range(acts if script else 0):
            scene.until_more()
            scene.act(script.draw())
        scene.until_more()
        scene.end()
    except TimeoutError as error:
        scene.complain(str(error))
    finally:
        scene.crew.close()
    return scene.findings


class Feed:
    def __init__(self, place: Place, seed: int) -> None:
        self.crew, self.rng, self.findings = Crew(place.root), random.Random(seed), Findings()
        self._place, self._seed = place, seed
        environment = EnvironmentConfig(dimensions=2, shape=(2, 2), toroidal=[True, True])
        Storage(place.root / "storage").write_metadata(
            SimulationMetadata(
                simulation_run_id=place.run_id, environment=environment, sampling_interval=1, format_version=1
            )
        )
        self._start()

    def act(self, name: str) -> None:
        self.findings.acts[name] += 1
        getattr(self, f"_{name.replace(' ', '_')}")()

    def until_more(self) -> None:
        before = sum(self._acknowledged().values())

        def more() -> bool:
            if not self.crew.alive("feed"):
                self._begin_again()
            return sum(self._acknowledged().values()) >= before + MORE

        if not wait(PATIENCE, more):
            raise TimeoutError(f"no event is accepted: {self.crew.last_error()}")

    def end(self) -> None:
        if code := self.crew.end("feed", signal.SIGTERM):
            self.complain(f"it ended with {code} when it was told to stop: {self.crew.last_error()}")
        self.crew.start("drain", work, self._place._replace(drain=True))
        if not self.crew.join("drain", PATIENCE):
            raise TimeoutError(f"the queue does not end: {self.crew.last_error()}")
        if code := self.crew.end("drain"):
            self.complain(f"what was left could not be indexed: {self.crew.last_error()}")
        self._look()
        found = self._events()
        self.findings.figures.update(events=len(found))
        for thread, following in self._acknowledged().items():
            numbers = [int(event.split("-")[1]) for event in found if event.startswith(f"{thread}-")]
            # What was sent and not acknowledged may be there, and is sent again.
            if missing := {*range(following)} - {*numbers}:
                self.complain(f"{len(missing)} of {following} acknowledged events of sender {thread} are missing")
            if [*dict.fromkeys(numbers)] != sorted({*numbers}):
                self.complain(f"the events of sender {thread} are out of order")

    # Acts

    def _kill(self) -> None:
        self.crew.end("feed")
        self._begin_again()

    def _kill_at_a_point(self) -> None:
        self.crew.end("feed")
        self._start(f"{self.rng.choice(POINTS)}:kill:{self.rng.randint(1, 3)}")
        if not self.crew.join("feed", PATIENCE):
            self.findings.figures["missed"] += 1
        self._begin_again()

    def _term(self) -> None:
        if code := self.crew.end("feed", signal.SIGTERM):
            self.complain(f"it ended with {code} when it was told to stop: {self.crew.last_error()}")
        self._begin_again()

    def _compact(self) -> None:
        if (self._place.table / "_delta_log").is_dir():
            for _ in Compaction(Ledger(Location.of(self._place.table), TABLE, create=False), BY_HAND).steps():
                pass

    def _vacuum(self) -> None:
        if (self._place.table / "_delta_log").is_dir():
            vacuum = Vacuum(Location.of(self._place.table), self._place.table.parent.name, 0, force=True)
            list(vacuum.remove(vacuum.find()))

    # The scene

    def _start(self, fault: str = "") -> None:
        self.crew.start("feed", work, self._place._replace(fault=fault))

    def _begin_again(self) -> None:
        """Nobody is at work: what `verify` says must be so."""
        if "feed" in self.crew.processes:
            self.crew.end("feed")
        self._look()
        self._start()

    def _look(self) -> None:
        queue = self._place.root / "queue.db"
        if not (self._place.table / "_delta_log").is_dir() or not queue.exists():
            return
        catalog, storage = Catalog(self._place.root / "lake"), Storage(self._place.root / "storage")
        (table,) = Completeness(self._place.run_id, storage, catalog, events=queue).verify([TABLE.name]).tables
        events = self._events()
        self.findings.figures["looks"] += 1
        if table.rows != len(events) or table.duplicated or table.disagreements:
            self.complain(f"verify says {table.rows} rows of {len(events)}, {table.duplicated} twice")
        lost = [
            f"{thread}-{number}"
            for thread, following in self._acknowledged().items()
            for number in range(following)
            if f"{thread}-{number}" not in {*events}
        ]
        if table.verdict is Verdict.COMPLETE and lost:
            self.complain(f"verify says complete, and {len(lost)} acknowledged events are missing")

    def _events(self) -> list[str]:
        rows = DeltaTable(self._place.table).to_pyarrow_table(columns=["batch_number", "position", "event_id"])
        found: list[str] = rows.sort_by([("batch_number", "ascending"), ("position", "ascending")])[
            "event_id"
        ].to_pylist()
        twice = Counter(zip(rows["batch_number"].to_pylist(), rows["position"].to_pylist(), strict=True))
        if keys := [key for key, count in twice.items() if count > 1]:
            self.complain(f"{len(keys)} keys are there twice")
        return found

    def _acknowledged(self) -> dict[int, int]:
        return acknowledged(self._place.root / "acked")

    def complain(self, what: str) -> None:
        acts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.acts.items()))
        self.findings.complaints.append(f"seed {self._seed}: {what} (acts: {acts or 'none'})")
