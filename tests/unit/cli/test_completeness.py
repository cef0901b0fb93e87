"""`verify`, `gaps` and `reconcile` as a user runs them, over a real run: files, tables made from them, messages."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import DeltaTable, write_deltalake
from in_process import InProcess

from ticklake import BatchInfo, RunCompleted
from ticklake.cli.pipeline.demo import population_of
from ticklake.cli.terminal.bar import bar
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.ending import end_run
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.reconcile import announced
from ticklake.coordination.target import Target
from ticklake.errors import (
    BadMetadata,
    DatabaseNotFound,
    InvalidOption,
    LastFileBad,
    RunEndedBefore,
    RunGoesOn,
    RunHasNoFiles,
    RunNeverAnnounced,
    RunNotFound,
    RunNotInDatabase,
    RunNotSilent,
    TopicAmbiguous,
    TopicUnknown,
)
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.empty import EMPTY, packed
from ticklake.lake.flush.task import Indexed, Work, index
from ticklake.lake.metadata import write_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.slices import Piece, Slice
from ticklake.services.completion import CompletionService
from ticklake.services.queue import TickQueue
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.world import World

Command = Callable[..., Result]


class Pipeline:
    """A run with batches of ten ticks and its organism table, indexed here without a Spark session."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        self.metadata = maker.metadata()
        self.world = World.of(self.metadata)

    def write(self, *starts: int) -> None:
        for start in starts:
            self.maker.batch(start, start + 9, cells=1)

    def end(self, last_tick: int) -> None:
        self.maker.storage.write_completion(RunCompleted(simulation_run_id=self.maker.run_id, last_tick=last_tick))

    def index(self, *starts: int) -> None:
        kind = OrganismIndexer
        write_metadata(self.maker.lake.location(self.maker.run_id, "metadata"), self.metadata)
        ledger = self.maker.lake.ledger(self.maker.run_id, kind.table)
        for start in starts:
            file = next(f for f in self.maker.storage.batches(self.maker.run_id).files if f.ticks.start == start)
            work = Work("flush", self.maker.storage, self.world, kind.reads, kind.table, ledger.location, kind.rows)
            results = index(work, start, [Piece(0, Slice(file, file.ticks))])
            files = [result for result in results if not isinstance(result, Indexed)]
            ledger.commit(files, {})  # type: ignore[arg-type]

    def completeness(self) -> Completeness:
        return Completeness(self.maker.run_id, self.maker.storage, Catalog(str(self.maker.lake.root)))

    @property
    def places(self) -> list[str]:
        return ["--storage", self.maker.storage.url, "--lake", str(self.maker.lake.root)]

    @property
    def database(self) -> list[str]:
        return ["--database", self.maker.database_url]


@pytest.fixture
def pipeline(maker: Any) -> Pipeline:
    return Pipeline(maker)


def test_a_complete_run_is_proved_and_exits_0(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10, 20)
    pipeline.index(0, 10, 20)
    pipeline.end(29)
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 0
    assert f"Run {pipeline.maker.run_id}: complete" in result.stdout
    assert "0 missing, 0 duplicated" in result.stdout


def test_what_is_missing_is_named_and_exits_1(pipeline: Pipeline, ticklake: Command, report: Callable[..., Any]):
    pipeline.write(0, 10, 30)
    pipeline.index(0, 30)
    pipeline.end(49)
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 1
    assert "organism_data: missing, no file: 20–29, 40–49" in result.stdout
    assert "organism_data: missing, has a file: 10–19" in result.stdout
    assert "30 missing, 0 duplicated" in result.stdout
    (table,) = report("verify", *pipeline.places)["tables"]
    assert table["coverage"]["missing"] == [[10, 29], [40, 49]]
    assert table["rows"] == 20


