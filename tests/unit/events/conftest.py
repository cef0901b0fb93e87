from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ticklake.events import EventBus, IndexerQueue


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


@pytest.fixture
def queue(tmp_path: Path, bus: EventBus) -> Iterator[IndexerQueue]:
    """Started, and subscribed to the bus."""
    made = IndexerQueue(tmp_path / "data" / "queue.db")
    made.start()
    made.subscribe_to_eventbus(bus)
    yield made
    made.stop()
