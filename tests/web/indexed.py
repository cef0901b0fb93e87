"""A small real run for the pages: simulated, stored, announced and indexed, with a dead letter; no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from in_process import InProcess

from ticklake.contracts import BatchInfo
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import encode_ticks
from ticklake.storage.files import Storage
from ticklake.topics import Database, Run

RUN_ID = "20261014-143025-550e8400"
SCRIPT = "<script>document.title='taken over'</script>"
GROUP = f"audit {SCRIPT}"


def make_run(root: Path, shape: tuple[int, int] = (120, 80), ticks: int = 120, organisms: int = 40) -> str:
    storage, url = Storage(root / "storage"), f"sqlite:///{root / 'database'}"
    world = Ecosystem(SimulationSettings(shape=shape, seed=7, organisms=organisms))
    storage.write_metadata(world.metadata(RUN_ID, 1_790_000_000_000))
    with Database(url) as database:
        run = database.run(RUN_ID)
        with run.writer("batch-topic") as writer:
            for start in range(0, ticks, 20):
                writer.send(_batch(storage, world, start))
            _index(root, storage, database)
            writer.send(_batch(storage, world, ticks))  # one that nobody has indexed yet
        _fail_one(run)
    return url


def make_topic(database: Database) -> None:
    """Two messages, one of which a group has given up on."""
    run = database.run(RUN_ID)
    with run.writer("batch-topic") as writer:
        writer.send_many([BatchInfo(simulation_run_id=RUN_ID, tick_start=at, tick_end=at) for at in range(2)])
    _fail_one(run)


def _fail_one(run: Run) -> None:
    with run.reader("batch-topic", group=GROUP, max_delivery_attempts=1) as reader:
        message = reader.poll(5)
        assert message is not None
        try:
            raise ValueError(SCRIPT)
        except ValueError as error:
            assert reader.fail(message, error)


def _batch(storage: Storage, world: Ecosystem, start: int) -> BatchInfo:
    seen = []
    for _ in range(20):
        seen.append(world.columns(1_790_000_000_000 + world.tick))
        world.step()
    file = storage.write_batch(RUN_ID, encode_ticks(RUN_ID, seen))
    return BatchInfo(
        simulation_run_id=RUN_ID, storage_key=file.key, tick_start=file.ticks.start, tick_end=file.ticks.end
    )


def _index(root: Path, storage: Storage, database: Database) -> None:
    spark: Any = InProcess()
    resources = IndexerResources(storage, Lake(root / "lake"), database, spark=lambda: spark)
    MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
    for kind, name in ((EnvironmentIndexer, "environment-indexer"), (OrganismIndexer, "organism-indexer")):
        kind(name, resources, IndexerOptions(RUN_ID, until_caught_up=True)).run()
