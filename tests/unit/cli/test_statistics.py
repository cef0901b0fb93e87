"""Tables of whose files the log tells little: figures are right or not known, and every command does its work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import Database, RunCompleted
from ticklake.completeness import Completeness
from ticklake.coordination import Coordinator, FoundFile, Target
from ticklake.errors import DamagedTableFile
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.insights import Glance, TableReport, with_missing
from ticklake.lake.delta import Location, log
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read import Catalog, Presence
from ticklake.lake.table import Table
from ticklake.ticks import TickRange
from ticklake.world import World

Command = Callable[..., Result]
Report = Callable[..., Any]

MANY = pa.struct([(f"f{number}", pa.int32()) for number in range(40)])


def _indexer(name: str, before: list[tuple[str, pa.DataType]]) -> type[BatchIndexer]:
    """An indexer whose table has these columns before the tick."""
    schema = pa.schema([*before, ("tick_number", pa.int64())])

    class Wide(BatchIndexer):
        table = Table(name, schema, ("tick_number",))
        reads = ("tick_number",)

        @staticmethod
        def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
            count = len(ticks.column("tick_number"))
            nulls = [pa.nulls(count, kind) for _, kind in before]
            return pa.RecordBatch.from_arrays([*nulls, ticks.column("tick_number")], schema=schema)

    return Wide


COLUMNS = _indexer("wide", [(f"c{number}", pa.int32()) for number in range(40)])
STRUCT = _indexer("wide", [("many", MANY)])


@pytest.fixture
def places(maker: Any) -> list[str]:
    """A run of 40 ticks in four files that has ended."""
    maker.metadata()
    maker.batches(4, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=39))
    return ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]


def index(maker: Any, kind: type[Any], ticks: TickRange | None = None) -> dict[str, str]:
    """The files that failed, with the reasons."""
    resources = IndexerResources(maker.storage, maker.lake, None, spark=InProcess)  # type: ignore[arg-type]
    work = FinishedRun(resources, maker.run_id, [kind], ticks).prepare()
    work.start()
    while not work.wait(1.0):
        pass
    (progress,) = work.progress()
    return dict(progress.failed)


def some_ticks(maker: Any, kind: type[Any]) -> Path:
    """A table with ticks 0 to 9 and 30 to 39."""
    for ticks in (TickRange(0, 9), TickRange(30, 39)):
        assert index(maker, kind, ticks) == {}
    directory = maker.folder(kind.table.name)
    assert isinstance(directory, Path)
    return directory


def before_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made as they were made once: without a word on statistics."""
    monkeypatch.setattr(log, "statistics_property", lambda *_: {})


def table_of(report: Any, name: str) -> dict[str, Any]:
    (found,) = [table for table in report["tables"] if table["name"] == name]
    assert isinstance(found, dict)
    return found


def check_figures(maker: Any, places: list[str], report: Report, ticklake: Command, directory: Path) -> None:
    """Those of a table with ticks 0 to 9 and 30 to 39."""
    rows = DeltaTable(directory).to_pyarrow_table().num_rows
    name = directory.name
    for command in (["status", maker.run_id, *places], ["top", maker.run_id, "--once", *places]):
        shown = table_of(report(*command), name)
        figures = [shown["rows"], shown["ticks"], shown["missing"], shown["missing_ticks"], shown["error"]]
        assert figures == [rows, [0, 39], 1, 20, None], command
    assert table_of(report("status", maker.run_id, *places), name)["lag"] == 0
    assert "20 of 40 ticks" in ticklake("gaps", maker.run_id, *places).stdout


def test_ticks_that_nobody_wrote_before_a_run_was_abandoned_are_not_missing(
    maker: Any, report: Report, ticklake: Command
) -> None:
    """Ticks 10 to 19 were never written. Ticks 20 to 29 have a file that is not indexed."""
    maker.metadata()
    for first in (0, 20, 30):
        maker.batch(first, first + 9)
    places = ["--storage", maker.storage.url, "--lake", str(maker.lake.root), "--database", maker.database_url]
    some_ticks(maker, EnvironmentIndexer)
    with Database(maker.database_url) as database:
        folder = maker.folder("environment_data")
        table = Target(str(DeltaTable(folder).metadata().id), folder.as_uri(), "here")
        coordinator = Coordinator(database.run(maker.run_id), "EnvironmentIndexer", step=1, table=table)
        coordinator.register(lambda *_: None)
        files = [FoundFile(f"{at}", TickRange(at, at + 9)) for at in (0, 20)]
        coordinator.complete(coordinator.claim(files, 2))

    def shown() -> list[tuple[int, int]]:
        commands = (["status", maker.run_id, *places], ["top", maker.run_id, "--once", *places])
        tables = [table_of(report(*one), "environment_data") for one in commands]
        return [(one["missing"], one["missing_ticks"]) for one in tables]

    def gaps() -> list[int]:
        return [one["pending"] for one in report("top", maker.run_id, "--once", *places)["gaps"]]

    assert shown() == [(1, 20), (1, 20)] and gaps() == [1]
    assert ticklake("runs", "close", maker.run_id, "--silent-for", "0", *places[:2]).exit_code == 0
    assert shown() == [(1, 10), (1, 10)] and gaps() == []


def without_statistics(directory: Path) -> None:
    """delta-rs merges files of a table whose property switches statistics off."""
    delta = DeltaTable(directory)
    delta.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"}, raise_if_not_exists=False)
    DeltaTable(directory).optimize.compact()


