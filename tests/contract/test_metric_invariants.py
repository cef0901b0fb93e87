"""What every metric keeps, whatever happens: ratios lie in [0, 1], counters never fall, gauges are not negative, parts
add up. Real readers, writers, coordinators and queues, driven through take-overs, late acks, releases, dead letters and
resets; checked on what Prometheus would read."""

from __future__ import annotations

import logging
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from metric_rules import Series, check, series

from ticklake.contracts import BatchInfo
from ticklake.coordination.claims import Claim, FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.events import Event, IndexerQueue
from ticklake.indexers.batches import Delivery
from ticklake.indexers.buffer import TickBuffer
from ticklake.metric_names import READER, SERVICE, TOPICS, WRITER
from ticklake.monitoring import Counter, Monitor, Percentiles, Window
from ticklake.storage.files import BatchFile
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.topics.reader import Message, TopicReader
from ticklake.web.api.prometheus import Families

RUN, TOPIC, GROUP = "20251014-143025-550e8400", "batch-topic", "indexer"


def exported(*scopes: tuple[Any, tuple[str, ...], list[Monitor]]) -> Series:
    families = Families()
    for scope, labels, monitors in scopes:
        families.monitors(scope, labels, monitors)
    return series(families)


class Topics(RuleBasedStateMachine):
    """A group with two consumers whose claims expire at once, and one whose claims do not."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tl-metrics-"))
        self.database = Database(f"sqlite:///{self.folder}", min_idle=0)
        self.run = self.database.run(RUN)
        self.writers = [self.run.writer(TOPIC) for _ in range(2)]
        self.readers = [self._reader(0.001), self._reader(0.001), self._reader(300)]
        self.held: list[tuple[TopicReader, Message]] = []
        self.before: Series = {}
        self.replayed = self.discarded = 0

    def _reader(self, seconds: float) -> TopicReader:
        return self.run.reader(TOPIC, group=GROUP, claim_timeout=seconds, max_delivery_attempts=3)

    @rule(writer=st.integers(0, 1), count=st.integers(1, 3))
    def publish(self, writer: int, count: int) -> None:
        self.writers[writer].send_many([BatchInfo(simulation_run_id=RUN) for _ in range(count)])

    @rule(writer=st.integers(0, 1), commits=st.booleans())
    def publish_in_a_transaction(self, writer: int, commits: bool) -> None:
        class Undone(Exception): ...

        try:
            with self.run.transaction() as transaction:
                self.writers[writer].send(BatchInfo(simulation_run_id=RUN), connection=transaction)
                if not commits:
                    raise Undone
        except Undone:
            pass

    @rule(reader=st.integers(0, 2), limit=st.integers(1, 3))
    def poll(self, reader: int, limit: int) -> None:
        self.held += [(self.readers[reader], one) for one in self.readers[reader].poll_many(limit, 0)]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), again=st.booleans())
    def acknowledge(self, data: Any, again: bool) -> None:
        reader, message = data.draw(st.sampled_from(self.held))
        accepted = reader.ack(message)
        if again:
            assert reader.ack(message) == accepted

    @precondition(lambda self: self.held)
    @rule(data=st.data(), act=st.sampled_from(["release", "extend", "fail"]))
    def release(self, data: Any, act: str) -> None:
        reader, message = data.draw(st.sampled_from(self.held))
        if act == "fail":
            reader.fail(message, "broken")
        else:
            getattr(reader, act)([message])

    @rule(to=st.sampled_from(["earliest", "end"]))
    def reset(self, to: str) -> None:
        self.run.groups.reset(TOPIC, GROUP, to)

    @rule(discards=st.booleans())
    def dead_letters(self, discards: bool) -> None:
        letters = self.run.dead_letters
        if discards:
            self.discarded += letters.discard()
        else:
            # A letter whose message a reset has made deliverable already goes without being replayed.
            before = letters.count()
            letters.replay()
            self.replayed += before - letters.count()

    @rule(reader=st.integers(0, 2))
    def restart(self, reader: int) -> None:
        """What a closed one has counted stays counted."""
        self.readers[reader].close()
        self.held = [(one, message) for one, message in self.held if one is not self.readers[reader]]
        self.readers[reader] = self._reader(0.001)

    @invariant()
    def metrics_make_sense(self) -> None:
        ends = list(self.run.ends())
        readers = [monitor for end in ends if end.group for monitor in end.monitors]
        writers = [monitor for end in ends if not end.group for monitor in end.monitors]
        after = exported(
            (TOPICS, (RUN,), [self.run.monitor]),
            (READER, (RUN, TOPIC, GROUP), readers),
            (WRITER, (RUN, TOPIC), writers),
        )
        check(self.before, after)
        self.before = after
        whole = {name: counter.value for name, counter in self.run.monitor.counters.items()}

        def parts(monitors: list[Monitor], name: str) -> int:
            return sum(one.counters[name].value for one in monitors if name in one.counters)

        assert whole["messages_published"] == parts(writers, "messages_sent")
        for name in ("messages_received", "messages_acknowledged", "stale_acks_rejected"):
            assert whole[name] == parts(readers, name), name
        assert whole["stuck_messages_reassigned"] <= whole["messages_received"]
        waiting = self.run.dead_letters.count()
        assert whole["dead_letters_added"] == waiting + self.replayed + self.discarded
        gauges = {name: read() for name, read in self.run.monitor.gauges.items()}
        assert gauges["pool_active_connections"] + gauges["pool_idle_connections"] == gauges["pool_total_connections"]

    @invariant()
    def the_store_agrees(self) -> None:
        (topic,) = self.run.topics() or [None]
        for group in self.run.groups.list():
            assert 0 <= group.claimed <= group.lag <= (topic.messages if topic else 0)
            assert (group.oldest_ms is None) == (group.lag == 0) or group.oldest_ms is None or group.oldest_ms >= 0
        if topic is not None:
            assert topic.messages == self.run.monitor.counters["messages_published"].value, "sent = stored"

    def teardown(self) -> None:
        for end in (*self.readers, *self.writers):
            end.close()
        self.database.close()
        shutil.rmtree(self.folder)


class Coordination(RuleBasedStateMachine):
    """Two indexers of one table: claims whose lease is over at once are taken over."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tl-metrics-"))
        self.database = Database(f"sqlite:///{self.folder}", min_idle=0)
        self.monitors = [Monitor("one"), Monitor("two")]
        self.both = [
            Coordinator(self.database.run(RUN), "OrganismIndexer", step=1, lease=0.001, instance=one.name, monitor=one)
            for one in self.monitors
        ]
        self.held: list[tuple[int, Claim]] = []
        self.before: Series = {}

    @rule(who=st.integers(0, 1), files=st.lists(st.integers(0, 8), max_size=4), limit=st.integers(1, 3))
    def claim(self, who: int, files: list[int], limit: int) -> None:
        found = [FoundFile(f"batch_{at}", TickRange(10 * at, 10 * at + 9)) for at in files]
        self.held += [(who, one) for one in self.both[who].claim(found, limit)]

    @rule(who=st.integers(0, 1), limit=st.integers(1, 4))
    def take_over(self, who: int, limit: int) -> None:
        self.held += [(who, one) for one in self.both[who].take_over(limit)]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), act=st.sampled_from(["complete", "complete twice", "fail", "release", "renew"]))
    def settle(self, data: Any, act: str) -> None:
        who, claim = data.draw(st.sampled_from(self.held))
        if act == "fail":
            self.both[who].fail(claim, "broken")
        elif act.startswith("complete"):
            for _ in act.split():
                self.both[who].complete([claim])
        else:
            getattr(self.both[who], act)([claim])

    @rule(who=st.integers(0, 1))
    def try_again(self, who: int) -> None:
        self.both[who].retry_failed()

    @rule(who=st.integers(0, 1))
    def give_up(self, who: int) -> None:
        self.both[who].make_permanent(0)

    @invariant()
    def metrics_make_sense(self) -> None:
        after = exported(*((SERVICE, (one.name,), [one]) for one in self.monitors))
        check(self.before, after)
        self.before = after
        for one in self.monitors:
            counted = {name: counter.value for name, counter in one.counters.items()}
            assert counted["claim_successes"] == counted["batches_claimed"] <= counted["claim_attempts"]
            assert counted["stuck_batches_reassigned"] <= counted["batches_claimed"]
        total = [
            sum(one.counters[name].value for one in self.monitors) for name in ("batches_claimed", "batches_completed")
        ]
        assert total[1] <= total[0], "no batch is completed that nobody has claimed"

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """What these machines do to each other is meant: take-overs, late acks and dead letters are warned of."""
    loggers = [logging.getLogger(name) for name in ("ticklake.topics.reader", "ticklake.coordination.coordinator")]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger in loggers:
        logger.disabled = False


