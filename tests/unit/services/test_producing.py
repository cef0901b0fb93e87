"""Metadata, the end of a run, the simulation as a service, and the short way to all of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticklake import Database
from ticklake.contracts import RunCompleted, SimulationMetadata
from ticklake.defaults import BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC
from ticklake.errors import StoredFileConflict, WriteKeepsFailing
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.producer import Producer
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.services.simulation import SimulationService
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.columns import EncodedTick
from ticklake.storage.files import Storage
from ticklake.topics import Run

RUN_ID = "20251014-143025-550e8400"
SOON = 20.0
NEVER = 3600.0
QUICK = Retry(attempts=3, first_delay=0.001)
SMALL = SimulationSettings(shape=(12, 16), organisms=5)


class FullStorage(Storage):
    """A real storage on a disk that is full for the next `failures` writes of metadata or of the end."""

    failures = 0

    def write_metadata(self, metadata: SimulationMetadata) -> str:
        self._fail()
        return super().write_metadata(metadata)

    def write_completion(self, completed: RunCompleted) -> str:
        self._fail()
        return super().write_completion(completed)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def storage(tmp_path: Path) -> FullStorage:
    (tmp_path / "storage" / RUN_ID).mkdir(parents=True)  # as its metadata leaves it
    return FullStorage(str(tmp_path / "storage"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        yield database


@pytest.fixture
def run(database: Database) -> Run:
    return database.run(RUN_ID)


@pytest.fixture
def metadata() -> SimulationMetadata:
    return Ecosystem(SMALL).metadata(RUN_ID, 1_000)


def payloads(run: Run, topic: str) -> list[object]:
    with run.reader(topic, group="test") as reader:
        found = reader.poll_many(1000, timeout=0)
        reader.ack_many(found)
        return [message.payload for message in found]


def ended(service: MetadataPersistenceService | CompletionService) -> str:
    service.start()
    assert service.join(SOON)
    return service.state


def test_metadata_is_written_then_announced(run: Run, storage: Storage, metadata: SimulationMetadata) -> None:
    assert ended(MetadataPersistenceService(run, storage, metadata)) == "stopped"
    (info,) = payloads(run, METADATA_TOPIC)
    assert info.simulation_run_id == RUN_ID
    assert info.storage_key == f"{RUN_ID}/metadata.pb.zst"
    assert storage.read_metadata_file(info.storage_key) == metadata == storage.read_metadata(RUN_ID)


def test_metadata_is_written_and_announced_once_however_often_the_service_starts(
    run: Run, storage: Storage, metadata: SimulationMetadata
) -> None:
    service = MetadataPersistenceService(run, storage, metadata)
    assert [ended(service), ended(service)] == ["stopped", "stopped"]
    assert len(payloads(run, METADATA_TOPIC)) == 1
    assert service.monitor.counter("metadata_written").value == 1


def test_metadata_left_by_a_crash_before_its_message_is_announced(
    run: Run, storage: Storage, metadata: SimulationMetadata
) -> None:
    storage.write_metadata(metadata)
    assert ended(MetadataPersistenceService(run, storage, metadata)) == "stopped"
    assert len(payloads(run, METADATA_TOPIC)) == 1


@pytest.mark.warns("already exists")
def test_a_second_producer_with_the_same_run_id_is_refused(
    run: Run, storage: Storage, metadata: SimulationMetadata
) -> None:
    storage.write_metadata(Ecosystem(SimulationSettings(seed=7)).metadata(RUN_ID, 2_000))
    service = MetadataPersistenceService(run, storage, metadata, QUICK)
    assert ended(service) == "error"
    assert isinstance(service.error, StoredFileConflict)
    assert payloads(run, METADATA_TOPIC) == []


@pytest.mark.warns("No space left")
def test_metadata_that_cannot_be_written_is_an_error_and_is_written_after_the_next_start(
    run: Run, storage: FullStorage, metadata: SimulationMetadata
) -> None:
    storage.failures = QUICK.attempts
    service = MetadataPersistenceService(run, storage, metadata, QUICK)
    assert ended(service) == "error"
    assert isinstance(service.error, WriteKeepsFailing)
    assert ended(service) == "stopped"
    assert service.monitor.counter("write_retries").value == QUICK.attempts - 1
    assert len(payloads(run, METADATA_TOPIC)) == 1


def test_the_end_of_a_run_comes_after_its_last_tick_is_written(run: Run, storage: Storage) -> None:
    queue = TickQueue()
    completion = CompletionService(run, storage, queue)
    completion.start()
    queue.put(EncodedTick(0, b"a"))
    queue.put(EncodedTick(10, b"b"))
    queue.close()
    taken = queue.pop(100, NEVER)
    assert not completion.join(0.02)
    assert storage.read_completion(RUN_ID) is None
    queue.done(len(taken))
    assert completion.join(SOON)
    (end,) = payloads(run, RUN_TOPIC)
    assert end == storage.read_completion(RUN_ID)
    assert (end.simulation_run_id, end.last_tick, end.format_version) == (RUN_ID, 10, 1)
    assert end.written_at_ms > 0


def test_a_run_that_has_not_ended_is_not_completed_by_a_stop(run: Run, storage: Storage) -> None:
    queue = TickQueue()
    queue.put(EncodedTick(0, b"a"))
    with CompletionService(run, storage, queue) as completion:
        assert completion.stop(SOON)
    assert (completion.state, storage.read_completion(RUN_ID), payloads(run, RUN_TOPIC)) == ("stopped", None, [])


@pytest.mark.warns("database is gone")
def test_an_end_that_could_not_be_announced_is_announced_as_it_was_written(
    run: Run, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = TickQueue()
    queue.put(EncodedTick(7, b"a"))
    queue.done(len(queue.pop(1, NEVER)))
    queue.close()
    now = iter((1_000.0, 2_000.0))
    completion = CompletionService(run, storage, queue, QUICK, clock=lambda: next(now))
    with monkeypatch.context() as broken, run.writer(RUN_TOPIC) as writer:
        broken.setattr(type(writer), "send", _database_gone)
        assert ended(completion) == "error"
    assert ended(completion) == "stopped"
    assert payloads(run, RUN_TOPIC) == [storage.read_completion(RUN_ID)]


def _database_gone(*_: object) -> None:
    raise OSError("database is gone")


@pytest.mark.warns("No space left")
def test_the_end_of_a_run_is_tried_again_and_said_once(run: Run, storage: FullStorage) -> None:
    storage.failures = QUICK.attempts - 1
    queue = TickQueue()
    queue.put(EncodedTick(7, b"a"))
    queue.done(len(queue.pop(1, NEVER)))
    queue.close()
    completion = CompletionService(run, storage, queue, QUICK)
    assert [ended(completion), ended(completion)] == ["stopped", "stopped"]
    assert [end.last_tick for end in payloads(run, RUN_TOPIC)] == [7]


@pytest.mark.parametrize("interval", [1, 10])
def test_the_simulation_emits_every_nth_tick_and_closes_its_run(interval: int) -> None:
    queue = TickQueue()
    simulation = SimulationService(RUN_ID, SimulationSettings((12, 16), sampling_interval=interval), queue, ticks=95)
    simulation.start()
    assert simulation.join(SOON)
    assert (simulation.state, simulation.metadata.sampling_interval) == ("stopped", interval)
    run = queue.pop(1000, NEVER)
    assert [tick.number for tick in run] == list(range(0, 95, interval))
    queue.done(len(run))
    assert queue.finished
    assert simulation.monitor.snapshot()["ticks_produced"] == len(run)
    assert simulation.monitor.snapshot()["cells_produced"] > 0


def test_a_full_queue_makes_the_simulation_wait_and_a_stop_still_ends_it() -> None:
    queue = TickQueue(max_ticks=5)
    with SimulationService(RUN_ID, SMALL, queue) as simulation:
        first = queue.pop(5, SOON)
        assert simulation.stop(SOON)
    assert [tick.number for tick in first] == [0, 1, 2, 3, 4]
    assert len(queue) <= 5
    assert queue.last_tick == 4 + len(queue)


def test_a_paused_simulation_goes_on_where_it_was() -> None:
    queue = TickQueue()
    simulation = SimulationService(RUN_ID, SMALL, queue, ticks=300)
    simulation.start()
    simulation.pause()
    simulation.resume()
    assert simulation.join(SOON)
    assert [tick.number for tick in queue.pop(1000, NEVER)] == list(range(300))


def test_the_whole_producer_side_leaves_a_complete_run(run: Run, storage: Storage) -> None:
    queue = TickQueue(max_ticks=64)
    simulation = SimulationService(RUN_ID, SMALL, queue, ticks=200)
    services = [
        MetadataPersistenceService(run, storage, simulation.metadata),
        PersistenceService(run, storage, queue, PersistenceOptions(30), name="persistence-service-1"),
        PersistenceService(run, storage, queue, PersistenceOptions(30), name="persistence-service-2"),
        CompletionService(run, storage, queue),
        simulation,
    ]
    for service in services:
        service.start()
    assert all(service.join(SOON) for service in services)
    assert [service.error for service in services] == [None] * 5
    files = storage.batches(RUN_ID).files
    assert [n for file in files for n in range(file.ticks.start, file.ticks.end + 1)] == list(range(200))
    assert {info.storage_key for info in payloads(run, BATCH_TOPIC)} == {file.key for file in files}
    assert [end.last_tick for end in payloads(run, RUN_TOPIC)] == [199]


def test_a_producer_writes_announces_and_completes_its_run(
    database: Database, storage: Storage, metadata: SimulationMetadata
) -> None:
    world = Ecosystem(SMALL)
    with Producer(database, storage, metadata) as producer:
        for _ in range(20):
            producer.emit(world.columns(0))
            world.step()
    run = database.run(RUN_ID)
    assert [(info.tick_start, info.tick_end) for info in payloads(run, BATCH_TOPIC)] == [(0, 19)]
    assert [end.last_tick for end in payloads(run, RUN_TOPIC)] == [19]
    assert len(payloads(run, METADATA_TOPIC)) == 1


def test_a_simulation_that_raises_leaves_what_it_emitted_and_an_incomplete_run(
    database: Database, storage: Storage, metadata: SimulationMetadata
) -> None:
    with pytest.raises(ZeroDivisionError), Producer(database, storage, metadata) as producer:
        producer.emit(Ecosystem(SMALL).columns(0))
        raise ZeroDivisionError
    run = database.run(RUN_ID)
    assert [(info.tick_start, info.tick_end) for info in payloads(run, BATCH_TOPIC)] == [(0, 0)]
    assert payloads(run, RUN_TOPIC) == []
    assert storage.read_completion(RUN_ID) is None


class BrokenStorage(Storage):
    def write_batch(self, run_id: str, ticks: object) -> None:  # type: ignore[override]
        raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.warns("Read-only")
def test_a_producer_learns_that_nothing_can_be_written(
    database: Database, tmp_path: Path, metadata: SimulationMetadata
) -> None:
    world = Ecosystem(SMALL)
    options, queue = PersistenceOptions(max_batch_size=2, retry=QUICK), TickQueue(max_ticks=4)
    with (
        pytest.raises(WriteKeepsFailing, match="Read-only file system"),
        Producer(database, BrokenStorage(str(tmp_path / "broken")), metadata, options, queue) as producer,
    ):
        while True:
            producer.emit(world.columns(0))
            world.step()
