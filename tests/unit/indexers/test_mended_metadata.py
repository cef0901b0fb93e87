"""Metadata that an operator mends in storage, or that is damaged in the lake: the next start makes it good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.crash.in_process import InProcess

from ticklake.completeness import Completeness, Verdict
from ticklake.contracts import MetadataInfo, RunCompleted
from ticklake.doctor import Subject
from ticklake.doctor.tables import tables
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun, Progress
from ticklake.insights import Places
from ticklake.lake.metadata import read_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.presence import Presence
from ticklake.topics import Database


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as opened:
        yield opened


def resources(maker: Any, database: Database | None = None) -> IndexerResources:
    spark: Any = InProcess()
    return IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)


def index(maker: Any, database: Database | None = None) -> Progress:
    work = FinishedRun(resources(maker, database), maker.run_id, [EnvironmentIndexer]).prepare()
    work.start()
    while not work.wait(1.0):
        pass
    (progress,) = work.progress()
    return progress


def mend(maker: Any, step: int) -> None:
    for file in (Path(maker.storage.url) / maker.run_id).glob("metadata*"):
        file.unlink()
    maker.metadata(step=step)


def verdict(maker: Any) -> Any:
    return Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder)).verify()


def end(maker: Any, last: int) -> None:
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=last))


def step_in_lake(maker: Any) -> int:
    found = read_metadata(maker.lake.location(maker.run_id, "metadata"), maker.run_id)
    assert found is not None
    return int(found.sampling_interval)


@pytest.mark.warns("METADATA_CHANGED", "failed")
def test_a_run_is_indexed_once_its_sampling_interval_is_mended(maker: Any) -> None:
    maker.metadata(step=10)
    maker.batch(0, 45, step=5)
    end(maker, 45)
    assert "samples every 10 ticks" in str(index(maker).failed)
    mend(maker, 5)
    assert index(maker).failed == {}
    assert step_in_lake(maker) == 5
    assert verdict(maker).verdict is Verdict.COMPLETE


@pytest.mark.warns("METADATA_CHANGED")
def test_verify_and_status_go_by_the_same_step(maker: Any) -> None:
    maker.metadata(step=1)
    maker.batch(0, 40, step=10)
    end(maker, 40)
    index(maker)
    mend(maker, 10)
    told = verdict(maker)
    assert told.verdict is Verdict.INCOMPLETE
    assert "samplingInterval is 1 instead of 10" in told.metadata
    index(maker)
    assert verdict(maker).verdict is Verdict.COMPLETE
    (table,) = [
        one
        for one in Places(catalog=Catalog(maker.lake_folder), presence=Presence()).report(maker.run_id).tables
        if one.name == "environment_data"
    ]
    assert table.missing == 0


@pytest.mark.warns("METADATA_(CHANGED|REPAIRED)")
@pytest.mark.parametrize("damaged", [False, True])
def test_the_metadata_indexer_of_a_node_makes_it_good_when_it_starts(
    maker: Any, database: Database, damaged: bool
) -> None:
    maker.metadata(step=1)
    with database.run(maker.run_id).writer("metadata-topic") as writer:
        writer.send(MetadataInfo(simulation_run_id=maker.run_id, storage_key=f"{maker.run_id}/metadata.pb.zst"))
    options = IndexerOptions(maker.run_id, topic_poll_timeout_ms=2000)
    MetadataIndexer("metadata", resources(maker, database), options).run()
    if damaged:
        for file in maker.folder("metadata").glob("*.parquet"):
            file.unlink()
    else:
        mend(maker, 10)
    again = MetadataIndexer("metadata", resources(maker, database), options)
    again.run()
    assert step_in_lake(maker) == (1 if damaged else 10)
    assert [one.code for one in again.monitor.errors] == ["METADATA_REPAIRED" if damaged else "METADATA_CHANGED"]


@pytest.mark.warns("METADATA_REPAIRED")
def test_index_writes_lost_metadata_again_and_verify_tells_of_it_before(maker: Any) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    end(maker, 19)
    index(maker)
    assert verdict(maker).verdict is Verdict.COMPLETE
    for file in maker.folder("metadata").glob("*.parquet"):
        file.unlink()
    told = verdict(maker)
    assert told.verdict is Verdict.INCOMPLETE and "is gone" in told.metadata
    assert index(maker).present == 20
    assert verdict(maker).verdict is Verdict.COMPLETE


def delete_rows(table: Path) -> None:
    DeltaTable(table).delete()


def empty_log(table: Path) -> None:
    for file in (table / "_delta_log").iterdir():
        file.unlink()


def damage_commit(table: Path) -> None:
    file = table / "_delta_log" / f"{1:020d}.json"
    file.write_bytes(file.read_bytes().replace(b'"timestamp":1', b'"timestamp":2', 1))
    os.utime(file, (0, 0))


def lose_first_commit(table: Path) -> None:
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    os.utime(table / "_delta_log" / f"{1:020d}.json", (0, 0))


def move_away(table: Path) -> None:
    table.rename(table.with_name("metadata.old"))


@pytest.mark.warns("METADATA_REPAIRED", "Set .* aside")
@pytest.mark.parametrize("damage", [delete_rows, empty_log, damage_commit, lose_first_commit, move_away])
def test_the_advice_of_verify_and_doctor_repairs_the_table(maker: Any, damage: Callable[[Path], None]) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    end(maker, 19)
    index(maker)
    damage(maker.folder("metadata"))
    told = verdict(maker)
    assert told.verdict is Verdict.INCOMPLETE and f"`ticklake index {maker.run_id}` writes it again" in told.metadata
    (warned,) = [one for one in tables(subject(maker)) if one.level != "ok"]
    assert told.metadata in warned.message and warned.remedy.startswith(f"ticklake index {maker.run_id}")
    assert ".." not in warned.message
    assert index(maker).present == 20
    assert verdict(maker).verdict is Verdict.COMPLETE
    assert [one.level for one in tables(subject(maker))] == ["ok"]


@pytest.mark.warns("METADATA_REPAIRED")
def test_status_tells_why_missing_ticks_are_unknown(maker: Any) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    index(maker)
    places = Places(catalog=Catalog(maker.lake_folder), presence=Presence())
    delete_rows(maker.folder("metadata"))
    for found in (places.report(maker.run_id).tables, places.glance(maker.run_id).tables):
        errors = {one.name: one.error for one in found}
        assert "it has no rows" in str(errors["metadata"]) and errors["environment_data"] is None
    index(maker)
    assert [one.error for one in places.report(maker.run_id).tables] == [None, None]


def subject(maker: Any) -> Subject:
    return Subject((Path(maker.storage.url),), (maker.lake_folder,))


def test_a_table_metadata_that_was_never_created_is_not_missing(maker: Any) -> None:
    """Other engines, and the indexer of events, do not wait for it."""
    maker.metadata()
    rows = pa.table({"tick_number": pa.array(range(10), pa.int64())})
    write_deltalake(maker.lake_folder / maker.run_id / "of_others", rows)
    assert verdict(maker).metadata is None
    assert [one.level for one in tables(subject(maker))] == ["ok"]


def test_verify_names_a_table_metadata_that_was_moved_away_only_if_it_is_asked_for(maker: Any) -> None:
    maker.metadata()
    maker.batches(1, ticks=10)
    end(maker, 9)
    index(maker)
    move_away(maker.folder("metadata"))
    looked = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder))
    assert "metadata is gone" in str(looked.verify(["metadata"]).metadata)
    assert looked.verify(["metadata"]).verdict is Verdict.INCOMPLETE
    assert looked.verify(["environment_data"]).verdict is Verdict.COMPLETE


def test_verify_of_the_table_metadata_alone(maker: Any) -> None:
    maker.metadata()
    maker.batches(1, ticks=10)
    end(maker, 9)
    index(maker)
    looked = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder))
    assert looked.verify(["metadata"]).verdict is Verdict.COMPLETE
    assert looked.verify(["environment_data"]).metadata is None
