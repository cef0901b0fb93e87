"""A batch file that holds fewer ticks than its name promises: what it has is indexed once, what it lacks is a gap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from in_process import InProcess

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.verdicts import TableVerdict
from ticklake.coordination.gaps import PENDING
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.coordinated import CoordinatedBatches
from ticklake.indexers.finished_run import FinishedRun, Progress
from ticklake.insights import gaps_of
from ticklake.lake.read.catalog import Catalog
from ticklake.storage.codec import encode_ticks
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database

TABLE = "environment_data"


class Shared:
    """A run of every tenth tick that is indexed through a coordinator."""

    def __init__(self, maker: Any, database: Database, step: int = 10) -> None:
        self.maker, self.database = maker, database
        self.folder = Path(maker.storage.url) / maker.run_id
        maker.metadata(step=step)

    def put(self, *ticks: int) -> None:
        """A batch file of these ticks, in the place of one that has the name."""
        (self.folder / f"batch_{ticks[0]:010d}_{ticks[-1]:010d}.pb.zst").unlink(missing_ok=True)
        encoded = encode_ticks(self.maker.run_id, [self.maker._tick(tick, 1) for tick in ticks])
        self.maker.storage.write_batch(self.maker.run_id, encoded)

    def index(self, size: int = 1000) -> Progress:
        spark: Any = InProcess()
        resources = IndexerResources(self.maker.storage, self.maker.lake, database=self.database, spark=lambda: spark)
        work = FinishedRun(resources, self.maker.run_id, [EnvironmentIndexer], insert_batch_size=size).start()
        while not work.wait(1):
            pass
        (progress,) = work.progress()
        return progress

    def correct(self, step: int) -> None:
        """Writes the metadata again with another sampling interval."""
        for file in self.folder.glob("metadata*"):
            file.unlink()
        self.maker.metadata(step=step)

    @property
    def ticks(self) -> list[int]:
        rows = DeltaTable(self.maker.folder(TABLE)).to_pyarrow_table()
        return sorted(rows.column("tick_number").to_pylist())

    def verdict(self) -> TableVerdict:
        lake = Catalog(self.maker.lake_folder)
        (table,) = Completeness(self.maker.run_id, self.maker.storage, lake, self.database).verify().tables
        return table

    def gaps(self) -> list[TickRange]:
        """As all say it: the coordinator, the verdict's own arithmetic, and what pages and `status` show."""
        verdict = self.verdict()
        found = [gap.ticks for gap in verdict.gaps]
        assert verdict.coverage.missing == verdict.coverage.lost == found
        assert verdict.coverage.waiting == []
        shown = gaps_of([self.database], self.maker.run_id, [Catalog(self.maker.lake_folder)])
        assert sum(one.pending + one.permanent for one in shown) == len(found)
        return found

    def commits(self) -> int:
        return int(DeltaTable(self.maker.folder(TABLE)).version())


@pytest.fixture
def shared(maker: Any) -> Iterator[Shared]:
    with Database(maker.database_url) as database:
        yield Shared(maker, database)


WITHOUT_50 = [0, 10, 20, 30, 40, 60, 70, 80, 90]


@pytest.mark.warns("lacks ticks")
@pytest.mark.parametrize("size", [1000, 3])
@pytest.mark.parametrize(
    ("ticks", "missing"),
    [
        (WITHOUT_50, [TickRange(50, 50)]),
        ([0, 30, 60, 70, 90], [TickRange(10, 20), TickRange(40, 50), TickRange(80, 80)]),
        ([0, 90], [TickRange(10, 80)]),
    ],
)
def test_what_a_file_lacks_is_a_gap_and_what_it_has_is_there_once(
    shared: Shared, ticks: list[int], missing: list[TickRange], size: int
) -> None:
    shared.put(*ticks)
    shared.put(*range(100, 200, 10))
    shared.index(size)
    assert shared.ticks == [*ticks, *range(100, 200, 10)]
    assert shared.gaps() == missing
    assert {gap.status for gap in shared.verdict().gaps} == {PENDING}


@pytest.mark.warns("lacks ticks")
def test_a_file_that_lacks_ticks_is_not_indexed_again_unless_it_has_changed(shared: Shared) -> None:
    shared.put(*WITHOUT_50)
    shared.index()
    commits = shared.commits()
    for _ in range(2):
        done = shared.index()
        assert (done.ticks, done.present) == (0, 9)
        assert shared.commits() == commits
        assert shared.gaps() == [TickRange(50, 50)]


@pytest.mark.warns("lacks ticks", "indexed again")
def test_a_file_that_was_mended_is_indexed_again_and_closes_the_gap(shared: Shared) -> None:
    shared.put(0, 20, 30, 40, 60, 70, 80, 90)
    shared.index()
    assert shared.gaps() == [TickRange(10, 10), TickRange(50, 50)]
    shared.put(*WITHOUT_50)
    done = shared.index()
    assert (done.ticks, shared.ticks) == (1, WITHOUT_50)
    assert shared.gaps() == [TickRange(50, 50)]
    shared.put(*range(0, 100, 10))
    shared.index()
    assert shared.ticks == list(range(0, 100, 10))
    assert shared.gaps() == []
    assert shared.index().ticks == 0


