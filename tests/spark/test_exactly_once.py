"""Each key is in its table exactly once, however often and in whatever shape its ticks are delivered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.topics import Database

Index = Callable[..., BatchIndexer]


def test_ticks_become_rows(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(*maker.batches(3))
    indexer = index_topic(EnvironmentIndexer)
    assert maker.keys() == sorted(maker.expected_keys(range(300)))
    first = min(maker.rows().to_pylist(), key=lambda one: (one["tick_number"], one["cell_id"]))
    assert first == {
        "tick_number": 0, "cell_id": 0, "x": 0, "y": 0, "z": None, "state": 1 << 16 | (-50 & 0xFFFF),
        "molecule_type": 1 << 16, "molecule_value": -50, "owner_id": 0, "type": 1, "marker": None,
    }  # fmt: skip
    assert indexer.monitor.counter("ticks_processed").value == 300
    assert indexer.monitor.counter("batches_processed").value == 3


def test_organisms_become_rows(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(maker.batch(0, 20, step=10))
    index_topic(OrganismIndexer)
    assert sorted(maker.rows("organism_data").to_pylist(), key=lambda row: row["tick_number"])[2] == {
        "tick_number": 20, "organism_id": 1, "x": 0, "y": 3, "z": None, "energy": 20, "age": 20, "parent_id": None,
        "birth_tick": 0, "program_id": "p", "is_dead": False,
        **dict.fromkeys(("death_tick", "genome_hash", "entropy", "marker", "initial_x", "initial_y", "initial_z")),
        **dict.fromkeys(("opcode", "failure_reason", "energy_cost", "generation", "parent_genome_hash")),
        "instruction_failed": False,
    }  # fmt: skip


def test_a_batch_delivered_three_times_is_there_once(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    batch = maker.batch(0, 49)
    maker.publish(batch, batch, batch)
    index_topic(EnvironmentIndexer)
    maker.publish(batch)
    index_topic(EnvironmentIndexer)
    assert maker.keys() == sorted(maker.expected_keys(range(50)))


def test_overlapping_files_leave_each_tick_once(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(maker.batch(0, 99), maker.batch(50, 149), maker.batch(20, 80), maker.batch(0, 200, step=5))
    index_topic(EnvironmentIndexer)
    assert maker.keys() == sorted(maker.expected_keys([*range(150), *range(150, 201, 5)]))


def test_a_flush_continues_where_a_half_flushed_batch_left_off(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(maker.batch(0, 29))
    index_topic(EnvironmentIndexer)
    maker.publish(maker.batch(0, 99))
    index_topic(EnvironmentIndexer, insert_batch_size=40)
    assert maker.keys() == sorted(maker.expected_keys(range(100)))


def test_indexing_a_finished_run_again_adds_nothing(maker: Any, index_storage: Index) -> None:
    maker.metadata()
    maker.batches(3)
    index_storage(EnvironmentIndexer)
    version = DeltaTable(maker.folder("environment_data")).version()
    again = index_storage(EnvironmentIndexer)
    assert again.monitor.counter("rows_written").value == 0
    assert DeltaTable(maker.folder("environment_data")).version() == version
    assert maker.keys() == sorted(maker.expected_keys(range(300)))


def test_three_files_of_100_with_insert_size_250_are_acknowledged_as_their_last_tick_is_flushed(
    maker: Any,
    resources: IndexerResources,
    database: Database,
    index_metadata: Callable[[], None],
    eventually: Callable[..., None],
) -> None:
    maker.metadata()
    index_metadata()
    maker.publish(*maker.batches(3))
    acked = []
    options = IndexerOptions(maker.run_id, insert_batch_size=250, flush_timeout_ms=1500)
    with EnvironmentIndexer("environment-indexer", resources, options) as indexer:
        eventually(lambda: indexer.monitor.counter("flushes").value == 1)
        acked.append(_acknowledged(database, maker.run_id))
        assert len({tick for tick, _ in maker.keys()}) == 250  # noqa: SIM118
        eventually(lambda: indexer.monitor.counter("flushes").value == 2)
        acked.append(_acknowledged(database, maker.run_id))
    assert acked == [[1, 1, 0], [1, 1, 1]]
    assert maker.keys() == sorted(maker.expected_keys(range(300)))


@pytest.mark.warns("DEAD_LETTER")
def test_a_corrupt_file_among_good_ones_is_set_aside_and_the_rest_is_there(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    good, bad, also_good = maker.batches(3)
    path = Path(maker.storage.url) / bad.storage_key
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))
    maker.publish(good, bad, also_good)
    indexer = index_topic(EnvironmentIndexer, max_delivery_attempts=1)
    assert maker.keys() == sorted(maker.expected_keys([*range(100), *range(200, 300)]))
    assert indexer.monitor.counter("batches_failed").value == 1
    assert bad.storage_key in next(iter(indexer.monitor.errors)).message


def test_a_commit_says_where_its_rows_came_from(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    batch = maker.batch(0, 9)
    maker.publish(batch)
    index_topic(EnvironmentIndexer)
    commit = DeltaTable(maker.folder("environment_data")).history(1)[0]
    (source,) = json.loads(commit["ticklake.sources"])
    assert source["file"] == batch.storage_key
    assert source["ticks"] == [0, 9]
    assert source["message"] and source["claim"] == 1


def _acknowledged(database: Database, run_id: str) -> list[int]:
    with database.run(run_id).transaction() as transaction:
        rows = transaction.execute(
            "SELECT g.acknowledged_at IS NOT NULL FROM topic_messages m LEFT JOIN topic_consumer_group g"
            " ON g.message_id = m.message_id AND g.topic_name = m.topic_name ORDER BY m.id",
            {},
        )
    return [int(row[0] or 0) for row in rows]