MACHINE = settings(max_examples=settings().max_examples // 8, stateful_step_count=25)


@pytest.mark.hypothesis
def test_metrics_of_topics_keep_their_promises() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Topics, settings=MACHINE)


@pytest.mark.hypothesis
def test_metrics_of_coordinators_keep_their_promises() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Coordination, settings=MACHINE)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1e6)), max_size=60), st.floats(0.1, 5))
def test_a_rate_is_never_negative(steps: list[tuple[float, float]], seconds: float) -> None:
    """Amounts that have a fraction must not leave a rest behind when they grow too old."""
    now = [0.0]
    window = Window(seconds, clock=lambda: now[0])
    for pause, amount in steps:
        window.add(amount)
        now[0] += pause
        assert window.total >= 0 and window.rate >= 0
    now[0] += 3 * seconds
    assert window.total == window.rate == 0


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1000)), min_size=1, max_size=60))
def test_latencies_add_up(steps: list[tuple[float, float]]) -> None:
    now = [0.0]
    latency = Percentiles(2, clock=lambda: now[0])
    count, total = 0, 0.0
    for pause, seconds in steps:
        latency.record(seconds)
        assert latency.count == count + 1 and latency.sum >= total
        count, total = latency.count, latency.sum
        found = [latency.percentile(percent) for percent in (0, 50, 95, 99, 100)]
        assert all(0 <= low <= high for low, high in pairwise(found))
        assert latency.average == pytest.approx(total / count)
        now[0] += pause


