"""Two flushes at once: what is acknowledged, retried, lost to others and given back, whichever of them ends first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from ticklake.errors import DatabaseFull, FlushFailed, LakeUnreadable, SparkUnavailable, TickLakeError
from ticklake.indexers import flush_loop
from ticklake.indexers.batches import Delivery, TopicBatches
from ticklake.indexers.buffer import TickBuffer
from ticklake.indexers.flush_loop import FlushLoop
from ticklake.lake.flush.flush import Flushed
from ticklake.lake.slices import Slice
from ticklake.logs import log_service
from ticklake.services.base import Service, State
from ticklake.topics import Database, Run

GROUP = "environment-indexer"
LEASE = 1.5
NEVER = 3600.0
TICKS = 10
DEADLY = 5


class HeldFlush:
    """A flush that ends when the test says so. It moves for as long as its `progress` is asked, unless it is stuck."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self.ticks = [tuple(piece.ticks) for piece in slices]
        self.stuck = False
        self.looks = 0
        self.service = ""
        self._result: Future[Flushed] = Future()

    def run(self) -> Flushed:
        self.service = log_service.get()
        return self._result.result()

    def progress(self) -> int:
        self.looks += 1
        return 0 if self.stuck else self.looks

    def land(self) -> None:
        ticks = sum(end - start + 1 for start, end in self.ticks)
        self._result.set_result(Flushed({}, ticks, 0, ticks, {}, 1, 100, 0.0, None))

    def fail(self, error: TickLakeError) -> None:
        self._result.set_exception(error)


class Indexing(Service):
    """The loop as an indexer runs it, on a real topic, with flushes in the test's hands."""

    def __init__(
        self, run: Run, maker: Any, insert_batch_size: int, flush_timeout: float, lease: float, attempts: int = 5
    ) -> None:
        super().__init__(GROUP)
        reader = run.reader("batch-topic", group=GROUP, claim_timeout=lease, max_delivery_attempts=attempts)
        self._batches = TopicBatches(run, reader, lease, maker.storage, self.monitor, None)
        self._buffer = TickBuffer(insert_batch_size, flush_timeout, step=1)
        self.flushes: list[HeldFlush] = []
        self.loop: FlushLoop | None = None
        self.deadly: TickLakeError | None = None
        self.sick = 0
        self.checks = 0

    def begin(self, slices: Sequence[Slice]) -> HeldFlush:
        self.flushes.append(HeldFlush(slices))
        if self.deadly is not None:
            self._end_at_once(self.flushes[-1], self.deadly)
        return self.flushes[-1]

    def _end_at_once(self, flush: HeldFlush, error: TickLakeError) -> None:
        """Every batch but the last one takes its job down."""
        if any(start < DEADLY * TICKS for start, _ in flush.ticks):
            flush.fail(error)
        else:
            flush.land()

    def check_spark(self) -> None:
        self.checks += 1
        if self.checks <= self.sick:
            raise SparkUnavailable(reason="no workers")

    def run(self) -> None:
        flusher: Any = self
        with self._batches:
            self.loop = FlushLoop(self._batches, self._buffer, flusher, self.monitor, self, until_caught_up=False)
            self.loop.run()

    def wake(self) -> None:
        self._batches.wake()

    @property
    def ticks(self) -> list[list[tuple[int, ...]]]:
        return [flush.ticks for flush in self.flushes]

    def end(self) -> None:
        """Whatever is under way ends, so that nothing outlives the test."""
        self.ask_to_stop()
        for number in itertools.count():
            if self.join(0.01):
                return
            for flush in self.flushes[: number + 1]:
                if not flush._result.done():
                    flush.land()


@pytest.fixture
def run(maker: Any) -> Iterator[Run]:
    with Database(maker.database_url) as database:
        yield database.run(maker.run_id)


@pytest.fixture
def index(run: Run, maker: Any, eventually: Callable[..., None]) -> Iterator[Callable[..., Indexing]]:
    """Publishes so many batches of ten ticks and waits until two flushes are under way."""
    started: list[Indexing] = []

    def index(
        batches: int, insert_batch_size: int = TICKS, flush_timeout: float = NEVER, lease: float = NEVER
    ) -> Indexing:
        maker.publish(*maker.batches(batches, ticks=TICKS, cells=1))
        started.append(Indexing(run, maker, insert_batch_size, flush_timeout, lease))
        started[-1].start()
        eventually(lambda: len(started[-1].flushes) == 2)
        return started[-1]

    yield index
    for one in started:
        one.end()


def acknowledged(run: Run) -> list[int]:
    """Which batches are, by their place in the topic."""
    query = "SELECT id, acknowledged_at IS NOT NULL FROM topic_consumer_group ORDER BY id"
    with run.reading() as view:
        return [place for place, (_, acked) in enumerate(view.execute(query, {})) if acked]


def claimed(run: Run) -> int:
    return len(run.claims.list())


