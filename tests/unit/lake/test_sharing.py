"""Tables that share a job: each batch file is read once for all of them, and nothing else is shared."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_process import InProcess

from ticklake.errors import FlushFailed
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.flush.flush import Flushed, Flusher
from ticklake.lake.flush.rendezvous import Sharing
from ticklake.lake.flush.shared_read import Request, common_slices
from ticklake.lake.flush.task import Work
from ticklake.lake.slices import Piece, Slice
from ticklake.storage.files import BatchFile, Storage
from ticklake.ticks import TickRange
from ticklake.world import World


class Killer(OrganismIndexer):
    """Takes the whole job down."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        raise KeyboardInterrupt


class Picky(OrganismIndexer):
    """Cannot make rows of tick 15."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        if 15 in ticks.column("tick_number").to_pylist():
            raise ValueError("no rows of tick 15")
        return OrganismIndexer.rows(ticks, world)


@pytest.fixture
def slices(maker: Any) -> list[Slice]:
    maker.metadata()
    return [Slice(file, file.ticks) for file in map(maker.storage.batch, (b.storage_key for b in maker.batches(3, 10)))]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The batch files that were opened, in order."""
    opened: list[str] = []
    real = Storage.open

    def counted(storage: Storage, key: str) -> Any:
        if "/batch_" in key:
            opened.append(key)
        return real(storage, key)

    monkeypatch.setattr(Storage, "open", counted)
    return opened


def flusher(maker: Any, kind: type[BatchIndexer], sharing: Sharing) -> Flusher:
    assert kind.table is not None
    work = Work(
        flush_id="",
        storage=maker.storage,
        world=World.of(maker.storage.read_metadata(maker.run_id)),
        reads=kind.reads,
        table=kind.table,
        location=maker.lake.location(maker.run_id, kind.table.name),
        rows=kind.rows,
    )
    sharing.expect(kind.table.name)
    return Flusher(InProcess, work, maker.lake.ledger(maker.run_id, kind.table), sharing.run_job)


def flush_both(
    maker: Any, kinds: Sequence[type[BatchIndexer]], wanted: Sequence[Sequence[Slice]], patience: float = 60
) -> list[Flushed | BaseException]:
    sharing = Sharing(patience)
    flushers = [flusher(maker, kind, sharing) for kind in kinds]
    with ThreadPoolExecutor(len(kinds)) as threads:
        futures = [threads.submit(one.flush, slices) for one, slices in zip(flushers, wanted, strict=True)]
    return [future.exception() or future.result() for future in futures]


def expected_organisms(ticks: range) -> list[tuple[int, int]]:
    return [(tick, 1) for tick in ticks]


def test_each_file_is_read_once_for_both_tables(maker: Any, slices: list[Slice], reads: list[str]) -> None:
    flush_both(maker, [EnvironmentIndexer, OrganismIndexer], [slices[::2], slices[::2]])
    assert len(reads) == len(set(reads)) == 2
    assert maker.keys() == sorted(maker.expected_keys([*range(10), *range(20, 30)]))
    assert maker.keys("organism_data", "organism_id") == expected_organisms(range(10)) + expected_organisms(
        range(20, 30)
    )


def test_tables_that_are_not_equally_far_get_what_each_of_them_lacks(maker: Any, slices: list[Slice]) -> None:
    flusher(maker, OrganismIndexer, Sharing()).flush([Slice(slices[0].source, TickRange(3, 6)), slices[2]])
    cells, organisms = flush_both(maker, [EnvironmentIndexer, OrganismIndexer], [slices, slices])
    assert (cells.ticks, cells.ticks_present, organisms.ticks, organisms.ticks_present) == (30, 0, 16, 14)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert maker.keys("organism_data", "organism_id") == expected_organisms(range(30))


def test_what_fails_for_one_table_does_not_fail_for_the_other(maker: Any, slices: list[Slice]) -> None:
    # The rest is tried again without the bad file, for this table alone: the other one does not come again.
    cells, organisms = flush_both(maker, [EnvironmentIndexer, Picky], [slices, slices], patience=1)
    assert list(cells.failures) == []
    assert list(organisms.failures) == [1]
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert {tick for tick, _ in maker.keys("organism_data", "organism_id")}.isdisjoint(range(15, 20))


def test_a_job_that_dies_is_blamed_on_the_table_it_dies_of(
    maker: Any, slices: list[Slice], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = InProcess.collect

    def collect(spark: InProcess) -> list[dict[str, Any]]:
        try:
            return real(spark)
        except KeyboardInterrupt:
            raise RuntimeError("Job aborted due to stage failure") from None

    monkeypatch.setattr(InProcess, "collect", collect)
    cells, organisms = flush_both(maker, [EnvironmentIndexer, Killer], [slices, slices])
    assert isinstance(organisms, FlushFailed) and not isinstance(cells, BaseException)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))


def test_a_table_that_does_not_come_is_waited_for_once(maker: Any, slices: list[Slice]) -> None:
    sharing = Sharing(patience=0.01)
    sharing.expect("organism_data")
    cells = flusher(maker, EnvironmentIndexer, sharing)
    cells.flush(slices[:1])
    assert sharing._expected == {"environment_data"}
    flusher(maker, OrganismIndexer, sharing).flush(slices[:1])
    assert "organism_data" in sharing._expected
    cells.flush(slices[1:])
    assert maker.keys() == sorted(maker.expected_keys(range(30)))


spans = st.lists(st.integers(0, 30), min_size=2, max_size=8, unique=True).map(sorted)


@given(st.lists(spans, min_size=1, max_size=4))
def test_every_request_gets_each_of_its_ticks_once(requests: list[list[int]]) -> None:
    file = BatchFile("run", "run/batch_0_30.pb", TickRange(0, 30), 1000)
    wanted = [
        [Piece(n, Slice(file, TickRange(edges[n], edges[n + 1] - 1))) for n in range(0, len(edges) - 1, 2)]
        for edges in requests
    ]
    work: Any = None
    commons = common_slices([Request(work, pieces) for pieces in wanted])
    for place, pieces in enumerate(wanted):
        got = [
            (piece.number, tick)
            for common in commons
            for taker, piece in common.wanted
            if taker == place
            for tick in range(common.slice.ticks.start, common.slice.ticks.end + 1)
        ]
        assert sorted(got) == [
            (piece.number, tick)
            for piece in pieces
            for tick in range(piece.slice.ticks.start, piece.slice.ticks.end + 1)
        ]
    assert sum(common.slice.ticks.count() for common in commons) == len(
        {
            tick
            for pieces in wanted
            for piece in pieces
            for tick in range(piece.slice.ticks.start, piece.slice.ticks.end + 1)
        }
    )