def test_a_claim_that_is_counted_while_the_rate_is_read_does_not_make_it_more_than_one(tmp_path: Path) -> None:
    class Late(Counter):
        """Something happens right after it was read."""

        @property
        def value(self) -> int:
            found = super().value
            if not happened:
                happened.append(True)
                coordinator.claim([FoundFile("b", TickRange(10, 19)), FoundFile("c", TickRange(20, 29))], 2)
            return found

    happened: list[bool] = [True]
    monitor = Monitor("one")
    monitor._counters |= {name: Late() for name in ("claim_attempts", "claim_successes")}
    with Database(f"sqlite:///{tmp_path}", min_idle=0) as database:
        coordinator = Coordinator(database.run(RUN), "OrganismIndexer", step=1, monitor=monitor)
        coordinator.claim([FoundFile("a", TickRange(0, 9))], 1)
        happened.clear()
        assert 0 <= monitor.gauges["claim_success_rate"]() <= 1
        assert happened


def test_metrics_of_an_event_queue_add_up(tmp_path: Path) -> None:
    with IndexerQueue(tmp_path / "queue.db") as queue:
        for number in range(5):
            queue.offer([Event(f"e{number % 3}", "kind", {"n": number})]).wait()
        seen = queue.metrics()
        assert (seen.events_processed_total, seen.events_duplicate_total) == (3, 2), "each once, and the others said"
        assert seen.buffer_size == 0 and seen.avg_flush_latency_ms >= 0
        while (pending := queue.metrics().pending_batches) > 0:
            batch = queue.get_next_batch(30)
            assert batch is not None and queue.mark_batch_done(batch.batch_id)
            queue.mark_batch_done(batch.batch_id)
            assert queue.metrics().pending_batches == pending - 1, "to be done twice counts once"


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["settle", "fail", "requeue", "keep"])), max_size=12))
def test_a_buffer_holds_what_came_and_did_not_leave(steps: list[tuple[int, str]]) -> None:
    """`ticks_buffered` and `batches_buffered` are read from it."""
    buffer, at, left = TickBuffer(20, 1.0, 1), 0, 0
    for ticks, act in steps:
        span = TickRange(at, at + ticks - 1)
        buffer.add(Delivery(BatchFile(RUN, f"{RUN}/{at}", span, 1), span), 0.0)
        at += ticks
        assert buffer.ticks == at - left and 1 <= len(buffer) <= len(buffer.held)
        if act == "keep":
            continue
        before, popped = buffer.ticks, buffer.pop(0.0)
        flushed = sum(piece.ticks.count(1) for piece in popped.slices)
        assert buffer.ticks == before - flushed >= 0
        if act == "requeue":
            buffer.requeue(popped)
            assert buffer.ticks == before
            continue
        buffer.finish(popped, [0] if act == "fail" else [])
        left = at - buffer.ticks
        assert 0 <= buffer.ticks <= before - flushed, "a batch that failed takes its other slices with it"
        assert len(buffer) == len(buffer.held)
