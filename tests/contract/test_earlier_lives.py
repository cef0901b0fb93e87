"""A restarted node takes over what its earlier processes held, and nothing of anybody else, on every database."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ticklake import BatchInfo, Database
from ticklake.indexers import suspects
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches
from ticklake.indexers.subscription import open_reader
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.topics import Run, TopicReader

TOPIC, GROUP = "batch-topic", "indexer"
NODE, OTHER = "node-0123456789abcdef", "node-fedcba9876543210"
Open = Callable[..., TopicReader]


@pytest.fixture
def open_as(run: Run, database: Database, tmp_path) -> Open:
    """Opens a reader of a process. Nobody closes it: its process is killed, or lives."""

    def open_as(life: str, is_over: Callable[[str], bool] | None = None) -> TopicReader:
        storage = Storage(tmp_path / "storage")
        resources = IndexerResources(storage, database=database, consumer=lambda: life, is_over=is_over)
        return open_reader(resources, run, TOPIC, GROUP, IndexerOptions())

    return open_as


@pytest.fixture(autouse=True)
def messages(run: Run, batch: Callable[[int], BatchInfo]) -> None:
    with run.writer(TOPIC) as writer:
        writer.send_many([batch(number) for number in range(3)])


def test_a_restarted_node_takes_over_at_once(open_as: Open) -> None:
    killed = open_as(f"{NODE}/00000001")
    held = killed.poll_many(10, 5)
    assert len(held) == 3
    with open_as(f"{NODE}/00000002") as reader:
        taken = reader.poll_many(10, 5)
        assert [one.id for one in taken] == [one.id for one in held]
        reader.ack_many(taken)


@pytest.mark.warns("STALE_ACK")
def test_what_a_paused_process_held_is_refused_when_it_wakes_up(open_as: Open, run: Run) -> None:
    paused = open_as(f"{NODE}/00000001")
    held = paused.poll_many(10, 5)
    with open_as(f"{NODE}/00000002") as reader:
        taken = reader.poll_many(10, 5)
        assert not any(paused.ack_many(held))
        assert all(reader.ack_many(taken))
    assert [one.lag for one in run.groups.list(TOPIC)] == [0]


@pytest.mark.parametrize("alive", [f"{OTHER}/00000001", f"{NODE}2/00000001", f"{NODE}/00000002", ""])
def test_claims_of_a_process_that_may_be_alive_stay(alive: str, open_as: Open) -> None:
    """Another node, a node whose name begins in the same way, another indexer of this process, or somebody unknown."""
    held = open_as(alive).poll_many(10, 5)
    assert len(held) == 3
    with open_as(f"{NODE}/00000002") as reader:
        assert reader.poll_many(10, 0) == []


def test_a_node_that_is_killed_often_loses_no_message(open_as: Open, run: Run) -> None:
    """A kill says nothing about the messages that the process held."""
    for life in range(20):
        assert open_as(f"{NODE}/{life:08x}").poll_many(10, 5)
    assert [(one.lag, one.dead_letters) for one in run.groups.list(TOPIC)] == [(3, 0)]


def test_nodes_that_compete_are_killed_often_and_lose_no_message(open_as: Open, run: Run) -> None:
    """Only what ended processes held is released, and these deliveries do not count as attempts."""
    for life in range(20):
        assert open_as(f"{NODE}/{life:08x}", lambda _: True).poll_many(10, 5)
    assert [(one.lag, one.dead_letters) for one in run.groups.list(TOPIC)] == [(3, 0)]
    with open_as(f"{NODE}/00000100", lambda life: life != f"{19:08x}") as reader:
        assert len(reader.poll_many(10, 0)) < 3  # the last one is alive


@pytest.mark.warns("is indexed alone: it may have ended earlier processes")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_message_that_ends_its_process_comes_alone_and_is_never_given_up(
    place: int, open_as: Open, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever claims it dies, with all that it holds. The others are delivered without it, and acknowledged."""
    monkeypatch.setattr(suspects, "LONGEST", 0.2)
    with open_as(f"{NODE}/ffffffff") as reader, run.writer(TOPIC) as writer:
        reader.ack_many(reader.poll_many(10, 5))
        for tick in range(3):
            key = f"{run.id}/batch_{tick:010d}_{tick:010d}.pb"
            (tmp_path / "storage" / run.id).mkdir(parents=True, exist_ok=True)
            (tmp_path / "storage" / key).touch()
            writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=tick, tick_end=tick))
    culprit = run.browse_last(TOPIC, 3)[place].message_id
    done = 0
    for life in range(20):
        monkeypatch.setattr(suspects, "STARTED", time.monotonic())
        reader = open_as(f"{NODE}/{life:08x}")
        batches = TopicBatches(run, reader, 600, Storage(tmp_path / "storage"), Monitor("test"), None)
        while not (found := batches.poll(10, 1)) or culprit not in [one.message.id for one in found if one.message]:
            batches.done(found)
            done += len(found)
        assert len(found) == 1 or life < 5
    assert done == 2
    assert [(one.lag, one.dead_letters) for one in run.groups.list(TOPIC)] == [(1, 0)]


def test_many_kills_and_releases_of_a_healthy_message_never_bury_it(open_as: Open, run: Run) -> None:
    with open_as(f"{NODE}/00000000") as reader:
        for _ in range(40):
            reader.release(reader.poll_many(10, 0))
    for life in range(1, 40):
        assert open_as(f"{NODE}/{life:08x}").poll_many(10, 0)
    assert [(one.lag, one.dead_letters) for one in run.groups.list(TOPIC)] == [(3, 0)]
