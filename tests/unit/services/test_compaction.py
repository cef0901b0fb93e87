"""Compaction as a service: tables stay small in files while they grow in rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ticklake.lake.delta.log import CommitConflict
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.services.compaction import CompactionService
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"
SCHEMA = pa.schema([("tick_number", pa.int64()), ("id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "id"))


def add(ledger: Ledger, tick: int) -> None:
    writer = ParquetFileWriter(ledger.location, f"{tick}.parquet", TABLE)
    writer.append(pa.RecordBatch.from_arrays([[tick], [0]], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    while True:
        ledger.refresh()
        try:
            return ledger.commit([file], {})
        except CommitConflict:
            continue


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Lake(tmp_path).ledger(RUN, TABLE)


def test_eight_small_files_become_one(ledger: Ledger, tmp_path: Path) -> None:
    duty = CompactionService(tmp_path)
    for tick in range(7):
        add(ledger, tick)
    duty.compact_all()
    assert len(DeltaTable(str(ledger.location)).file_uris()) == 7
    add(ledger, 7)
    duty.compact_all()
    assert len(DeltaTable(str(ledger.location)).file_uris()) == 1
    assert duty.monitor.snapshot()["files_merged"] == 8
    ledger.refresh()
    assert ledger.present([TickRange(0, 99)]).tolist() == list(range(8))


def test_it_works_beside_an_indexer_and_stops_when_asked(
    ledger: Ledger, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with CompactionService(tmp_path, interval=0.01) as duty:
        for tick in range(30):
            add(ledger, tick)
        eventually(lambda: len(DeltaTable(str(ledger.location)).file_uris()) < 16)
    assert not duty.error
    rows = DeltaTable(str(ledger.location)).to_pyarrow_table()
    assert sorted(rows.column("tick_number").to_pylist()) == list(range(30))


def test_what_is_not_there_yet_and_tables_of_others_are_no_trouble(tmp_path: Path) -> None:
    duty = CompactionService(tmp_path / "lake")
    duty.compact_all()
    (tmp_path / "lake" / RUN / "others" / "_delta_log").mkdir(parents=True)
    duty.compact_all()
    for _ in range(9):
        write_deltalake(tmp_path / "lake" / RUN / "others", pa.table({"a": [1]}), mode="append")
    duty.compact_all()
    assert len(DeltaTable(tmp_path / "lake" / RUN / "others").file_uris()) == 9


@pytest.mark.warns("Could not compact")
def test_a_broken_table_does_not_keep_it_from_the_others(ledger: Ledger, tmp_path: Path) -> None:
    broken = tmp_path / RUN / "a_broken_one" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020d}.json").write_text("{not json")
    for tick in range(8):
        add(ledger, tick)
    duty = CompactionService(tmp_path)
    duty.compact_all()
    assert len(DeltaTable(str(ledger.location)).file_uris()) == 1
    assert duty.monitor.errors.recorded.value == 1


@pytest.mark.warns("Could not compact the tables of run")
def test_a_run_that_cannot_be_listed_does_not_keep_it_from_the_others(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "20200101-000000-aaaaaaaa").symlink_to("nothing")
    for tick in range(8):
        add(ledger, tick)
    duty = CompactionService(tmp_path)
    duty.compact_all()
    assert len(DeltaTable(str(ledger.location)).file_uris()) == 1
    assert duty.monitor.errors.recorded.value == 1


def test_a_table_made_anew_in_the_same_place_is_compacted_too(ledger: Ledger, tmp_path: Path) -> None:
    duty = CompactionService(tmp_path)
    for tick in range(8):
        add(ledger, tick)
    duty.compact_all()
    shutil.rmtree(Path(str(ledger.location)))
    again = Lake(tmp_path).ledger(RUN, TABLE)
    for tick in range(8):
        add(again, tick)
    duty.compact_all()
    assert len(DeltaTable(str(ledger.location)).file_uris()) == 1
