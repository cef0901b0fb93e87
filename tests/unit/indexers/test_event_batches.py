"""How many batches of a queue an event indexer takes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticklake.events import Event, IndexerQueue
from ticklake.indexers.events import EventIndexer
from ticklake.lake.lake import Lake


def test_no_further_batch_is_taken_after_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have 64 MiB, and all of them are in memory together."""
    monkeypatch.setattr("ticklake.indexers.events.MAX_FLUSH_BYTES", 20_000)
    with IndexerQueue(tmp_path / "queue.db") as queue:
        for number in range(5):
            events = [Event(f"{number}-{place}", "moved", {"text": "x" * 100}, 1.0) for place in range(100)]
            queue.offer(events).wait()  # a batch is closed with its hundredth event
        indexer = EventIndexer(queue, Lake(tmp_path / "lake"), "r", lambda: None)  # type: ignore[arg-type,return-value]
        sizes = []
        while batches := indexer._collect():
            sizes.append([batch.size for batch in batches])
    assert [len(part) for part in sizes] == [2, 2, 1]
    assert all(10_000 < size < 20_000 for part in sizes for size in part)
