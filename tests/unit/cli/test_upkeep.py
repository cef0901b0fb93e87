"""`ticklake optimize` and `ticklake vacuum`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import DeltaTable

from ticklake.errors import RetentionTooShort, RunNotInLake, TableNotInLake
from ticklake.lake.delta import Location
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table

OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"
SCHEMA = pa.schema([("tick_number", pa.int64()), ("id", pa.int32())])


@pytest.fixture
def indexed(lake: Path) -> Path:
    """Besides the tables of others: two of ours in one run, one in the other, of four files each."""
    for run, name in ((OLD, "cells"), (OLD, "beings"), (NEW, "cells")):
        directory = lake / run / name
        directory.mkdir()
        ledger = Ledger(Location.of(directory), Table(name, SCHEMA, ("tick_number", "id")))
        for tick in range(4):
            writer = ParquetFileWriter(Location.of(directory), f"{tick}.parquet", ledger.table)
            writer.append(pa.RecordBatch.from_arrays([[tick, tick], [0, 1]], schema=SCHEMA))
            file = writer.close()
            assert file is not None
            ledger.commit([file], {})
    return lake


def age(lake: Path, days: int) -> None:
    for path in lake.rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - days * 86_400))


def files(lake: Path, run: str, table: str) -> int:
    return len(list((lake / run / table).glob("*.parquet")))


def test_all_tables_of_all_runs_are_optimized(report, indexed: Path) -> None:
    done = report("optimize", "--lake", indexed)
    assert [(one["run_id"], one["table"]) for one in done] == [(OLD, "beings"), (OLD, "cells"), (NEW, "cells")]
    assert {(one["files"], one["files_removed"], one["files_added"]) for one in done} == {(1, 4, 1)}
    delta = DeltaTable(indexed / OLD / "cells")
    assert delta.to_pyarrow_table().num_rows == 8
    assert (indexed / OLD / "cells" / "_delta_log" / f"{delta.version():020d}.checkpoint.parquet").exists()


def test_a_second_time_there_is_nothing_to_merge(report, indexed: Path) -> None:
    report("optimize", "--lake", indexed)
    assert {one["files_removed"] for one in report("optimize", "--lake", indexed)} == {0}


def test_one_run_and_one_table_can_be_named(report, indexed: Path) -> None:
    (one,) = report("optimize", OLD, "--table", "cells", "--lake", indexed)
    assert (one["run_id"], one["table"]) == (OLD, "cells")
    assert len(DeltaTable(indexed / OLD / "beings").file_uris()) == 4


def test_people_get_a_table_and_a_word_on_progress(ticklake, indexed: Path) -> None:
    done: Result = ticklake("optimize", "--lake", indexed)
    assert f"{OLD}/cells: 4 of 4" in done.stderr
    assert "beings" in done.stdout and "merged" in done.stdout


def test_vacuum_removes_what_was_replaced_a_week_ago(report, indexed: Path) -> None:
    report("optimize", "--lake", indexed)
    assert {one["files"] for one in report("vacuum", "--lake", indexed)["tables"]} == {0}
    age(indexed, 8)
    shown = report("vacuum", "--dry-run", "--lake", indexed)
    assert shown["dry_run"]
    assert sum(one["files"] for one in shown["tables"]) == 12
    assert files(indexed, OLD, "cells") == 5
    assert report("vacuum", OLD, "--table", "cells", "--lake", indexed)["tables"][0]["files"] == 4
    assert (files(indexed, OLD, "cells"), files(indexed, OLD, "beings")) == (1, 5)
    report("vacuum", "--older-than", "36h", "--lake", indexed)
    assert (files(indexed, OLD, "beings"), files(indexed, NEW, "cells")) == (1, 1)
    assert DeltaTable(indexed / NEW / "cells").to_pyarrow_table().num_rows == 8


def test_vacuum_tells_people_what_it_did(ticklake, indexed: Path) -> None:
    ticklake("optimize", "--lake", indexed)
    age(indexed, 8)
    assert "Nothing was removed" in ticklake("vacuum", "--dry-run", "--lake", indexed).stdout
    assert "Done." in ticklake("vacuum", "--lake", indexed).stdout


def spoil_log(table: Path) -> None:
    (table / "_delta_log" / f"{2:020d}.json").write_text("{")


def spoil_file(table: Path) -> None:
    for path in table.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-50] + bytes(50))


def lose_log(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def lose_folder(table: Path) -> None:
    shutil.rmtree(table)
    table.symlink_to(table.parent / "not mounted")


BAD = [spoil_log, lose_log, lose_folder]


@pytest.mark.parametrize("spoil", [*BAD, spoil_file])
def test_optimize_names_every_table_that_fails_and_merges_the_others(
    ticklake, indexed: Path, spoil: Callable[[Path], None]
) -> None:
    for bad in ("beings", "cells"):
        spoil(indexed / OLD / bad)
    done: Result = ticklake("optimize", "--lake", indexed, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [(one["run_id"], one["table"], one["files_removed"]) for one in found["tables"]] == [(NEW, "cells", 4)]
    assert [(one["run_id"], one["table"]) for one in found["failed"]] == [(OLD, "beings"), (OLD, "cells")]
    lines = [line for line in done.stderr.splitlines() if line.startswith(OLD)]
    assert [line.partition(": ")[0] for line in lines] == [f"{OLD}/beings", f"{OLD}/cells"]
    assert all("cannot be read" in line or "damaged" in line or "no _delta_log" in line for line in lines), lines


@pytest.mark.parametrize("spoil", BAD)
def test_vacuum_names_every_table_that_fails_and_works_on_the_others(
    ticklake, indexed: Path, spoil: Callable[[Path], None]
) -> None:
    ticklake("optimize", "--lake", indexed)
    age(indexed, 8)
    for bad in ("beings", "cells"):
        spoil(indexed / OLD / bad)
    done: Result = ticklake("vacuum", "--lake", indexed)
    assert done.exit_code == 1
    failed = [line.partition(": ")[0] for line in done.stderr.splitlines() if line.startswith(OLD)]
    assert failed == [f"{OLD}/beings", f"{OLD}/cells"]
    assert files(indexed, NEW, "cells") == 1
    assert "Done." not in done.stdout


@pytest.mark.parametrize("command", ["optimize", "vacuum"])
def test_a_run_whose_folder_cannot_be_read_stops_nothing(ticklake, indexed: Path, command: str) -> None:
    """It may have the wanted table."""
    shutil.rmtree(indexed / OLD)
    (indexed / OLD).symlink_to("not mounted")
    for table in ("cells", "beings"):
        done: Result = ticklake(command, "--lake", indexed, "--table", table)
        assert done.exit_code == 1
        assert f"{OLD} of the lake cannot be read" in done.stderr and (NEW in done.stdout) == (table == "cells")


def test_mistakes_are_one_line(ticklake, process, indexed: Path) -> None:
    with pytest.raises(RetentionTooShort):
        ticklake("vacuum", "--older-than", "1h", "--lake", indexed)
    with pytest.raises(RunNotInLake):
        ticklake("optimize", "20250101-000000-00000000", "--lake", indexed)
    with pytest.raises(TableNotInLake, match="beings, cells"):
        ticklake("optimize", "--table", "cell", "--lake", indexed)
    assert "--lake DIR" in ticklake("optimize").stderr
    assert "a number with a unit" in ticklake("vacuum", "--older-than", "soon", "--lake", indexed).stderr
    done = process("vacuum", "--older-than", "0d", "--lake", indexed)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Files that were in use 0 hours ago") and done.stderr.count("\n") == 1