@pytest.mark.warns("lacks ticks")
def test_a_later_file_with_the_missing_ticks_closes_the_gap(shared: Shared) -> None:
    shared.put(*WITHOUT_50)
    shared.index()
    shared.put(40, 50, 60)
    shared.index()
    assert shared.ticks == list(range(0, 100, 10))
    assert shared.gaps() == []
    commits = shared.commits()
    assert shared.index().ticks == 0
    assert (shared.commits(), shared.gaps()) == (commits, [])


@pytest.mark.warns("lacks ticks", "indexed again")
def test_a_table_that_lost_ticks_gets_back_those_that_the_file_has(shared: Shared) -> None:
    shared.put(*WITHOUT_50)
    shared.index()
    DeltaTable(shared.maker.folder(TABLE)).delete("tick_number IN (40, 60)")
    shared.index()
    assert shared.ticks == WITHOUT_50
    assert shared.gaps() == [TickRange(50, 50)]


@pytest.mark.warns("lacks ticks", "indexed again")
def test_a_run_whose_metadata_have_a_wrong_sampling_interval_has_one_gap_for_each_file(maker: Any) -> None:
    with Database(maker.database_url) as database:
        shared = Shared(maker, database, step=1)
        shared.put(*range(0, 2001, 10))
        shared.put(*range(2010, 4001, 10))
        shared.index()
        assert shared.ticks == list(range(0, 4001, 10))
        assert [gap.ticks for gap in shared.verdict().gaps] == [
            TickRange(1, 1999),
            TickRange(2001, 2009),
            TickRange(2011, 3999),
        ]
        commits = shared.commits()
        assert (shared.index().ticks, shared.commits()) == (0, commits)
        DeltaTable(maker.folder(TABLE)).delete("tick_number = 40")
        assert (shared.index().ticks, shared.ticks) == (1, list(range(0, 4001, 10)))


@pytest.mark.warns("lacks ticks", "indexed again")
def test_a_file_that_is_replaced_while_its_stamp_is_taken_is_read_again(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    missing = CoordinatedBatches._missing

    def replaced_after(look: Any) -> Any:
        def looked(storage: Storage, key: str) -> Any:
            found = look(storage, key)
            looks.append(key)
            if len(looks) == 1:
                shared.put(*range(0, 100, 10))
            return found

        return looked

    def judged(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "batch", replaced_after(Storage.batch))
            patch.setattr(Storage, "stamp", replaced_after(Storage.stamp))
            return missing(*arguments)

    shared.put(*WITHOUT_50)
    monkeypatch.setattr(CoordinatedBatches, "_missing", judged)
    shared.index()
    assert looks and shared.ticks == WITHOUT_50
    shared.index()
    assert (shared.ticks, shared.gaps()) == (list(range(0, 100, 10)), [])


@pytest.mark.warns("lacks ticks", "indexed again", "METADATA_CHANGED")
@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("last", [90, 2000])
def test_lost_ticks_come_back_after_the_sampling_interval_was_corrected(maker: Any, repair: bool, last: int) -> None:
    with Database(maker.database_url) as database:
        shared = Shared(maker, database, step=1)
        shared.put(*range(0, last + 1, 10))
        shared.put(*range(last + 20, last + 100, 10))
        shared.index()
        shared.correct(10)
        told = shared.verdict()
        assert (told.coverage.waiting, told.coverage.lost) == ([], [TickRange(last + 10, last + 10)])
        shared.index()
        assert shared.gaps() == [TickRange(last + 10, last + 10)]
        DeltaTable(maker.folder(TABLE)).delete("tick_number < 50")
        assert shared.verdict().coverage.waiting == [TickRange(0, 40)]
        if repair:
            completeness = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder), database)
            completeness.apply(completeness.plan())
        assert shared.index().ticks == 5
        assert shared.ticks == [tick for tick in range(0, last + 100, 10) if tick != last + 10]
        assert shared.gaps() == [TickRange(last + 10, last + 10)]


@pytest.mark.warns("lacks ticks", "indexed again", "METADATA_CHANGED")
def test_the_first_repair_after_a_correction_knows_what_the_files_hold(maker: Any) -> None:
    with Database(maker.database_url) as database:
        shared = Shared(maker, database, step=1)
        shared.put(*range(0, 100, 10))
        shared.index()
        shared.correct(10)
        DeltaTable(maker.folder(TABLE)).delete("tick_number < 50")
        completeness = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder), database)
        completeness.apply(completeness.plan())
        shared.index()
        assert (shared.ticks, shared.gaps()) == (list(range(0, 100, 10)), [])


@pytest.mark.warns("lacks ticks", "METADATA_CHANGED", "indexed again")
def test_what_a_file_lacks_on_a_finer_grid_becomes_a_gap(maker: Any) -> None:
    with Database(maker.database_url) as database:
        shared = Shared(maker, database, step=20)
        shared.put(0, 20, 40)
        shared.index()
        assert shared.gaps() == []
        shared.correct(10)
        shared.index()
        assert (shared.ticks, shared.gaps()) == ([0, 20, 40], [TickRange(10, 10), TickRange(30, 30)])
