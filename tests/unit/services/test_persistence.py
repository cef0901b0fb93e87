from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from ticklake import Database
from ticklake.contracts import BatchInfo
from ticklake.defaults import BATCH_TOPIC
from ticklake.errors import InvalidOption, WriteKeepsFailing
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.storage.codec import encode_ticks
from ticklake.storage.columns import CellColumns, EncodedTick, OrganismColumns, TickColumns
from ticklake.storage.files import BatchFile, Storage
from ticklake.topics import Run

RUN_ID = "20251014-143025-550e8400"
SOON = 20.0
NEVER = 3600.0
QUICK = Retry(attempts=4, first_delay=0.001, max_delay=0.002)


def tick(number: int) -> EncodedTick:
    one = np.ones(3, np.int32)
    cells = CellColumns(np.arange(3, dtype=np.int32), one << 16, one, one)
    return encode_ticks(RUN_ID, [TickColumns(number, 0, cells, OrganismColumns())])[0]


class FailingStorage(Storage):
    """A real storage on a disk that is full for the next `failures` writes."""

    failures = 0

    def write_batch(self, run_id: str, ticks: Sequence[EncodedTick]) -> BatchFile:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write_batch(run_id, ticks)


@pytest.fixture
def storage(tmp_path: Path) -> FailingStorage:
    return FailingStorage(str(tmp_path / "storage"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        yield database.run(RUN_ID)


@pytest.fixture
def queue() -> TickQueue:
    return TickQueue()


def fill(queue: TickQueue, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        queue.put(tick(number))


def service(run: Run, storage: Storage, queue: TickQueue, size: int = 10, timeout: float = NEVER) -> PersistenceService:
    return PersistenceService(run, storage, queue, PersistenceOptions(size, timeout, retry=QUICK))


def announced(run: Run, group: str = "test") -> list[BatchInfo]:
    with run.reader(BATCH_TOPIC, group=group) as reader:
        infos = []
        while message := reader.poll(timeout=0):
            infos.append(message.payload)
            reader.ack(message)
        return infos


def ranges(storage: Storage) -> list[tuple[int, int]]:
    return [tuple(file.ticks) for file in storage.batches(RUN_ID).files]


def announced_ranges(run: Run) -> list[tuple[int, int]]:
    return [(info.tick_start, info.tick_end) for info in announced(run)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_full_batches_become_files_and_messages(run: Run, storage: Storage, queue: TickQueue) -> None:
    fill(queue, 25)
    queue.close()
    persistence = service(run, storage, queue)
    persistence.start()
    assert persistence.join(SOON)
    assert (persistence.state, persistence.error) == ("stopped", None)
    assert ranges(storage) == [(0, 9), (10, 19), (20, 24)]
    infos = announced(run)
    assert [(info.tick_start, info.tick_end) for info in infos] == ranges(storage)
    assert [info.storage_key for info in infos] == [file.key for file in storage.batches(RUN_ID).files]
    assert all(info.simulation_run_id == RUN_ID and info.written_at_ms > 0 for info in infos)


def test_what_is_read_back_is_what_was_put(run: Run, storage: Storage, queue: TickQueue) -> None:
    fill(queue, 3)
    queue.close()
    with service(run, storage, queue) as persistence:
        assert persistence.join(SOON)
    with storage.open(announced(run)[0].storage_key) as file:
        data = file.read()
    assert data == b"".join(bytes([len(each.data)]) + each.data for each in map(tick, range(3)))


def test_a_batch_closes_after_its_timeout(run: Run, storage: Storage, queue: TickQueue) -> None:
    with service(run, storage, queue, timeout=0.01), run.reader(BATCH_TOPIC, group="g") as reader:
        fill(queue, 1)
        message = reader.poll(timeout=SOON)
        assert message is not None
        assert (message.payload.tick_start, message.payload.tick_end) == (0, 0)


def test_a_batch_closes_at_its_bytes(run: Run, storage: Storage, queue: TickQueue) -> None:
    fill(queue, 4, start=1)
    queue.close()
    options = PersistenceOptions(max_batch_size=100, max_batch_bytes=2 * len(tick(1).data) + 1)
    with PersistenceService(run, storage, queue, options) as persistence:
        assert persistence.join(SOON)
    assert ranges(storage) == [(1, 2), (3, 4)]


def test_a_stop_writes_and_announces_what_is_queued(run: Run, storage: Storage, queue: TickQueue) -> None:
    persistence = service(run, storage, queue, size=10)
    fill(queue, 7)
    persistence.start()
    assert persistence.stop(SOON)
    assert persistence.state == "stopped"
    assert announced_ranges(run) == ranges(storage) == [(0, 6)]


def test_a_stop_ends_even_while_the_producer_goes_on(run: Run, storage: Storage) -> None:
    queue, ended = TickQueue(max_ticks=50), threading.Event()

    def produce() -> None:
        number = 0
        while queue.put(tick(number), unless=ended.is_set):
            number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    persistence = service(run, storage, queue, size=5)
    persistence.start()
    try:
        assert persistence.stop(SOON)
    finally:
        ended.set()
        queue.wake()
        producer.join(SOON)
    assert persistence.state == "stopped"


def test_a_paused_service_leaves_the_ticks_where_they_are(
    run: Run, storage: Storage, queue: TickQueue, eventually: Callable[..., None]
) -> None:
    with service(run, storage, queue, size=2) as persistence:
        eventually(lambda: len(queue._changed._waiters) == 1, timeout=SOON)  # type: ignore[attr-defined]
        persistence.pause()
        eventually(lambda: len(persistence._changed._waiters) == 1, timeout=SOON)  # type: ignore[attr-defined]
        fill(queue, 4)
        assert len(queue) == 4
        assert ranges(storage) == []
        persistence.resume()
        queue.close()
        assert persistence.join(SOON)
    assert ranges(storage) == [(0, 1), (2, 3)]


@pytest.mark.warns("No space left")
def test_a_failed_write_is_tried_again_and_counted(
    run: Run, storage: FailingStorage, queue: TickQueue, caplog: pytest.LogCaptureFixture
) -> None:
    storage.failures = 3
    fill(queue, 10)
    queue.close()
    with service(run, storage, queue) as persistence:
        assert persistence.join(SOON)
    assert persistence.state == "stopped"
    assert announced_ranges(run) == ranges(storage) == [(0, 9)]
    snapshot = persistence.monitor.snapshot()
    assert (snapshot["write_retries"], snapshot["batches_written"], snapshot["error_count"]) == (3, 1, 3)
    assert len(warnings(caplog)) == 3
    assert all("Writing ticks 0–9" in line and "No space left" in line for line in warnings(caplog))


@pytest.mark.warns("No space left")
def test_a_write_that_keeps_failing_is_an_error_and_the_ticks_are_kept(
    run: Run, storage: FailingStorage, queue: TickQueue
) -> None:
    storage.failures = QUICK.attempts
    fill(queue, 10)
    queue.close()
    persistence = service(run, storage, queue)
    persistence.start()
    assert persistence.join(SOON)
    assert persistence.state == "error"
    assert isinstance(persistence.error, WriteKeepsFailing)
    assert "No space left on device" in str(persistence.error)
    assert (len(queue), ranges(storage), announced(run)) == (10, [], [])
    assert not persistence.monitor.healthy
    persistence.start()
    assert persistence.join(SOON)
    assert persistence.state == "stopped"
    assert announced_ranges(run) == ranges(storage) == [(0, 9)]


@pytest.mark.warns("No space left")
def test_another_service_goes_on_with_the_ticks_of_a_failed_one(
    run: Run, storage: FailingStorage, queue: TickQueue, tmp_path: Path
) -> None:
    storage.failures = QUICK.attempts
    fill(queue, 20)
    queue.close()
    failing = service(run, storage, queue)
    failing.start()
    assert failing.join(SOON)
    healthy = service(run, Storage(str(tmp_path / "storage")), queue)
    healthy.start()
    assert healthy.join(SOON)
    assert (failing.state, healthy.state) == ("error", "stopped")
    assert ranges(storage) == [(0, 9), (10, 19)]


@pytest.mark.warns("database is gone")
def test_a_file_whose_message_could_not_be_sent_is_announced_after_the_next_start(
    run: Run, storage: Storage, queue: TickQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, 10)
    queue.close()
    persistence = service(run, storage, queue)
    with monkeypatch.context() as broken, run.writer(BATCH_TOPIC) as writer:
        broken.setattr(type(writer), "send", _database_gone)
        persistence.start()
        assert persistence.join(SOON)
    assert persistence.state == "error"
    assert "Publishing" in str(persistence.error)
    assert (ranges(storage), announced(run), queue.finished) == ([(0, 9)], [], False)
    persistence.start()
    assert persistence.join(SOON)
    assert (announced_ranges(run), queue.finished) == ([(0, 9)], True)
    assert persistence.monitor.counter("ticks_written").value == 10


def _database_gone(*_: object) -> None:
    raise OSError("database is gone")


def test_competing_services_write_every_tick_once_in_files_that_do_not_interleave(run: Run, storage: Storage) -> None:
    queue = TickQueue(max_ticks=40)
    services = [service(run, storage, queue, size=size, timeout=0.001) for size in (3, 7, 10)]
    for each in services:
        each.start()
    fill(queue, 300)
    queue.close()
    assert all(each.join(SOON) for each in services)
    assert [each.state for each in services] == ["stopped"] * 3
    covered = ranges(storage)
    assert [number for start, end in covered for number in range(start, end + 1)] == list(range(300))
    assert sorted(announced_ranges(run)) == covered


def test_the_counters_tell_what_was_written(run: Run, storage: Storage, queue: TickQueue) -> None:
    fill(queue, 25)
    queue.close()
    with service(run, storage, queue) as persistence:
        assert persistence.join(SOON)
    snapshot = persistence.monitor.snapshot()
    assert (snapshot["ticks_written"], snapshot["batches_written"], snapshot["notifications_sent"]) == (25, 3, 3)
    assert snapshot["bytes_written"] == sum(file.size for file in storage.batches(RUN_ID).files)
    assert (snapshot["write_retries"], snapshot["notification_retries"], snapshot["queued_ticks"]) == (0, 0, 0)
    assert snapshot["write_throughput_per_sec"] > 0
    assert snapshot["write_latency_p99_ms"] > 0


@pytest.mark.parametrize("options", [{"max_batch_size": 0}, {"max_batch_bytes": -1}, {"batch_timeout_seconds": 0.0}])
def test_impossible_options_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=f"{next(iter(options))} cannot be"):
        PersistenceOptions(**options)  # type: ignore[arg-type]


def test_waits_double_up_to_the_longest() -> None:
    retry = Retry(attempts=9, first_delay=0.5, max_delay=3)
    assert [retry.delay(failures) for failures in range(1, 6)] == [0.5, 1, 2, 3, 3]
