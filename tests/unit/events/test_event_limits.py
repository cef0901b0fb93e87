"""What an event queue refuses: payloads that are nested too deep, a file that it cannot lock, a damaged file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticklake.errors import BadEvent, DatabaseDamaged, DatabaseUnusable
from ticklake.events import Event, IndexerQueue
from ticklake.events.event import DEEPEST, encode
from ticklake.events.records import check_queue


def nested(levels: int) -> dict[str, object]:
    payload: dict[str, object] = {}
    for _ in range(levels - 1):
        payload = {"a": payload}
    return payload


def test_a_payload_may_be_nested_so_deep_and_not_deeper() -> None:
    assert encode(Event("e", "t", nested(DEEPEST), 0.0)).event_id == "e"
    wide = {"many": [[] for _ in range(DEEPEST + 1)]}
    assert encode(Event("e", "t", wide, 0.0)).event_id == "e", "many brackets are not many levels"
    with pytest.raises(BadEvent, match=f"nested more than {DEEPEST} levels deep"):
        encode(Event("e", "t", nested(DEEPEST + 1), 0.0))


def test_a_queue_whose_lock_is_a_directory_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "queue.db-lock").mkdir()
    with pytest.raises(DatabaseUnusable, match="Is a directory"):
        IndexerQueue(tmp_path / "queue.db").start()


def test_a_queue_that_is_started_twice_goes_on(tmp_path: Path) -> None:
    with IndexerQueue(tmp_path / "queue.db") as queue:
        queue.start()
        queue.offer([Event.new("t")]).wait()
        assert queue.metrics().events_processed_total == 1


def test_a_queue_whose_pages_are_damaged_is_not_called_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with IndexerQueue(path):
        pass
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xff" * 3996  # all of the first page but the header, which says what kind of file it is
    path.write_bytes(data)
    with pytest.raises(DatabaseDamaged):
        check_queue(path)
