"""Reading a queue's file beside the process that has it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ticklake.database import sqlite
from ticklake.events import Event, IndexerQueue
from ticklake.events.records import QueueRecords


def test_a_writer_holds_up_nobody_who_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` beside a busy queue: it neither waits for the write lock nor takes it."""
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.1)
    path = tmp_path / "queue.sqlite"
    with IndexerQueue(path) as queue:
        queue.offer([Event("e1", "t", 1)])
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE")
    try:
        (record,) = QueueRecords.read(path).batches
    finally:
        writer.close()
    assert (record.status, record.event_count) == ("pending", 1)
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".sqlite"] == ["queue.sqlite"]
