"""A producer whose PostgreSQL is away: it writes batch files, and announces them once the server is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ticklake import BatchInfo, Database, EnvironmentConfig, SimulationMetadata
from ticklake.coordination import announced, compare, stored
from ticklake.services import (
    CompletionService,
    MetadataPersistenceService,
    PersistenceOptions,
    PersistenceService,
    ReconciliationService,
    Service,
    State,
    TickQueue,
)
from ticklake.storage import CellColumns, OrganismColumns, Storage, TickColumns, encode_ticks
from ticklake.ticks import TickRange

RUN_ID = "20251014-143025-0000feed"
pytestmark = [pytest.mark.chaos, pytest.mark.warns("cannot be announced yet", "are written, but not announced")]


@pytest.fixture(scope="module")
def server(own_postgres: Any) -> Any:
    return own_postgres


@pytest.fixture
def away(server: Any) -> Iterator[Any]:
    server.stop()
    yield server
    with suppress(RuntimeError):
        server.start()


class Producing:
    """The services of a producer, as a node starts them."""

    def __init__(self, database: Database, root: Path, run_id: str) -> None:
        self.run_id, self.queue = run_id, TickQueue()
        self.run, self.storage = database.run(run_id), Storage(root / "storage")
        environment = EnvironmentConfig(dimensions=1, shape=[10], toroidal=[True])
        metadata = SimulationMetadata(
            simulation_run_id=run_id, environment=environment, sampling_interval=1, format_version=1
        )
        self.metadata = MetadataPersistenceService(self.run, self.storage, metadata)
        self.persistence = PersistenceService(self.run, self.storage, self.queue, PersistenceOptions(10, 3600))
        self.completion = CompletionService(self.run, self.storage, self.queue)
        self.services: list[Service] = [self.completion, self.metadata, self.persistence]
        for service in self.services:
            service.start()

    def emit(self, start: int, count: int) -> None:
        one = np.ones(3, np.int32)
        cells = CellColumns(np.arange(3, dtype=np.int32), one << 16, one, one)
        columns = [TickColumns(number, 0, cells, OrganismColumns()) for number in range(start, start + count)]
        for tick in encode_ticks(self.run_id, columns):
            self.queue.put(tick)

    def files(self) -> list[TickRange]:
        try:
            return sorted(stored(self.storage, self.run_id).values())
        except FileNotFoundError:  # nothing is written yet
            return []

    def stop(self) -> None:
        for service in reversed(self.services):
            service.ask_to_stop()
            assert service.join(60)
            assert service.state is State.STOPPED, service.error


def ranges(count: int) -> list[TickRange]:
    return [TickRange(10 * number, 10 * number + 9) for number in range(count)]


def test_files_are_written_during_the_outage_and_announced_after_it(
    away: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with Database(away.get_uri()) as database:
        producing = Producing(database, tmp_path, RUN_ID)
        producing.emit(0, 50)
        eventually(lambda: producing.files() == ranges(5))
        eventually(lambda: producing.persistence.unannounced == 5)
        assert not producing.persistence.monitor.healthy
        away.start()
        eventually(lambda: producing.persistence.unannounced + producing.metadata.unannounced == 0)
        assert producing.persistence.monitor.healthy
        producing.queue.close()
        for service in producing.services:
            assert service.join(60)
        assert compare(stored(producing.storage, RUN_ID), announced(producing.run)).unannounced == []
        infos = [message.payload for message in opened(producing, "batch-topic")]
        assert [(info.tick_start, info.tick_end) for info in infos] == [(one.start, one.end) for one in ranges(5)]
        assert len(opened(producing, "metadata-topic")) == len(opened(producing, "run-topic")) == 1


def test_a_stop_during_the_outage_loses_nothing_that_was_accepted(
    away: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    run_id = "20251014-143026-0000feed"
    with Database(away.get_uri()) as database:
        producing = Producing(database, tmp_path, run_id)
        producing.emit(0, 25)
        eventually(lambda: producing.files() == ranges(2))
        producing.queue.close()
        producing.stop()
        assert producing.files() == [*ranges(2), TickRange(20, 24)]
        end = producing.storage.read_completion(run_id)
        assert end is not None and end.last_tick == 24
    away.start()
    with Database(away.get_uri()) as database:
        service = ReconciliationService(database, producing.storage)
        service.reconcile_all()
        service.reconcile_all()
        infos = announced(database.run(run_id)).keys.values()
        assert sorted(infos) == producing.files()


def opened(producing: Producing, topic: str) -> list[Any]:
    messages = [message.opened() for message in producing.run.browse(topic)]
    assert all(message is not None for message in messages)
    assert topic != "batch-topic" or all(isinstance(one.payload, BatchInfo) for one in messages if one)
    return messages