@pytest.mark.parametrize(("order", "after_the_first"), [((0, 1), [0]), ((1, 0), [2])])
def test_a_batch_in_both_flushes_is_acknowledged_after_the_last_of_them(
    index: Callable[..., Indexing],
    run: Run,
    eventually: Callable[..., None],
    order: tuple[int, int],
    after_the_first: list[int],
) -> None:
    loop = index(3, insert_batch_size=15)
    assert loop.ticks == [[(0, 9), (10, 14)], [(15, 19), (20, 29)]]
    first, second = (loop.flushes[number] for number in order)
    first.land()
    eventually(lambda: loop.monitor.counter("flushes").value == 1)
    assert acknowledged(run) == after_the_first
    second.land()
    eventually(lambda: loop.monitor.counter("flushes").value == 2)
    assert acknowledged(run) == [0, 1, 2]
    assert loop.monitor.counter("batches_processed").value == 3


def test_never_more_than_two_are_under_way(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None]
) -> None:
    loop = index(4)
    eventually(lambda: loop.monitor.snapshot()["batches_buffered"] == 2)
    loop.flushes[1].land()
    eventually(lambda: len(loop.flushes) == 3)
    assert loop.ticks == [[(0, 9)], [(10, 19)], [(20, 29)]]
    assert acknowledged(run) == [1]


@pytest.mark.parametrize("interrupt", [Indexing.pause, Indexing.ask_to_stop])
def test_a_pause_and_a_stop_flush_and_acknowledge_what_is_under_way_and_what_is_buffered(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None], interrupt: Callable[[Indexing], None]
) -> None:
    loop = index(4)
    interrupt(loop)
    assert acknowledged(run) == []
    loop.flushes[1].land()
    eventually(lambda: len(loop.flushes) == 3)
    loop.flushes[2].land()
    eventually(lambda: len(loop.flushes) == 4)
    loop.flushes[0].land()
    loop.flushes[3].land()
    eventually(lambda: acknowledged(run) == [0, 1, 2, 3])
    if interrupt is Indexing.pause:
        assert loop.state is State.PAUSED
        assert claimed(run) == 0
    else:
        assert loop.join(60) and loop.error is None
    assert loop.ticks == [[(0, 9)], [(10, 19)], [(20, 29)], [(30, 39)]]


def test_what_comes_during_a_pause_is_left_to_others_and_taken_up_after_it(
    index: Callable[..., Indexing], run: Run, maker: Any, eventually: Callable[..., None]
) -> None:
    loop = index(2)
    loop.pause()
    maker.publish(maker.batch(20, 29), maker.batch(30, 39))
    for flush in loop.flushes:
        flush.land()
    eventually(lambda: acknowledged(run)[:2] == [0, 1])
    with run.reader("batch-topic", group=GROUP) as other:
        eventually(lambda: other.poll(0) is not None)
    loop.resume()
    eventually(lambda: len(loop.flushes) == 4)
    assert loop.ticks[2:] == [[(20, 29)], [(30, 39)]]


@pytest.mark.warns("Flush failed, trying again")
@pytest.mark.parametrize("interrupt", [Indexing.pause, Indexing.ask_to_stop])
def test_a_flush_that_fails_in_the_end_gives_its_batches_back_and_the_other_one_is_acknowledged(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None], interrupt: Callable[[Indexing], None]
) -> None:
    loop = index(3)
    interrupt(loop)
    loop.flushes[0].fail(LakeUnreadable(table="environment_data", reason="no space left"))
    eventually(lambda: not loop.monitor.healthy)
    loop.flushes[1].land()
    eventually(lambda: claimed(run) == 0)
    assert acknowledged(run) == [1]
    assert len(loop.flushes) == 2
    with run.reader("batch-topic", group=GROUP) as other:
        again = other.poll_many(10, 0)
    assert [(message.payload.tick_start, message.attempts) for message in again] == [(0, 1), (20, 1)]


@pytest.mark.warns("Flush failed, trying again")
def test_one_that_fails_is_tried_again_while_the_other_one_lands(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None]
) -> None:
    loop = index(3, insert_batch_size=15)
    loop.flushes[0].fail(LakeUnreadable(table="environment_data", reason="no space left"))
    eventually(lambda: not loop.monitor.healthy)
    loop.flushes[1].land()
    eventually(lambda: acknowledged(run) == [2])
    eventually(lambda: len(loop.flushes) == 3)
    assert loop.flushes[2].ticks == loop.flushes[0].ticks == [(0, 9), (10, 14)]
    loop.flushes[2].land()
    eventually(lambda: acknowledged(run) == [0, 1, 2])
    assert loop.monitor.healthy
    assert loop.monitor.counter("ticks_processed").value == 30


