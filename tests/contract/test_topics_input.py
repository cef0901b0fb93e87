"""Names and payloads that nobody should use and somebody will."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import BytesValue

from ticklake import BatchInfo, Database
from ticklake.errors import InvalidName
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
