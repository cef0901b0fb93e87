"""The table of an indexer of one's own: what `verify --deep` and `reconcile` do for it, and what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import Database, RunCompleted
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.indexers.registry import indexers_of
from ticklake.lake.table import Table
from ticklake.ticks import TickRange
from ticklake.world import World

Command = Callable[..., Result]
SCHEMA = pa.schema([("tick_number", pa.int64()), ("value", pa.int64())])


class Own(BatchIndexer):
    table = Table("own", SCHEMA, ("tick_number",))
    reads = ("tick_number",)

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        number = ticks.column("tick_number")
        return pa.RecordBatch.from_arrays([number, number], schema=SCHEMA)


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def session(master: str) -> Iterator[InProcess]:
        yield InProcess()

    monkeypatch.setattr("ticklake.lake.session.open_session", session)


@pytest.fixture
def places(maker: Any) -> list[str]:
    """A run of 20 ticks that has ended."""
    maker.metadata()
    maker.batches(2, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=19))
    return ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]


def index(maker: Any, *kinds: type[BatchIndexer]) -> list[str]:
    """The files that failed."""
    with Database(maker.database_url) as database:
        resources = IndexerResources(maker.storage, maker.lake, database, spark=InProcess)  # type: ignore[arg-type]
        work = FinishedRun(resources, maker.run_id, list(kinds)).prepare()
        work.start()
        while not work.wait(1.0):
            pass
        return [key for progress in work.progress() for key in progress.failed]


def test_a_deep_verdict_says_which_tables_it_could_not_compare(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
):
    index(maker, Own, EnvironmentIndexer)
    DeltaTable(maker.folder("own")).update(updates={"value": "666"}, predicate="tick_number < 5")
    shown = ticklake("verify", *places, "--deep").stdout
    assert "complete, but 1 table was not compared with the files (own)" in shown
    assert "20 ticks compared" in shown
    assert report("verify", *places, "--deep")["uncompared"] == ["own"]
    assert report("verify", *places)["uncompared"] == []


def flip_a_value(table: Path) -> Path:
    """Changes a bit of a column that is no part of the key."""
    file, *_ = table.glob("*.parquet")
    value, data = pq.read_metadata(file).row_group(0).column(1), bytearray(file.read_bytes())
    data[(value.dictionary_page_offset or value.data_page_offset) + value.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    return file


def change_a_commit(table: Path) -> Path:
    file = table / "_delta_log" / f"{1:020d}.json"
    file.write_text(file.read_text().replace('"Append"', '"Upsert"'))
    return file


@pytest.mark.parametrize("damage", [flip_a_value, change_a_commit])
def test_a_deep_look_checks_every_checksum_of_every_table(
    maker: Any, places: list[str], ticklake: Command, damage: Callable[[Path], Path]
):
    index(maker, Own)
    file = damage(maker.folder("own"))
    result = ticklake("verify", *places, "--deep")
    assert result.exit_code == 1
    assert str(file) in result.stdout


@pytest.mark.warns("failed")
def test_a_failed_file_of_an_indexer_of_ones_own_is_tried_again_as_told(
    maker: Any, places: list[str], ticklake: Command
):
    (*_, file) = sorted(Path(maker.storage.url).rglob("batch_*"))
    good = file.read_bytes()
    file.write_bytes(good[:-4])
    assert len(index(maker, Own)) == 1
    file.write_bytes(good)
    assert len(index(maker, Own)) == 1, "not by itself"
    told = ticklake("reconcile", *places, "--database", maker.database_url, "--retry-failed", "--apply")
    assert told.exit_code == 0, told.output
    assert index(maker, Own) == []
    assert ticklake("verify", *places).exit_code == 0


class Nested:
    class Own(Own):
        table = Table("nested", SCHEMA, ("tick_number",))


def cut_off(maker: Any, table: str) -> None:
    file = sorted(maker.folder(table).glob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-9])


def errors_of(maker: Any, kind: type[BatchIndexer]) -> str:
    resources = IndexerResources(maker.storage, maker.lake, None, spark=InProcess)  # type: ignore[arg-type]
    work = FinishedRun(resources, maker.run_id, [kind]).prepare().start()
    while not work.wait(1.0):
        pass
    (progress,) = work.progress()
    return next(iter(progress.failed.values()))


@pytest.mark.warns("failed")
def test_the_advice_for_a_damaged_table_of_ones_own_names_its_indexer_and_works(maker: Any, places: list[str]) -> None:
    index(maker, Own)
    name = f"{Own.__module__}:Own"
    assert DeltaTable(maker.folder("own")).metadata().configuration["ticklake.indexer"] == name
    cut_off(maker, "own")
    advice = re.search(r"`ticklake index RUN --table (\S+) --ticks (\d+):(\d+) --replace`", errors_of(maker, Own))
    assert advice is not None and advice[1] == name
    (kind,) = indexers_of([advice[1]])
    assert kind is Own
    resources = IndexerResources(maker.storage, maker.lake, None, spark=InProcess)  # type: ignore[arg-type]
    work = FinishedRun(resources, maker.run_id, [kind], TickRange(int(advice[2]), int(advice[3]))).prepare().remove()
    work.start()
    while not work.wait(1.0):
        pass
    assert maker.rows("own")["tick_number"].to_pylist() == list(range(20))


@pytest.mark.warns("failed")
def test_the_advice_for_a_damaged_table_of_ours_names_the_table(maker: Any, places: list[str]) -> None:
    index(maker, EnvironmentIndexer)
    cut_off(maker, "environment_data")
    assert "--table environment_data --ticks" in errors_of(maker, EnvironmentIndexer)


@pytest.mark.warns("failed")
def test_an_indexer_that_cannot_be_named_is_not_named(maker: Any, places: list[str]) -> None:
    index(maker, Nested.Own)
    cut_off(maker, "nested")
    told = errors_of(maker, Nested.Own)
    assert "--table NAME --ticks" in told and "MODULE:CLASS" in told
    assert "nested" in told
