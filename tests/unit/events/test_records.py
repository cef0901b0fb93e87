"""Reading a queue's file beside the process that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from ticklake.database.sqlite import run_file as sqlite
from ticklake.errors import EventQueueNotFound, NoEventQueue
from ticklake.events import Event, IndexerQueue
from ticklake.events.records import QueueRecords, check_queue

# As anybody looks, from another process. The last one that closes a file removes its -wal.
LOOK = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM dead_batches'); db.close()"


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


def test_who_looks_at_its_own_queue_keeps_its_locks(tmp_path: Path) -> None:
    """A process that closes a file which SQLite has open too loses SQLite's locks on it."""
    path = tmp_path / "queue.db"
    with IndexerQueue(path) as queue:
        queue.offer([Event("e1", "t", 1)]).wait()
        assert QueueRecords.read(path).batches
        subprocess.run([sys.executable, "-c", LOOK, path], check=True)
        assert path.with_name("queue.db-wal").exists()
        queue.offer([Event("e2", "t", 2)]).wait()


@pytest.mark.parametrize("content", [b"", b"short", b"garbage" * 1000])
def test_a_file_that_is_no_queue_is_said_to_be_none_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(NoEventQueue):
        check_queue(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_queue_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "none" / "queue.db"):
        with pytest.raises(EventQueueNotFound):
            check_queue(path)
    assert list(tmp_path.iterdir()) == []