def appended_without_statistics(directory: Path, **layout: Any) -> None:
    """Every file is added again by an engine that writes no statistics."""
    delta = DeltaTable(directory)
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}]
    for name in pa.table(delta.get_add_actions(flatten=True))["path"].to_pylist():
        pq.write_table(pq.read_table(directory / name), directory / f"again-{name}", **layout)
        size = (directory / f"again-{name}").stat().st_size
        gone = {"path": name, "dataChange": True, "deletionTimestamp": 1}
        new = {"path": f"again-{name}", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
        actions += [{"remove": gone}, {"add": new}]
    file = directory / "_delta_log" / f"{int(delta.version()) + 1:020d}.json"
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")


def written_without_statistics(directory: Path) -> None:
    """The footers have none either."""
    appended_without_statistics(directory, write_statistics=False)


@pytest.mark.parametrize("change", [without_statistics, appended_without_statistics, written_without_statistics])
def test_files_without_statistics_count(
    maker: Any, places: list[str], report: Report, ticklake: Command, change: Callable[[Path], None]
) -> None:
    directory = some_ticks(maker, EnvironmentIndexer)
    change(directory)
    check_figures(maker, places, report, ticklake, directory)
    assert index(maker, EnvironmentIndexer) == {}
    assert ticklake("verify", maker.run_id, *places).exit_code == 0


def test_what_a_file_without_statistics_holds_is_unknown_if_it_cannot_be_read(
    maker: Any, places: list[str], report: Report
) -> None:
    directory = some_ticks(maker, EnvironmentIndexer)
    appended_without_statistics(directory)
    next(directory.glob("again-*.parquet")).write_bytes(b"damaged")
    for command in (["status", maker.run_id, *places], ["top", maker.run_id, "--once", *places]):
        shown = table_of(report(*command), directory.name)
        assert [shown["rows"], shown["ticks"], shown["missing"], shown["missing_ticks"]] == [None] * 4
        assert "again-" in shown["error"]
    assert report("runs", *places)[0]["tables"]


def test_a_table_of_whose_ticks_the_log_does_not_tell_ends_where_its_files_do(maker: Any, places: list[str]) -> None:
    some_ticks(maker, EnvironmentIndexer)
    unknown = TableReport("environment_data")
    (found,) = with_missing([unknown], Catalog(maker.lake_folder), maker.run_id, Presence())
    assert (found.missing, found.missing_ticks) == (1, 20)
    assert Glance(maker.run_id, 0.0, [unknown], [], []).missing is None


@pytest.mark.parametrize("old", [False, True], ids=["new", "made before"])
@pytest.mark.parametrize("kind", [COLUMNS, STRUCT], ids=["columns", "fields of a struct"])
def test_a_tick_behind_many_columns_is_a_tick(
    maker: Any,
    places: list[str],
    report: Report,
    ticklake: Command,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[BatchIndexer],
    old: bool,
) -> None:
    if old:
        before_this_version(monkeypatch)
    directory = some_ticks(maker, kind)
    check_figures(maker, places, report, ticklake, directory)
    assert index(maker, kind) == {}
    assert ticklake("verify", maker.run_id, *places).exit_code == 0
    (done,) = [one for one in report("optimize", "--lake", maker.lake_folder) if one["table"] == "wide"]
    assert (done["files"], done["files_added"]) == (1, 1)
    verdict = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder)).verify(spark=InProcess())  # type: ignore[arg-type]
    assert [table.damaged for table in verdict.tables if table.table == "wide"] == [{}]


@pytest.mark.warns("failed")
@pytest.mark.parametrize("old", [False, True], ids=["new", "made before"])
@pytest.mark.parametrize("kind", [COLUMNS, STRUCT], ids=["columns", "fields of a struct"])
def test_a_damaged_file_of_a_wide_table_holds_up_its_own_ticks_only(
    maker: Any, places: list[str], monkeypatch: pytest.MonkeyPatch, kind: type[BatchIndexer], old: bool
) -> None:
    if old:
        before_this_version(monkeypatch)
    directory = some_ticks(maker, kind)
    ledger = open_existing(Location.of(directory), directory.parent.name)
    assert ledger is not None
    (file, *_) = ledger.files.overlapping(TickRange(0, 0))
    (directory / file.path).write_bytes(b"damaged")
    for checkpoint in (False, True):
        if checkpoint:
            ledger.checkpoint()
        again = Ledger(Location.of(directory), kind.table)  # type: ignore[arg-type]
        assert again.present([TickRange(10, 39)]).tolist() == list(range(30, 40))
        with pytest.raises(DamagedTableFile) as raised:
            again.present([TickRange(0, 9)])
        assert (raised.value.first, raised.value.last) == tuple(file.ticks)
    assert len(index(maker, kind)) == 1


def test_only_a_table_that_needs_it_says_how_many_columns_have_statistics(tmp_path: Path) -> None:
    for name, before, wanted in (("narrow", 31, None), ("wide", 32, "33")):
        schema = pa.schema([*[(f"c{number}", pa.int32()) for number in range(before)], ("tick_number", pa.int64())])
        Ledger(Location.of(tmp_path / name), Table(name, schema, ("tick_number",)))
        found = DeltaTable(tmp_path / name).metadata().configuration
        assert found.get("delta.dataSkippingNumIndexedCols") == wanted