@pytest.mark.warns("Flush failed, trying again")
def test_the_batches_of_a_job_that_died_are_tried_one_by_one_and_nothing_else_is_blamed(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None]
) -> None:
    loop = index(4, insert_batch_size=20, flush_timeout=0.05)
    loop.flushes[0].fail(FlushFailed(table="environment_data", reason="a worker died"))
    eventually(lambda: not loop.monitor.healthy)
    loop.flushes[1].land()
    eventually(lambda: len(loop.flushes) == 4)
    assert loop.ticks[2:] == [[(0, 9)], [(10, 19)]]
    for flush in loop.flushes[2:]:
        flush.land()
    eventually(lambda: acknowledged(run) == [0, 1, 2, 3])
    assert loop.monitor.counter("batches_failed").value == 0


DEATHS = [
    FlushFailed(table="environment_data", reason="a worker died"),
    SparkUnavailable(reason="its JVM was killed"),
]


@pytest.mark.warns("Flush failed", "DEAD_LETTER")
@pytest.mark.parametrize("death", DEATHS, ids=["worker", "JVM"])
@pytest.mark.parametrize("sick", [0, 1], ids=["well", "sick"])
def test_batches_that_take_their_job_down_become_dead_letters_however_many_there_are(
    run: Run, maker: Any, eventually: Callable[..., None], death: TickLakeError, sick: int
) -> None:
    """They must not be tried for ever, nor hold up what comes behind them; and a sick Spark is nobody's fault."""
    maker.publish(*maker.batches(DEADLY + 1, ticks=TICKS, cells=1))
    loop = Indexing(run, maker, 2 * TICKS, 0.01, NEVER, attempts=1)
    loop.deadly, loop.sick = death, sick
    loop.start()
    try:
        eventually(lambda: run.dead_letters.count() == DEADLY and acknowledged(run) == [DEADLY])
    finally:
        loop.end()
    assert loop.monitor.counter("batches_failed").value == DEADLY
    assert loop.checks > sick


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_a_stuck_flush_loses_its_leases_and_the_one_beside_it_keeps_them(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None]
) -> None:
    loop = index(3, lease=LEASE)
    loop.flushes[0].stuck = True
    (stuck_one, *_) = [claim.message_id for claim in run.claims.list()]
    with run.reader("batch-topic", group=GROUP, claim_timeout=NEVER) as other:
        eventually(lambda: [claim.message_id for claim in run.claims.list(stuck=True)] == [stuck_one])
        assert [message.payload.tick_start for message in other.poll_many(10, 0)] == [0]
        assert run.monitor.counter("stuck_messages_reassigned").value == 1
        assert "FLUSH_STUCK" in [error.code for error in loop.monitor.errors]
        loop.flushes[1].land()
        eventually(lambda: acknowledged(run) == [1])
        loop.flushes[0].land()
        eventually(lambda: run.monitor.counter("stale_acks_rejected").value == 1)
        assert acknowledged(run) == [1]
        assert [claim.consumer for claim in run.claims.list() if claim.message_id == stuck_one] == [other.consumer]


def test_one_that_waits_for_the_cores_behind_another_is_not_stuck(
    index: Callable[..., Indexing], run: Run, eventually: Callable[..., None]
) -> None:
    loop = index(2, lease=LEASE)
    loop.flushes[1].stuck = True
    # They are looked at three times a lease.
    eventually(lambda: loop.flushes[1].looks > 5)
    assert not list(loop.monitor.errors)
    for flush in loop.flushes:
        flush.land()
    eventually(lambda: acknowledged(run) == [0, 1])


def test_what_a_flush_logs_names_its_service(index, eventually):
    indexing = index(2)
    eventually(lambda: [flush.service for flush in indexing.flushes] == [GROUP, GROUP])


def test_a_loop_that_has_read_all_batches_is_idle_at_once_and_a_stop_flushes_what_it_has(
    run: Run, maker: Any, eventually: Callable[..., None]
) -> None:
    """Another run may need its place: it does not have to wait until a flush is due."""
    maker.publish(*maker.batches(1, ticks=TICKS, cells=1))
    indexing = Indexing(run, maker, insert_batch_size=1000, flush_timeout=NEVER, lease=NEVER)
    with indexing:
        eventually(lambda: len(indexing._buffer) == 1)
        eventually(lambda: indexing.loop is not None and indexing.loop.idle_seconds is not None)
        assert indexing.flushes == []
        indexing.end()
    assert acknowledged(run) == [0]


class Hiccup(TopicBatches):
    """A topic whose disk was full for a moment."""

    failed = False

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        if not self.failed:
            self.failed = True
            raise DatabaseFull(database="database")
        return super().poll(limit, timeout)


@pytest.mark.warns("Trying again")
def test_a_loop_without_batches_is_healthy_again_after_an_outage(
    run: Run, maker: Any, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_loop, "_SOURCE_RETRY_SECONDS", 0.01)
    indexing = Indexing(run, maker, insert_batch_size=1000, flush_timeout=NEVER, lease=NEVER)
    reader = run.reader("batch-topic", group=GROUP)
    indexing._batches = Hiccup(run, reader, NEVER, maker.storage, indexing.monitor, None)
    with indexing:
        eventually(lambda: len(indexing.monitor.errors) == 1)
        eventually(lambda: indexing.monitor.healthy)
