"""Names and payloads that nobody should use and somebody will."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import BytesValue

from ticklake import BatchInfo, Database
from ticklake.consumer import IdempotentConsumer, Outbox, ProcessedMessages, Relay
from ticklake.errors import InvalidName, InvalidOption
from ticklake.topics import Run

NASTY = [
    "it's; DROP TABLE topic_messages; --",
    'a "quoted" name',
    "../../etc/passwd",
    "…unicode 数据 🦆",
    "%s %(topic)s :topic ?1 {0}",
    "C:\\windows\\..\\x",
    "SIM_UPPER lower",
    "a" * 255,
]
IMPOSSIBLE = ["", "   ", "a" * 300, "nul\x00", "line\nbreak", "\ud800"]


@pytest.mark.parametrize("name", NASTY)
def test_any_visible_name_works(database: Database, tmp_path: Path, name: str) -> None:
    run_id = name[:200] + uuid4().hex[:8]
    run = database.run(run_id)
    with run.writer(name) as writer, run.reader(name, group=name, consumer=name) as reader:
        sent = writer.send(BatchInfo(storage_key=name))
        message = reader.poll(1)
        assert message is not None and message.id == sent
        assert reader.ack(message)
    assert run_id in database.runs()
    assert [topic.topic for topic in run.topics()] == [name]
    assert [group.group for group in run.groups.list(name)] == [name]
    assert {entry.name for entry in tmp_path.iterdir()} <= {"db"}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_name_is_refused(database: Database, run: Run, name: str) -> None:
    with pytest.raises(InvalidName, match="1 to 255 visible characters"):
        database.run(name)
    with pytest.raises(InvalidName):
        run.writer(name)
    with pytest.raises(InvalidName):
        run.reader(name, group="g")
    if name.strip():
        with pytest.raises(InvalidName):
            run.reader("t", group=name)


def test_an_empty_message_is_a_message(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo())
        message = reader.poll(1)
        assert message is not None and message.payload == BatchInfo()


def test_a_message_of_64_mib_goes_through(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BytesValue(value=b"\x00\xff" * (32 << 20)))
        message = reader.poll(1)
        assert message is not None and len(message.payload.value) == 64 << 20  # type: ignore[attr-defined]
        assert reader.ack(message)


def test_a_type_of_ones_own_goes_through(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        own = Struct()
        own.update({"trade": 7, "nested": {"a": [1, None]}})
        writer.send(own)
        message = reader.poll(1)
        assert message is not None and message.payload == own


NO_TIMES = [math.inf, math.nan, -math.inf, -1.0, 1e300, "1", None]
NO_COUNTS = [1.5, math.inf, math.nan, -1, 1 << 70, "1", True]


@pytest.mark.parametrize("delay", NO_TIMES)
def test_a_delay_that_cannot_be_is_refused_and_the_claim_kept(run: Run, delay: float) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo())
        message = reader.poll(1)
        assert message is not None
        with pytest.raises(InvalidOption, match="delay"):
            reader.fail(message, "no luck", delay=delay)
        with pytest.raises(InvalidOption, match="delay"):
            reader.release([message], delay=delay)
        assert reader.monitor.snapshot()["messages_held"] == 1
        assert reader.ack(message), "nothing has changed"


@pytest.mark.parametrize("timeout", [math.nan, "1", None])
def test_a_timeout_that_cannot_be_is_refused_at_once(run: Run, timeout: float) -> None:
    with run.reader("t", group="g") as reader, pytest.raises(InvalidOption, match="timeout"):
        reader.poll(timeout)
    with Relay(run, "out") as relay, pytest.raises(InvalidOption, match="timeout"):
        relay.relay(timeout)


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_a_timeout_without_end_is_a_wait_for_the_next_message(run: Run, timeout: float) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        sending = threading.Timer(0.2, writer.send, [BatchInfo(tick_start=7)])
        sending.start()
        message = reader.poll(timeout)
        sending.join()
        assert message is not None and message.payload == BatchInfo(tick_start=7)


@pytest.mark.parametrize("age", [math.inf, math.nan, -1.0, "1"])
def test_an_age_that_cannot_be_is_refused_before_anything_is_removed(run: Run, age: float) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo())
    for prune in (Outbox(run, "out").prune, ProcessedMessages(run, "t", "g").prune):
        with pytest.raises(InvalidOption, match="max_age"):
            prune(age)
    with pytest.raises(InvalidOption, match="max_age"):
        run.remove_outdated("t", max_age=age)
    assert len(run.browse("t")) == 1


@pytest.mark.parametrize("count", NO_COUNTS)
def test_a_count_that_cannot_be_is_refused_and_the_database_not_blamed(run: Run, count: int) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo())
    with run.reader("t", group="g") as reader, pytest.raises(InvalidOption, match="limit"):
        reader.poll_many(count, 0)
    for wrong, act in {
        "max_count": lambda: run.remove_outdated("t", max_count=count),
        "limit": lambda: run.browse("t", limit=count),
        "after": lambda: run.browse("t", after=count),
        "count": lambda: run.browse_last("t", count),
        "limit cannot": lambda: run.dead_letters.list(limit=count),
        "limit cannot be": lambda: run.claims.list(limit=count),
        "max_delivery_attempts": lambda: run.reader("t", group="g", max_delivery_attempts=count),
        "max_unacknowledged": lambda: run.reader("t", group="g", max_unacknowledged=count),
        "batch_size": lambda: IdempotentConsumer(run, "t", "g", lambda _, __: None, batch_size=count),
        "batch_size cannot": lambda: Relay(run, "out", batch_size=count),
    }.items():
        with pytest.raises(InvalidOption, match=wrong):
            act()
    assert len(run.browse("t")) == 1


@pytest.mark.parametrize("count", [2**31, 2**63 - 1])
def test_the_largest_counts_mean_everything(run: Run, count: int) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo())
    with run.reader("t", group="g", max_unacknowledged=count) as reader:
        assert len(reader.poll_many(count, 0)) == 1
    assert len(run.browse("t", limit=count)) == len(run.browse_last("t", count)) == 1
    assert run.remove_outdated("t", max_count=count) == 0
    assert run.dead_letters.list(limit=count) == []
    with IdempotentConsumer(run, "t", "g", lambda _, __: None, batch_size=count) as one:
        assert one.run_until_caught_up() == 1


@pytest.mark.parametrize("seconds", NO_TIMES)
def test_a_time_of_a_reader_or_consumer_that_cannot_be_is_refused(run: Run, seconds: float) -> None:
    with pytest.raises(InvalidOption, match="claim_timeout"):
        run.reader("t", group="g", claim_timeout=seconds)
    with pytest.raises(InvalidOption, match="retry_delay"):
        IdempotentConsumer(run, "t", "g", lambda _, __: None, retry_delay=seconds)
    with pytest.raises(InvalidOption, match="lease"):
        Relay(run, "out", lease=seconds)
    assert run.groups.list() == []
