"""`ticklake runs` and `ticklake status`."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.crash.original import RUN, Organism, Tick, file_of, metadata

from ticklake import Database
from ticklake.errors import DatabaseNotFound, LakeNotFound, RunNotFound
from ticklake.storage import CellColumns, OrganismColumns, TickColumns, encode_ticks, zstd

OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"


def test_runs_of_a_lake_with_their_tables(report, ticklake, lake):
    first, second = report("runs", "--lake", lake)
    assert (first["run_id"], second["run_id"]) == (OLD, NEW)
    assert first["started_at"] == "2025-10-14T14:30:25.000Z"
    assert [table["name"] for table in first["tables"]] == ["metadata", "organism_data"]
    assert first["storage"] is None
    shown = ticklake("runs", "--lake", lake).stdout
    assert OLD in shown
    assert "metadata, organism_data" in shown


def test_tables_with_rows_files_and_ticks_from_the_log_alone(report, lake):
    for parquet in lake.rglob("*.parquet"):
        parquet.unlink()
    metadata, organisms = report("status", OLD, "--lake", lake)["tables"]
    assert (organisms["rows"], organisms["files"], organisms["ticks"]) == (20, 2, [0, 19])
    assert (metadata["rows"], metadata["ticks"], metadata["lag"]) == (1, None, None)


def test_storage_and_lake_together_tell_the_lag(report, ticklake, maker):
    maker.metadata()
    maker.batches(3)
    (run,) = report("runs", "--storage", maker.storage.url)
    assert (run["storage"]["files"], run["storage"]["ticks"], run["storage"]["completed"]) == (3, [0, 299], False)
    lake = maker.lake_folder
    from .conftest import add_ticks

    add_ticks(lake / maker.run_id / "organism_data", range(250))
    (table,) = report("status", "--storage", maker.storage.url, "--lake", lake)["tables"]
    assert table["lag"] == 50
    shown = ticklake("status", "--storage", maker.storage.url, "--lake", lake).stdout
    assert "3 batch files" in shown
    assert "ticks 0–299, running" in shown


@pytest.mark.parametrize("era", "ABCDEFG")
def test_the_format_of_a_run_is_stated(report, ticklake, tmp_path, era):
    raw = tmp_path / RUN / "raw"
    raw.mkdir(parents=True)
    (raw / "metadata.pb").write_bytes(metadata(era))
    ticks = [Tick(number, {number: (3 << 20 | 5, 1)}, [Organism(1)]) for number in range(10)]
    (raw / "batch_0_9.pb.zst").write_bytes(zstd.compress(file_of(era, ticks)))
    (run,) = report("runs", "--storage", tmp_path)
    assert (run["storage"]["format"], run["storage"]["error"]) == (era, None)
    assert report("status", "--storage", tmp_path)["storage"]["format"] == era
    assert f"1 batch files of format {era}," in ticklake("status", "--storage", tmp_path).stdout
    assert era in ticklake("runs", "--storage", tmp_path).stdout.split()


def large_tick(number: int) -> TickColumns:
    cells = np.arange(200_000, dtype=np.int32)
    return TickColumns(number, 1, CellColumns(cells, cells * 0 + (1 << 16), cells % 100, cells), OrganismColumns())


def test_only_the_beginning_of_the_first_file_is_read_for_its_format(report, maker):
    """A tick of TickLake says at its end that TickLake wrote it. This one is longer than what is read of it."""
    maker.metadata()
    maker.storage.write_batch(maker.run_id, encode_ticks(maker.run_id, [large_tick(0)]))
    (run,) = report("runs", "--storage", maker.storage.url)
    assert run["storage"]["format"] == "TickLake"


def test_the_beginning_of_a_large_chunk_leaves_several_formats(report, tmp_path):
    draw = random.Random(1)
    cells = {flat: (1 << 20 | draw.getrandbits(18), draw.getrandbits(30)) for flat in range(200_000)}
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "batch_0_1.pb").write_bytes(file_of("G", [Tick(0, cells), Tick(1, cells)]))
    (run,) = report("runs", "--storage", tmp_path)
    assert run["storage"]["format"] == "D, E, F or G"


@pytest.mark.parametrize("content", [b"\x09\x22\x01", b"", b"x" * 20], ids=["cut off", "empty", "other bytes"])
def test_a_run_of_an_unknown_format_hides_no_other(report, ticklake, maker, content):
    maker.metadata()
    maker.batches(1, ticks=2)
    bad = Path(maker.storage.url) / "aaa"
    bad.mkdir()
    (bad / "batch_0_1.pb").write_bytes(content)
    done = ticklake("runs", "--storage", maker.storage.url)
    second, first = report("runs", "--storage", maker.storage.url)
    assert (first["run_id"], first["storage"]["format"], second["storage"]["format"]) == ("aaa", "unknown", "TickLake")
    assert done.exit_code == 1 and maker.run_id in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "aaa/batch_0_1.pb" in done.stderr


def test_status_is_of_the_newest_run_unless_one_is_named(report, lake):
    assert report("status", "--lake", lake)["run_id"] == NEW
    assert report("status", OLD, "--lake", lake)["run_id"] == OLD


def test_a_run_that_is_not_there_names_the_newest(ticklake, lake):
    with pytest.raises(RunNotFound, match=f"No run 'x' in {lake}; the newest runs are: {OLD}, {NEW}"):
        ticklake("status", "x", "--lake", lake)


def test_an_unreadable_table_does_not_hide_the_others(report, ticklake, lake):
    (lake / OLD / "broken" / "_delta_log").mkdir(parents=True)
    (lake / OLD / "broken" / "_delta_log" / "00000000000000000000.json").write_text("{not json")
    broken, _, organisms = report("status", OLD, "--lake", lake)["tables"]
    assert broken["name"] == "broken"
    assert "cannot be read" in broken["error"]
    assert organisms["rows"] == 20
    assert "cannot be read" in ticklake("status", OLD, "--lake", lake).stderr


def test_an_empty_place_has_no_runs(report, ticklake, tmp_path):
    (tmp_path / "empty").mkdir()
    assert report("runs", "--lake", tmp_path / "empty") == []
    assert ticklake("runs", "--lake", tmp_path / "empty").stdout == "No runs yet.\n"
    with pytest.raises(RunNotFound):
        ticklake("status", "--lake", tmp_path / "empty")
    with pytest.raises(LakeNotFound):
        ticklake("runs", "--lake", tmp_path / "none")


def test_groups_and_their_lag_come_from_the_database(report, ticklake, maker):
    maker.publish(*(maker.batch(start, start + 9) for start in (0, 10, 20)))
    with (
        Database(maker.database_url) as database,
        database.run(maker.run_id).reader("batch-topic", group="environment-indexer") as reader,
    ):
        reader.ack(reader.receive())
        reader.receive()
        (group,) = report("status", "--database", maker.database_url)["groups"]
    assert (group["topic"], group["group"], group["lag"], group["claimed"]) == (
        "batch-topic",
        "environment-indexer",
        2,
        1,
    )
    assert group["oldest_seconds"] >= 0
    assert [run["run_id"] for run in report("runs", "--database", maker.database_url)] == [maker.run_id]
    assert "environment-indexer" in ticklake("status", "--database", maker.database_url).stdout


def test_a_run_that_the_database_does_not_know_has_no_groups(report, lake, tmp_path):
    (tmp_path / "database").mkdir()
    url = f"sqlite:///{tmp_path}/database"
    assert report("status", OLD, "--lake", lake, "--database", url)["groups"] == []
    assert not any((tmp_path / "database").iterdir()), "looking must not make anything"


@pytest.mark.parametrize(
    "command",
    ["status", "runs", "verify", "gaps", "topics", "groups", "claims", "dead-letters list", "doctor", "db status"],
)
def test_a_mistyped_database_is_an_error_and_not_made(command, ticklake, tmp_path):
    with pytest.raises(DatabaseNotFound, match="typo: the directory does not exist"):
        ticklake(*command.split(), "--database", f"sqlite:///{tmp_path}/typo")
    assert not (tmp_path / "typo").exists()


def test_a_database_that_a_configuration_names_may_come_later(ticklake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ticklake("init", ".").exit_code == 0
    result = ticklake("topics", "--config", "ticklake.conf")
    assert (result.exit_code, result.stdout) == (0, "No topics yet.\n")