def test_rows_that_are_there_twice_are_named(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    pipeline.end(9)
    table = pipeline.maker.folder("organism_data")
    write_deltalake(table, DeltaTable(table).to_pyarrow_table().slice(3, 1), mode="append")
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 1
    assert "organism_data: duplicated: tick_number 3, organism_id 1" in result.stdout
    assert "0 missing, 1 duplicated" in result.stdout


@pytest.mark.parametrize("number", [-5, None])
def test_rows_of_no_tick_are_named(pipeline: Pipeline, ticklake: Command, number: int | None):
    pipeline.write(0)
    pipeline.index(0)
    pipeline.end(9)
    table = pipeline.maker.folder("organism_data")
    row = DeltaTable(table).to_pyarrow_table().slice(3, 1)
    row = row.set_column(0, row.schema.field(0), pa.array([number], pa.int64()))
    write_deltalake(table, row, mode="append")
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 1
    assert ("unexpected ticks: -5\n" if number else "it has rows without tick_number") in result.stdout


def test_a_run_that_never_ended_is_running_and_says_since_when_it_is_silent(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 3, "nothing is missing, nobody has said that it has ended"
    assert "has not ended, silent since 20" in result.stdout
    assert "ticklake end" in result.stdout


def test_a_run_that_never_ended_and_lacks_something_exits_1(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10)
    pipeline.index(0)
    assert ticklake("verify", *pipeline.places).exit_code == 1
    assert ticklake("verify", *pipeline.places, "--ended").exit_code == 1


@pytest.mark.parametrize("deep", [False, True])
def test_what_comes_while_a_run_is_verified_is_not_unexpected(pipeline: Pipeline, deep: bool):
    pipeline.write(0, 10)
    pipeline.index(0, 10)
    live = pipeline.completeness()
    pipeline.write(20)
    pipeline.index(20)
    found = live.verify(spark=InProcess() if deep else None)  # type: ignore[arg-type]
    assert (found.verdict, found.flawless) == ("running", True)
    assert pipeline.completeness().verify().flawless


def test_ticks_of_no_file_are_unexpected_also_in_a_run_that_goes_on(pipeline: Pipeline):
    pipeline.write(0, 10, 20)
    pipeline.index(0, 10, 20)
    (last,) = Path(pipeline.maker.storage.url).rglob("*_0000000020_*")
    last.unlink()
    (table,) = pipeline.completeness().verify().tables
    assert table.coverage.unexpected == [TickRange(20, 29)]


def test_a_run_that_ends_while_its_files_are_listed_lacks_no_file(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    pipeline.write(0, 10)
    pipeline.index(0, 10)
    read = pipeline.maker.storage.read_completion

    def end_and_read(run_id: str) -> Any:
        pipeline.write(20)
        pipeline.end(29)
        return read(run_id)

    monkeypatch.setattr(pipeline.maker.storage, "read_completion", end_and_read)
    assert pipeline.completeness().expected.lost == []


def test_a_run_without_a_completion_record_is_complete_where_the_user_says_it_has_ended(
    pipeline: Pipeline, ticklake: Command, report: Callable[..., Any]
):
    pipeline.write(0, 10)
    pipeline.index(0, 10)
    result = ticklake("verify", *pipeline.places, "--ended")
    assert (result.exit_code, "assumed to have ended at tick 19" in result.stdout) == (0, True)
    assert report("verify", *pipeline.places, "--ended")["storage"]["assumed"]
    assert ticklake("verify", *pipeline.places).exit_code == 3, "nothing was recorded"


def test_what_a_producer_has_said_counts_more_than_the_user(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    pipeline.end(19)
    result = ticklake("verify", *pipeline.places, "--ended")
    assert (result.exit_code, "ended at tick 19" in result.stdout) == (1, True)


@pytest.mark.parametrize(
    ("announce", "said"),
    [
        (20, "complete, but 1 message for files that do not exist"),
        (30, "after the end of the run, tick 19"),
    ],
)
def test_a_complete_run_says_what_its_messages_tell_beyond_it(
    pipeline: Pipeline, ticklake: Command, announce: int, said: str
):
    pipeline.write(0, 10)
    pipeline.index(0, 10)
    pipeline.end(19)
    key = f"{pipeline.maker.run_id}/{found(announce).name}"
    info = BatchInfo(
        simulation_run_id=pipeline.maker.run_id, storage_key=key, tick_start=announce, tick_end=announce + 9
    )
    pipeline.maker.publish(info)
    result = ticklake("verify", *pipeline.places, *pipeline.database)
    assert result.exit_code == 0
    assert said in result.stdout


def test_a_complete_run_says_that_files_go_on_behind_its_end(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10)
    pipeline.index(0)
    pipeline.end(9)
    result = ticklake("verify", *pipeline.places)
    assert result.exit_code == 0
    assert "complete, but 1 file with ticks after the end of the run, tick 9" in result.stdout


def test_a_table_that_cannot_be_read_is_named_also_with_a_database(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    pipeline.end(9)
    pipeline.maker.publish(pipeline.maker.batch(0, 9, cells=1))
    log = pipeline.maker.folder("organism_data") / "_delta_log"
    (log / "00000000000000000000.json").write_text("no commit")
    result = ticklake("verify", *pipeline.places, *pipeline.database)
    assert (result.exit_code, "organism_data:" in result.stdout) == (1, True)


# Ending a run by hand


def test_a_run_is_ended_by_hand_once(pipeline: Pipeline, ticklake: Command, report: Callable[..., Any]):
    pipeline.write(0, 10)
    pipeline.index(0, 10)
    run, storage = pipeline.maker.run_id, pipeline.places[:2]
    with pytest.raises(RunNotSilent, match="a file or a message arrived"):
        ticklake("end", run, *storage)
    assert "has ended at tick 19" in ticklake("end", run, *storage, "--silent-for", "0").stdout
    assert ticklake("verify", *pipeline.places).exit_code == 0
    assert "had already ended" in ticklake("end", run, *storage).stdout
    with pytest.raises(RunEndedBefore, match="at tick 19"):
        ticklake("end", run, *storage, "--last-tick", "29")


@pytest.mark.parametrize("silent_for", [math.nan, math.inf, -math.inf, -1.0])
def test_a_silence_that_is_no_time_is_refused_from_python_too(pipeline: Pipeline, silent_for: float):
    pipeline.write(0)
    with pytest.raises(InvalidOption, match="silent_for"):
        end_run(pipeline.maker.storage, pipeline.maker.run_id, silent_for=silent_for)
    assert pipeline.maker.storage.read_completion(pipeline.maker.run_id) is None


def test_a_run_whose_files_go_on_is_not_ended(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10)
    with pytest.raises(RunGoesOn, match=found(10).name):
        ticklake("end", pipeline.maker.run_id, *pipeline.places[:2], "--last-tick", "9", "--silent-for", "0")
    assert pipeline.maker.storage.read_completion(pipeline.maker.run_id) is None


def test_a_run_without_files_has_no_end(pipeline: Pipeline, ticklake: Command):
    with pytest.raises(RunHasNoFiles):
        ticklake("end", pipeline.maker.run_id, *pipeline.places[:2], "--silent-for", "0")


def test_a_later_end_than_the_last_file_leaves_what_is_missing(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    ticklake("end", pipeline.maker.run_id, *pipeline.places[:2], "--last-tick", "19", "--silent-for", "0")
    result = ticklake("verify", *pipeline.places)
    assert (result.exit_code, "missing, no file: 10–19" in result.stdout) == (1, True)


def test_the_end_is_announced_once_where_there_is_a_database(pipeline: Pipeline, ticklake: Command):
    pipeline.maker.publish(pipeline.maker.batch(0, 9, cells=1))
    where = (pipeline.maker.run_id, *pipeline.places[:2], "--silent-for", "0")
    ticklake("end", *where)
    for _ in range(2):
        ticklake("end", *where, *pipeline.database)
    with Database(pipeline.maker.database_url) as database:
        messages = database.run(pipeline.maker.run_id).browse("run-topic")
        assert [message.opened().payload.last_tick for message in messages] == [9]  # type: ignore[union-attr]


@pytest.mark.parametrize("content", ["empty", "of other ticks", "torn"])
def test_a_last_file_that_does_not_hold_its_ticks_is_no_end(pipeline: Pipeline, ticklake: Command, content: str):
    pipeline.write(0, 10)
    folder = Path(pipeline.maker.storage.url) / pipeline.maker.run_id
    good = (folder / found(10).name).read_bytes()
    (folder / found(300).name).write_bytes({"empty": b"", "of other ticks": good, "torn": good[:40]}[content])
    end = ("end", pipeline.maker.run_id, *pipeline.places[:2], "--silent-for", "0")
    with pytest.raises(LastFileBad, match=found(300).name):
        ticklake(*end)
    assert pipeline.maker.storage.read_completion(pipeline.maker.run_id) is None
    assert "has ended at tick 309" in ticklake(*end, "--last-tick", "309").stdout


@pytest.mark.parametrize(
    ("step", "shape", "reason"), [(1, (5, 10), "outside the world"), (3, (10, 10), "samples every")]
)
def test_a_last_file_that_no_indexer_takes_is_no_end(
    maker: Any, ticklake: Command, step: int, shape: tuple[int, ...], reason: str
):
    maker.metadata(step=step, shape=shape)
    maker.batch(0, 10)
    with pytest.raises(LastFileBad, match=reason):
        ticklake("end", maker.run_id, "--storage", maker.storage.url, "--silent-for", "0")


def test_an_end_is_not_announced_to_a_database_without_the_run(pipeline: Pipeline, ticklake: Command, tmp_path: Path):
    pipeline.write(0)
    end = ("end", pipeline.maker.run_id, *pipeline.places[:2], "--silent-for", "0")
    with pytest.raises(DatabaseNotFound, match="typo"):
        ticklake(*end, "--database", f"sqlite:///{tmp_path / 'typo'}")
    assert not (tmp_path / "typo").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(RunNotInDatabase, match="other"):
        ticklake(*end, "--database", f"sqlite:///{tmp_path / 'other'}")
    assert pipeline.maker.storage.read_completion(pipeline.maker.run_id) is None


@pytest.mark.parametrize("known_by", ["configuration", "option", "earlier end"])
def test_the_end_is_announced_on_the_topic_of_the_run_whatever_its_name(
    pipeline: Pipeline, ticklake: Command, known_by: str
):
    publish_to(pipeline, "tick-batches", pipeline.maker.batch(0, 9, cells=1))
    end = ("end", pipeline.maker.run_id, "--silent-for", "0")
    places = [*pipeline.places[:2], *pipeline.database]
    with pytest.raises(TopicUnknown, match="--topic"):
        ticklake(*end, *places)
    assert pipeline.maker.storage.read_completion(pipeline.maker.run_id) is None
    if known_by == "configuration":
        ticklake(*end, *configured(pipeline))
    else:
        ticklake(*end, *places, "--topic", "run-ends")
    if known_by == "earlier end":
        assert ticklake(*end, *places).exit_code == 0
    assert messages_on(pipeline) == {"run-ends": 1, "tick-batches": 1}


def test_a_producer_that_ends_where_its_run_was_ended_by_hand_finds_that_fine(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    ticklake("end", pipeline.maker.run_id, *pipeline.places[:2], "--silent-for", "0")
    with Database(pipeline.maker.database_url) as database:
        service = CompletionService(database.run(pipeline.maker.run_id), pipeline.maker.storage, TickQueue())
        service._complete(9)
        assert len(database.run(pipeline.maker.run_id).browse("run-topic")) == 1


def test_a_tick_without_rows_counts_once_its_commit_says_so(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10)
    pipeline.index(0)
    pipeline.end(19)
    assert ticklake("verify", *pipeline.places).exit_code == 1
    ledger = pipeline.maker.lake.ledger(pipeline.maker.run_id, OrganismIndexer.table)
    ledger.commit([], {EMPTY: packed(np.arange(10, 20))})
    assert ticklake("verify", *pipeline.places).exit_code == 0


def test_the_population_of_a_demo_has_a_number_for_every_tick(pipeline: Pipeline):
    pipeline.write(0)
    pipeline.index(0)
    ledger = pipeline.maker.lake.ledger(pipeline.maker.run_id, OrganismIndexer.table)
    ledger.commit([], {EMPTY: packed(np.array([10, 11]))})
    assert population_of(Catalog(pipeline.maker.lake_folder), pipeline.maker.run_id) == [1] * 10 + [0, 0]


def test_a_table_that_was_asked_for_and_is_not_there_lacks_everything(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.index(0)
    pipeline.end(9)
    result = ticklake("verify", *pipeline.places, "--table", "organism_data", "--table", "environment_data")
    assert result.exit_code == 1
    assert "environment_data: missing, has a file: 0–9" in result.stdout


def test_a_run_without_tables_is_not_complete(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0)
    pipeline.end(9)
    pipeline.maker.lake_folder.mkdir()
    assert ticklake("verify", *pipeline.places).exit_code == 1


def test_overlapping_files_and_files_that_do_not_fit_are_reported(
    pipeline: Pipeline, report: Callable[..., Any], ticklake: Command
):
    pipeline.write(0, 5, 30)
    pipeline.end(19)
    found = report("verify", *pipeline.places[:2], "--lake", pipeline.maker.storage.url)["storage"]
    assert found["overlapping"] == 1
    said = ticklake("verify", *pipeline.places[:2], "--lake", pipeline.maker.storage.url).stdout
    assert "1 files overlap others; each of their ticks is indexed once\n" in said
    assert [key.rpartition("/")[2] for key in found["misfits"]] == ["batch_0000000030_0000000039.pb.zst"]
    assert found["lost"] == [[15, 19]]


def test_gaps_draws_what_is_there_waiting_and_missing(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10, 30)
    pipeline.index(0, 30)
    pipeline.end(39)
    lines = ticklake("gaps", *pipeline.places).stdout.splitlines()
    assert "organism_data: incomplete, 20 of 40 ticks in 0–39" in lines
    assert f"  {'█' * 10}{'▒' * 10}{'?' * 10}{'█' * 10}" in lines
    assert "  waiting: 10–19" in lines
    assert "  missing: 20–29" in lines


@pytest.mark.warns("Permanent gap")
def test_gaps_tells_what_is_given_up_and_how_far_files_reach(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 20)
    pipeline.index(0, 20)
    pipeline.end(39)
    with Database(pipeline.maker.database_url) as database:
        coordinator = Coordinator(database.run(pipeline.maker.run_id), "OrganismIndexer", step=1)
        coordinator.claim([found(0), found(20)], 9)
        coordinator.make_permanent(0)
    lines = ticklake("gaps", *pipeline.places, *pipeline.database).stdout.splitlines()
    assert f"  {'█' * 10}{'x' * 10}{'█' * 10}┃{'?' * 10}" in lines
    assert "  missing permanently: 10–19" in lines


@pytest.mark.warns("Permanent gap")
def test_gaps_draws_only_what_is_still_missing_of_a_gap_that_was_given_up(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 30)
    pipeline.index(0, 30)
    with Database(pipeline.maker.database_url) as database:
        coordinator = Coordinator(database.run(pipeline.maker.run_id), "OrganismIndexer", step=1)
        coordinator.claim([found(0), found(30)], 9)
        coordinator.make_permanent(0)
    pipeline.write(10)
    pipeline.index(10)
    pipeline.end(39)
    lines = ticklake("gaps", *pipeline.places, *pipeline.database).stdout.splitlines()
    assert f"  {'█' * 20}{'x' * 10}{'█' * 10}" in lines
    assert "  missing permanently: 20–29" in lines


@pytest.mark.warns("Permanent gap")
def test_gaps_keeps_the_rest_of_a_range_that_was_given_up_in_part(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 20)
    pipeline.index(0, 20)
    with Database(pipeline.maker.database_url) as database:
        coordinator = Coordinator(database.run(pipeline.maker.run_id), "OrganismIndexer", step=1)
        coordinator.claim([found(0), found(20)], 9)
        coordinator.make_permanent(0)
    (Path(pipeline.maker.storage.url) / pipeline.maker.run_id / found(20).name).unlink()
    shutil.rmtree(pipeline.maker.folder("organism_data"))
    pipeline.index(0)
    pipeline.end(39)
    lines = ticklake("gaps", *pipeline.places, *pipeline.database).stdout.splitlines()
    assert "  missing: 20–39" in lines
    assert "  missing permanently: 10–19" in lines


def test_gaps_of_another_lake_and_gaps_that_were_filled_are_none(
    pipeline: Pipeline, ticklake: Command, report: Callable[..., Any]
):
    def counted() -> Any:
        return report("top", "--once", *pipeline.places, *pipeline.database)["gaps"]

    def coordinated(start: int) -> None:
        table = DeltaTable(pipeline.maker.folder("organism_data"))
        with Database(pipeline.maker.database_url) as database:
            target = Target(str(table.metadata().id))
            coordinator = Coordinator(database.run(pipeline.maker.run_id), "OrganismIndexer", step=1, table=target)
            coordinator.claim([found(0), found(start)], 9)

    maker = pipeline.maker
    write_metadata(maker.lake.location(maker.run_id, "metadata"), maker.storage.read_metadata(maker.run_id))
    pipeline.write(0, 10, 20)
    pipeline.index(0, 20)
    coordinated(20)
    assert [one["pending"] for one in counted()] == [1]
    pipeline.index(10)
    assert counted() == [], "it was filled without the database"
    shutil.rmtree(pipeline.maker.folder("organism_data"))
    pipeline.index(0)
    assert counted() == [], "it is one of another table"


def found(start: int) -> FoundFile:
    return FoundFile(f"batch_{start:010d}_{start + 9:010d}.pb.zst", TickRange(start, start + 9))


def published(pipeline: Pipeline) -> Sequence[str]:
    with Database(pipeline.maker.database_url) as database:
        return [key.rpartition("/")[2] for key in announced(database.run(pipeline.maker.run_id)).keys]


def test_reconcile_shows_and_then_publishes_what_no_message_tells_of(
    pipeline: Pipeline, ticklake: Command, report: Callable[..., Any]
):
    pipeline.maker.publish(pipeline.maker.batch(0, 9, cells=1))
    pipeline.write(10)
    shown = ticklake("reconcile", *pipeline.places[:2], *pipeline.database)
    assert "batch_0000000010_0000000019.pb.zst" in shown.stdout and "publish" in shown.stdout
    assert "Nothing was changed" in shown.stdout
    assert published(pipeline) == [found(0).name]
    ticklake("reconcile", *pipeline.places[:2], *pipeline.database, "--apply")
    assert published(pipeline) == [found(0).name, found(10).name]
    assert report("reconcile", *pipeline.places[:2], *pipeline.database)["repair"]["unannounced"] == []


def test_reconcile_publishes_a_run_that_the_database_never_heard_of_only_if_told_to(
    pipeline: Pipeline, ticklake: Command
):
    pipeline.write(0, 10)
    for options in ([], ["--apply"], ["--apply", "--topic", "batch-topic"]):
        with pytest.raises(RunNeverAnnounced, match="--create"):
            ticklake("reconcile", *pipeline.places[:2], *pipeline.database, *options)
    ticklake("reconcile", *pipeline.places[:2], *pipeline.database, "--apply", "--create")
    assert published(pipeline) == [found(0).name, found(10).name]


def test_reconcile_reports_what_was_announced_and_is_gone(pipeline: Pipeline, ticklake: Command):
    pipeline.maker.publish(pipeline.maker.batch(0, 9, cells=1))
    (Path(pipeline.maker.storage.url) / pipeline.maker.run_id / found(0).name).unlink()
    shown = ticklake("reconcile", *pipeline.places[:2], *pipeline.database)
    assert (shown.exit_code, "announced, but no file" in shown.stdout) == (0, True)
    applied = ticklake("reconcile", *pipeline.places[:2], *pipeline.database, "--apply")
    assert (applied.exit_code, "1 announced files do not exist" in applied.stderr) == (1, True)


def test_reconcile_has_the_coordinator_index_again_what_a_table_lacks(pipeline: Pipeline, ticklake: Command):
    pipeline.write(0, 10, 20)
    pipeline.index(0, 20)
    with Database(pipeline.maker.database_url) as database:
        coordinator = Coordinator(database.run(pipeline.maker.run_id), "OrganismIndexer", step=1)
        bad = coordinator.try_claim(found(20))
        coordinator.fail(bad, "rotten")
        coordinator.complete(coordinator.claim([found(0), found(10)], 9))
        shown = ticklake("reconcile", *pipeline.places, *pipeline.database)
        assert "search and index again" in shown.stdout
        assert coordinator.status().expired == 0
        ticklake("reconcile", *pipeline.places, *pipeline.database, "--apply", "--retry-failed")
        assert [claim.name for claim in coordinator.take_over(9)] == [found(10).name, found(20).name]


def test_agreement_is_said(pipeline: Pipeline, ticklake: Command):
    pipeline.maker.publish(pipeline.maker.batch(0, 9, cells=1))
    assert "agree" in ticklake("reconcile", *pipeline.places[:2], *pipeline.database).stdout


# Topics with names of the user's own

OWN_NAMES = """
resources {{
  db {{ class = Database, url = "sqlite:///database" }}
  tick-batches {{ class = Topic, database = db }}
  metadata-topic {{ class = Topic, database = db }}
  run-ends {{ class = Topic, database = db }}
  st {{ class = Storage, path = storage }}
  q {{ class = Queue }}
}}
services {{
  simulation {{ options {{ max_ticks = 100 }} }}
  metadata-persistence-service {{ resources {{ o = "topic-write:metadata-topic" }} }}
  persistence-service {{ resources {{ o = "topic-write:{batches}" }} }}
  completion-service {{ resources {{ o = "topic-write:run-ends" }} }}
}}
"""


def messages_on(pipeline: Pipeline) -> dict[str, int]:
    with Database(pipeline.maker.database_url) as database:
        return {one.topic: one.messages for one in database.run(pipeline.maker.run_id).topics()}


def publish_to(pipeline: Pipeline, topic: str, *messages: Any) -> None:
    with (
        Database(pipeline.maker.database_url) as database,
        database.run(pipeline.maker.run_id).writer(topic) as writer,
    ):
        writer.send_many(messages)


def configured(pipeline: Pipeline, batches: str = "tick-batches") -> list[str]:
    file = Path(pipeline.maker.storage.url).parent / "node.conf"
    file.write_text(OWN_NAMES.format(batches=batches))
    return ["--config", str(file)]


@pytest.mark.parametrize("by_config", [True, False])
def test_reconcile_publishes_to_the_batch_topic_whatever_its_name(
    pipeline: Pipeline, ticklake: Command, by_config: bool
):
    publish_to(pipeline, "metadata-topic", pipeline.maker.metadata())
    publish_to(pipeline, "tick-batches", pipeline.maker.batch(0, 9, cells=1))
    pipeline.write(10)
    places = configured(pipeline) if by_config else [*pipeline.places[:2], *pipeline.database]
    shown = ticklake("reconcile", *places)
    assert (found(10).name in shown.stdout, found(0).name in shown.stdout) == (True, False)
    assert ticklake("reconcile", *places, "--apply").exit_code == 0
    assert messages_on(pipeline) == {"metadata-topic": 1, "tick-batches": 2}
    assert "agree" in ticklake("reconcile", *places).stdout


def test_reconcile_publishes_to_the_configured_topic_before_anything_was_announced(
    pipeline: Pipeline, ticklake: Command
):
    publish_to(pipeline, "metadata-topic", pipeline.maker.metadata())
    pipeline.write(0)
    ticklake("reconcile", *configured(pipeline), "--apply")
    assert messages_on(pipeline) == {"metadata-topic": 1, "tick-batches": 1}


@pytest.mark.parametrize(
    ("topics", "options", "error"),
    [
        (["alerts"], [], TopicUnknown),
        (["tick-batches"], ["--topic", "tick-batch"], TopicUnknown),
        (["batch-topic", "tick-batches"], [], TopicAmbiguous),
    ],
)
def test_reconcile_publishes_nothing_if_the_topic_is_unclear(
    pipeline: Pipeline, ticklake: Command, topics: list[str], options: list[str], error: type[Exception]
):
    info = pipeline.maker.batch(0, 9, cells=1)
    for topic in topics:
        publish_to(pipeline, topic, pipeline.maker.metadata() if topic == "alerts" else info)
    pipeline.write(10)
    with pytest.raises(error, match="--topic"):
        ticklake("reconcile", *pipeline.places[:2], *pipeline.database, "--apply", *options)
    assert messages_on(pipeline) == dict.fromkeys(topics, 1)
    assert ticklake("reconcile", *pipeline.places[:2], *pipeline.database, "--topic", topics[0]).exit_code == 0


@pytest.mark.parametrize("command", ["verify", "gaps", "reconcile"])
def test_what_was_announced_on_another_topic_than_the_configured_one_was_announced_to_nobody(
    pipeline: Pipeline, report: Callable[..., Any], command: str
):
    info = pipeline.maker.batch(0, 9, cells=1)
    pipeline.index(0)
    publish_to(pipeline, "batch-topic", info)
    publish_to(pipeline, "tick-batches", pipeline.maker.batch(10, 19, cells=1))
    for options in (configured(pipeline), [*pipeline.places[:2], *pipeline.database, "--topic", "tick-batches"]):
        found = report(command, *options, "--lake", pipeline.maker.lake_folder)
        told = found["repair"] if command == "reconcile" else found["messages"]
        assert told["unannounced"] == [info.storage_key]


def test_verify_counts_what_was_announced_on_a_topic_of_any_name(pipeline: Pipeline, report: Callable[..., Any]):
    publish_to(pipeline, "tick-batches", pipeline.maker.batch(0, 9, cells=1))
    pipeline.index(0)
    told = report("verify", *pipeline.places, *pipeline.database)["messages"]
    assert (told["messages"], told["unannounced"]) == (1, [])


@pytest.mark.parametrize("command", ["verify", "gaps", "reconcile"])
def test_a_run_that_is_not_there_and_a_missing_place_are_clear_errors(
    command: str, pipeline: Pipeline, ticklake: Command
):
    pipeline.maker.lake_folder.mkdir()
    Path(pipeline.database[1].removeprefix("sqlite:///")).mkdir()
    with pytest.raises(RunNotFound, match="20200101-000000-nothere"):
        ticklake(command, "20200101-000000-nothere", *pipeline.places, *pipeline.database)
    assert ticklake(command).exit_code == 2


def test_a_sampling_interval_of_0_is_a_clear_error(maker: Any, ticklake: Command):
    maker.metadata(step=0)
    maker.batch(0, 9)
    maker.lake_folder.mkdir()
    with pytest.raises(BadMetadata, match="sampling_interval is 0"):
        ticklake("verify", "--storage", maker.storage.url, "--lake", maker.lake_folder)


def test_a_bar_shows_the_worst_of_each_stretch():
    layers = [("█", [TickRange(0, 999_999)]), ("x", [TickRange(500_000, 500_000)])]
    drawn = bar(TickRange(0, 999_999), layers, None, 10)
    assert drawn == "█████x████"
    assert bar(TickRange(0, -1), layers, None, 10) == ""


def test_a_bar_of_sampled_ticks_has_no_blanks():
    layers = [("█", [TickRange(0, 0), TickRange(200, 400)]), ("?", [TickRange(100, 100)])]
    assert bar(TickRange(0, 400), layers, None, 72, 100) == "█?███"
    assert bar(TickRange(0, 400), layers, 200, 72, 100) == "█?█┃██"
    many = [("█", [TickRange(0, 100_000)])]
    assert bar(TickRange(0, 100_000), many, None, 72, 100) == "█" * 72
