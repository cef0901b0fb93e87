"""A whole pipeline in one process, for its disk to be recorded; the same after a power cut, from what is left of it.

`powercut_child.py ROOT MARKS` is the first: a simulation, two persistence services, two instances of an indexer and one
of another, compaction; whatever it was told is safe, it writes to MARKS. `go_on` is the second.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from in_process import InProcess
from truth import KEYS, indexed, orphans, simulated

from ticklake import Database
from ticklake.coordination.reconcile import announced, compare, publish, stored
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta import log as delta_log
from ticklake.lake.lake import Lake
from ticklake.lake.metadata import read_metadata
from ticklake.lake.upkeep.compaction import Policy
from ticklake.lake.verify.coverage import covered
from ticklake.services.base import Service
from ticklake.services.compaction import CompactionService
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.services.simulation import SimulationService
from ticklake.simulation import SimulationSettings
from ticklake.storage.files import Storage
from ticklake.topics import TopicWriter

RUN_ID = "20251014-143025-550e8400"
WORLD = SimulationSettings((8, 8), organisms=3)
TICKS, BATCH, AHEAD = 120, 4, 6
TABLES = {"environment-indexer": "environment_data", "organism-indexer": "organism_data"}


class Place:
    """Where a pipeline is."""

    def __init__(self, root: Path) -> None:
        self.storage, self.lake = Storage(root / "storage"), Lake(root / "lake")
        self.url = f"sqlite:///{root / 'db'}"

    def indexers(self, database: Callable[[], Database], until_caught_up: bool = False) -> list[Indexer]:
        spark: Any = InProcess()
        options = IndexerOptions(
            RUN_ID, poll_interval_ms=20, insert_batch_size=2 * BATCH, flush_timeout_ms=50, claim_timeout=60,
            max_delivery_attempts=1000, until_caught_up=until_caught_up,
        )  # fmt: skip

        def made(kind: Any, name: str) -> Indexer:
            resources = IndexerResources(self.storage, self.lake, database(), spark=lambda: spark)
            indexer: Indexer = kind(name, resources, options)
            return indexer

        return [
            made(MetadataIndexer, "metadata-indexer"),
            made(EnvironmentIndexer, "environment-indexer"),
            made(OrganismIndexer, "organism-indexer"),
            *([] if until_caught_up else [made(EnvironmentIndexer, "environment-indexer")]),
        ]

    def producing(self, database: Database) -> list[Service]:
        """Goes on a little before the end of what is stored, as one does who is not sure."""
        run, queue = database.run(RUN_ID), TickQueue(max_ticks=50)
        simulation = SimulationService(RUN_ID, WORLD, queue, TICKS, clock=lambda: 0.0)
        for _ in range(self._reached() - AHEAD):
            simulation._world.step()
        options = PersistenceOptions(max_batch_size=BATCH, batch_timeout_seconds=0.2)
        return [
            MetadataPersistenceService(run, self.storage, simulation.metadata),
            PersistenceService(run, self.storage, queue, options, name="persistence-service-1"),
            PersistenceService(run, self.storage, queue, options, name="persistence-service-2"),
            CompletionService(run, self.storage, queue, clock=lambda: 0.0),
            simulation,
        ]

    def _reached(self) -> int:
        following = 0
        for file in self.storage.every_batch(RUN_ID):
            if file.ticks.start <= following:
                following = max(following, file.ticks.end + 1)
        return following


def main(root: str, marks: str) -> None:
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    tell(lambda text: os.write(descriptor, f"{text}\n".encode()))
    # Often enough to meet one: a pipeline of this size would have none.
    delta_log._CHECKPOINT_EVERY = 6
    place = Place(Path(root))
    indexers = place.indexers(lambda: Database(place.url))
    compaction = CompactionService(Path(str(place.lake.root)), 0.05, policy=Policy(fan_in=4))
    with Database(place.url) as database:
        producing = place.producing(database)
        _start([*indexers, compaction, *producing])
        _end(producing)
        while not _settled(database):
            time.sleep(0.02)
    for service in [*indexers, compaction]:
        service.stop()
    _end([*indexers, compaction])


def tell(say: Callable[[str], object]) -> None:
    """Says what is promised: a file that is written, a message that is sent, rows whose batch is about to be acked."""

    def after(kind: Any, name: str, what: Callable[..., Sequence[str]]) -> None:
        inner = getattr(kind, name)

        def outer(self: Any, *arguments: Any, **options: Any) -> Any:
            result = inner(self, *arguments, **options)
            for text in what(self, result, *arguments):
                say(text)
            return result

        setattr(kind, name, outer)

    after(Storage, "write_batch", lambda _, file, *__: [f"file {file.key}"])
    after(Storage, "write_metadata", lambda _, key, *__: [f"file {key}"])
    after(
        TopicWriter,
        "send_many",
        lambda self, _, messages, **__: [f"message {self.topic} {m.storage_key}" for m in messages if _has_key(m)],
    )
    ack = TopicBatches.done

    def done(self: Any, deliveries: Any) -> None:
        for one in deliveries:
            say(f"rows {TABLES[self._reader.group]} {one.ticks.start} {one.ticks.end}")
        ack(self, deliveries)

    TopicBatches.done = done  # type: ignore[method-assign]
    write = MetadataIndexer.write

    def written(self: Any, run_id: str, key: str | None = None) -> None:
        write(self, run_id, key)
        say("metadata")

    MetadataIndexer.write = written  # type: ignore[method-assign]


def missing(root: Path, promised: Sequence[str]) -> list[str]:
    """What was promised and is not there, right after the power is back."""
    place = Place(root)
    with Database(place.url) as database:
        known = RUN_ID in database.runs()
        topics = ("batch-topic", "metadata-topic")
        heard = {(topic, key) for topic in topics for key in (_keys(database, topic) if known else ())}
    ticks = {kind.table.name: _ticks(place, kind) for kind in (EnvironmentIndexer, OrganismIndexer)}
    lost: list[str] = []
    for text in promised:
        kind, *words = text.split()
        there = (
            place.storage.exists(words[0]) and _reads(place.storage, words[0])
            if kind == "file"
            else (words[0], words[1]) in heard
            if kind == "message"
            else ticks[words[0]].issuperset(range(int(words[1]), int(words[2]) + 1))
            if kind == "rows"
            else read_metadata(place.lake.location(RUN_ID, "metadata"), RUN_ID) is not None
        )
        lost += [] if there else [text]
    return lost


def go_on(root: Path) -> None:
    """The power is back: everything is begun again, and goes on to the end."""
    place = Place(root)
    with Database(place.url) as database:
        run = database.run(RUN_ID)
        if place.storage.read_completion(RUN_ID) is None:
            producing = place.producing(database)
            _start(producing)
            _end(producing)
        elif not _keys(database, "metadata-topic"):
            raise AssertionError("a run that is complete has no metadata")
        publish(run, place.storage, compare(stored(place.storage, RUN_ID), announced(run)).unannounced)
        run.claims.release(run.claims.list())
        for indexer in place.indexers(lambda: database, until_caught_up=True):
            _start([indexer])
            _end([indexer])


def wrong(root: Path) -> list[str]:
    """What is not as it should be at the end: lost, doubled, or left behind."""
    place, found = Place(root), list[str]()
    stored_ticks = {tick for file in place.storage.every_batch(RUN_ID) for tick in range(*_bounds(file))}
    if stored_ticks != set(range(TICKS)):
        found.append(f"lost: {len(set(range(TICKS)) - stored_ticks)} ticks are not in storage")
    for table, key in KEYS.items():
        location = place.lake.location(RUN_ID, table)
        there = indexed(Path(str(location)), key)
        if lost := expected()[table] - there.keys():
            found.append(f"lost: {len(lost)} keys of {table}")
        if there.total() != len(there):
            found.append(f"doubled: {there.total() - len(there)} keys of {table}")
        if there.keys() - expected()[table]:
            found.append(f"from nowhere: {len(there.keys() - expected()[table])} keys of {table}")
        found += [f"left behind: {path}" for path in orphans(Path(str(location)))]
    with Database(place.url) as database:
        letters = database.run(RUN_ID).dead_letters.list(limit=1000)
    return found + [f"dead: {letter.error}" for letter in letters]


@cache
def expected() -> dict[str, set[tuple[int, int]]]:
    return simulated(WORLD, TICKS)


def _bounds(file: Any) -> tuple[int, int]:
    return file.ticks.start, file.ticks.end + 1


def _has_key(message: Any) -> bool:
    return "storage_key" in message.DESCRIPTOR.fields_by_name


def _keys(database: Database, topic: str) -> list[str]:
    opened = (stored.opened() for stored in database.run(RUN_ID).browse(topic, limit=10_000))
    return [one.payload.storage_key for one in opened if one]  # type: ignore[attr-defined]


def _reads(storage: Storage, key: str) -> bool:
    with storage.open(key) as stream:
        return bool(stream.read())


def _ticks(place: Place, kind: Any) -> set[int]:
    """Those of a table that is opened as an indexer opens it."""
    return set(covered(place.lake.ledger(RUN_ID, kind.table).location).ticks.tolist())


def _settled(database: Database) -> bool:
    run = database.run(RUN_ID)
    groups = [status for status in run.groups.list("batch-topic") if status.group in TABLES]
    return len(groups) == len(TABLES) and not any(status.lag for status in groups)


def _start(services: Sequence[Service]) -> None:
    for service in services:
        service.start()


def _end(services: Sequence[Service]) -> None:
    for service in services:
        service.join()
        if service.error is not None:
            raise service.error


if __name__ == "__main__":
    main(*sys.argv[1:])
