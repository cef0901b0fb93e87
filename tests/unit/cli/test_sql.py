"""`ticklake sql`: all runs or one, three formats, nothing but the tables."""

from __future__ import annotations

import csv
import json
import shutil

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticklake.doctor import Subject, examine
from ticklake.errors import BadQuery, QueryTooSlow, RunFolderUnreadable, RunNotInLake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.queries import Limits, limited_query, opened, query

from .conftest import add_ticks

OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"


def test_all_runs_are_told_apart_by_run_id(report, lake):
    rows = report(
        "sql",
        "SELECT run_id, count(*) n, max(tick_number) t FROM organism_data GROUP BY ALL ORDER BY 1",
        "--lake",
        lake,
    )
    assert rows == [{"run_id": OLD, "n": 20, "t": 19}, {"run_id": NEW, "n": 5, "t": 4}]


def test_one_run_alone(report, lake):
    query = "SELECT DISTINCT run_id FROM organism_data"
    assert report("sql", query, "--lake", lake, "--run", NEW) == [{"run_id": NEW}]


def test_csv_has_every_row(ticklake, lake):
    query = "SELECT tick_number, NULL AS nothing, 'a,b' AS text FROM organism_data ORDER BY ALL"
    rows = list(csv.reader(ticklake("sql", query, "--lake", lake, "--format", "csv").stdout.splitlines()))
    assert rows[0] == ["tick_number", "nothing", "text"]
    assert len(rows) == 26
    assert rows[1] == ["0", "", "a,b"]


def test_json_is_json_whatever_the_values(report, lake):
    query = "SELECT 'nan'::DOUBLE a, 'inf'::DOUBLE b, DATE '2020-02-29' c, 1.50::DECIMAL(5,2) d, [1, 2] e"
    (row,) = report("sql", query, "--lake", lake)
    assert (row["a"], row["b"], row["c"], row["d"], row["e"]) == (None, None, "2020-02-29", "1.50", [1, 2])


def test_columns_of_the_same_name_are_all_there(ticklake, report, lake):
    query = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a"
    assert report("sql", query, "--lake", lake) == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]
    shown = ticklake("sql", query, "--lake", lake, "--format", "csv").stdout.splitlines()
    assert shown == ["a,a_2,a_1,a_3", "1,2,3,4"]


def test_json_has_no_nan_inside_of_a_value_either(ticklake, lake):
    query = "SELECT ['nan'::DOUBLE, 1] AS a, {'x': 'inf'::DOUBLE} AS b, MAP {1: 2} AS c"
    shown = ticklake("sql", query, "--lake", lake, "--format", "json").stdout
    assert "NaN" not in shown and "Infinity" not in shown
    (row,) = json.loads(shown)
    assert (row["a"], row["b"]) == ([None, 1.0], {"x": None})


def test_json_of_no_rows_is_an_empty_list(report, lake):
    assert report("sql", "SELECT 1 WHERE false", "--lake", lake) == []


def test_a_table_stops_at_the_limit_and_says_so(ticklake, lake):
    shown = ticklake("sql", "SELECT tick_number FROM organism_data ORDER BY 1", "--lake", lake, "--limit", "3")
    assert shown.stdout.split() == ["tick_number", "─" * 11, "0", "0", "1"]
    assert "Only the first 3 rows. --limit 0 shows all" in shown.stderr
    everything = ticklake("sql", "SELECT tick_number FROM organism_data", "--lake", lake, "--limit", "0")
    assert len(everything.stdout.split()) == 27
    assert everything.stderr == ""


def test_values_cannot_play_tricks_on_the_terminal(ticklake, lake):
    shown = ticklake("sql", "SELECT chr(27) || '[2J' AS evil, '[bold]x[/bold]' AS markup", "--lake", lake)
    assert "\x1b" not in shown.stdout
    assert "\\x1b[2J" in shown.stdout
    assert "[bold]x[/bold]" in shown.stdout


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT nope FROM organism_data", '"nope" not found'),
        ("SELECT * FROM nope", "nope does not exist"),
        ("SELEC 1", "syntax error"),
        ("", "Give one statement, not 0"),
        ("SELECT 1; SELECT 2", "Give one statement, not 2"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM '/etc/passwd'", "does not exist"),
        ("SELECT * FROM glob('/*')", "disabled by configuration"),
        ("COPY organism_data TO 'out.csv'", "Only a SELECT"),
        ("EXPLAIN ANALYZE COPY organism_data TO 'out.csv'", "Only a SELECT"),
        ("ATTACH 'x.db'", "Only a SELECT"),
        ("INSTALL httpfs", "Only a SELECT"),
        ("SET enable_external_access = true", "Only a SELECT"),
        ("SELECT 'x'::INTEGER FROM organism_data", "Could not convert"),
    ],
)
def test_a_query_that_fails_or_reaches_out_is_one_line(ticklake, lake, query, expected):
    with pytest.raises(BadQuery) as caught:
        ticklake("sql", query, "--lake", lake)
    assert expected in str(caught.value)
    assert "LINE 1" not in str(caught.value)
    assert str(caught.value).endswith("(Tables here: metadata, organism_data.)")


def test_a_run_that_is_not_there_names_those_that_are(ticklake, lake):
    with pytest.raises(RunNotInLake, match=f"'x' has no table .* {OLD}, {NEW}"):
        ticklake("sql", "SELECT 1", "--lake", lake, "--run", "x")


@pytest.mark.parametrize("run", ["../lake", "..", "", "/etc"])
def test_a_run_cannot_lead_out_of_the_lake(ticklake, lake, run):
    with pytest.raises(RunNotInLake):
        ticklake("sql", "SELECT 1", "--lake", lake, "--run", run)


def test_what_else_lies_in_a_lake_is_ignored(report, lake):
    (lake / "lost+found").mkdir()
    (lake / ".hidden" / "t" / "_delta_log").mkdir(parents=True)
    (lake / "notes.txt").write_text("")
    assert report("sql", "SELECT count(*) n FROM organism_data", "--lake", lake) == [{"n": 25}]


def test_a_filter_on_ticks_reaches_the_files(lake):
    with opened(Catalog(lake), None) as (connection, _):
        plan = connection.execute("EXPLAIN SELECT energy FROM organism_data WHERE tick_number > 15").fetchall()
    text = json.dumps(plan).upper()
    assert "TICK_NUMBER" in text
    assert "PARQUET" in text
    assert "FILTER ─" not in text, "the filter stands above the scan instead of in it"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("COPY organism_data TO 'out.csv'", "disabled by configuration"),
        ("ATTACH 'x.db'", "disabled by configuration"),
        ("INSTALL httpfs", "disabled by configuration"),
        ("SET enable_external_access = true", "the configuration has been locked"),
        ("SET allowed_paths = ['/']", "the configuration has been locked"),
    ],
)
def test_whatever_got_past_the_check_would_not_get_out(lake, statement, expected):
    with opened(Catalog(lake), None) as (connection, _), pytest.raises(duckdb.Error, match=expected):
        connection.execute(statement)


def test_only_the_files_of_the_chosen_run_can_be_read(lake):
    other, own = Catalog(lake).files(OLD, "organism_data"), Catalog(lake).files(NEW, "organism_data")
    with query(Catalog(lake), f"SELECT count(*) FROM '{own[0]}'", NEW) as result:
        assert list(result.rows) == [(5,)]
    for path in (other[0], f"{own[0].location}/*.parquet"):
        with pytest.raises(BadQuery), query(Catalog(lake), f"SELECT count(*) FROM '{path}'", NEW) as result:
            list(result.rows)


def test_a_table_without_files_has_its_columns(lake):
    write_deltalake(lake / NEW / "empty", pa.table({"a": pa.array([], pa.int64())}))
    with query(Catalog(lake), "SELECT * FROM empty") as result:
        assert (result.columns, list(result.rows)) == (["run_id", "a"], [])


class TestLimits:
    def test_more_rows_than_allowed_are_cut_and_told(self, lake):
        found, more = limited_query(Catalog(lake), "SELECT tick_number FROM organism_data", NEW, Limits(rows=3))
        assert (found.num_rows, more) == (3, True)
        found, more = limited_query(Catalog(lake), "SELECT tick_number FROM organism_data", NEW, Limits(rows=5))
        assert (found.num_rows, more) == (5, False)

    def test_what_takes_too_long_is_ended(self, lake):
        endless = "SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000000) b"
        with pytest.raises(QueryTooSlow, match=r"longer than 0.2 seconds"):
            limited_query(Catalog(lake), endless, NEW, Limits(seconds=0.2))

    def test_what_takes_too_much_memory_is_ended_in_one_line(self, lake):
        large = "SELECT string_agg(repeat('x', 1000000), '') FROM range(1000)"
        with pytest.raises(BadQuery, match=r"^Out of Memory.*\.\)$"):
            limited_query(Catalog(lake), large, NEW, Limits(megabytes=64))


@pytest.mark.parametrize("runs", [[OLD], [OLD, NEW]])
@pytest.mark.parametrize("name", ["run_id", "Run_ID"])
def test_a_column_run_id_of_ones_own_is_there_beside_the_run(report, tmp_path, runs, name):
    for run in runs:
        rows = {"tick_number": pa.array([1], pa.int64()), name: ["mine"], "run_id_1": ["taken"]}
        write_deltalake(tmp_path / run / "own", pa.table(rows))
    found = report("sql", "SELECT * FROM own ORDER BY run_id", "--lake", tmp_path)
    assert [row["run_id"] for row in found] == runs
    assert {row["run_id_2"] for row in found} == {"mine"} and {row["run_id_1"] for row in found} == {"taken"}


@pytest.mark.warns("Skipped")
@pytest.mark.parametrize("table", ["organism_data", "Organism_Data", "main.organism_data"])
def test_a_query_over_a_run_that_is_refused_is_refused(ticklake, report, lake, table):
    (lake / NEW / "organism_data").rename(lake / NEW / "cells")
    shutil.copytree(lake / OLD / "organism_data", lake / NEW / "organism_data")
    for file in (lake / NEW / "organism_data").glob("*.parquet"):
        file.unlink()
    query = f"SELECT count(*) AS rows FROM {table}"
    for form in ([], ["--json"], ["--format", "csv"]):
        with pytest.raises(
            BadQuery, match=rf"Table \S*{NEW}/organism_data .*`--run RUN` queries another run alone"
        ) as raised:
            ticklake("sql", query, "--lake", lake, *form)
        assert "\n" not in str(raised.value)
    assert report("sql", query, "--lake", lake, "--run", OLD) == [{"rows": 20}]
    with pytest.raises(BadQuery, match="organism_data") as raised:
        ticklake("sql", query, "--lake", lake, "--run", NEW)
    assert "--run" not in str(raised.value)
    assert report("sql", "SELECT count(*) AS rows FROM cells", "--lake", lake) == [{"rows": 5}], (
        "others are not refused"
    )


@pytest.mark.parametrize("target", ["nothing", OLD])
def test_a_folder_of_a_run_that_cannot_be_listed_leaves_nothing_out(ticklake, report, lake, target):
    """It is a link to nothing, such as a disk that is not mounted, or to itself. No permission is the same."""
    shutil.rmtree(lake / OLD)
    (lake / OLD).symlink_to(target)
    query = "SELECT count(*) AS rows FROM organism_data"
    with pytest.raises(RunFolderUnreadable, match=OLD):
        ticklake("sql", query, "--lake", lake)
    assert report("sql", query, "--lake", lake, "--run", NEW) == [{"rows": 5}]
    done = ticklake("runs", "--lake", lake)
    assert done.exit_code == 1 and OLD in done.stdout and NEW in done.stdout and OLD in done.stderr
    assert ticklake("status", OLD, "--lake", lake).exit_code == 1
    assert ticklake("status", NEW, "--lake", lake).exit_code == 0
    with Subject((), (lake,)) as subject:
        found = [one.message for one in examine(subject) if one.level == "error"]
    assert found and all(OLD in message and "check itself" not in message for message in found)


@pytest.mark.warns("Skipped: Table")
@pytest.mark.parametrize("target", ["nothing", "organism_data"])
def test_a_folder_of_a_table_that_cannot_be_opened_leaves_nothing_out(ticklake, lake, target):
    shutil.rmtree(lake / OLD / "organism_data")
    (lake / OLD / "organism_data").symlink_to(target)
    with pytest.raises(BadQuery, match="organism_data"):
        ticklake("sql", "SELECT count(*) FROM organism_data", "--lake", lake)
    assert "organism_data" in ticklake("status", OLD, "--lake", lake).stderr


def test_status_ends_with_exit_code_1_if_a_table_is_refused(ticklake, lake):
    log = lake / NEW / "organism_data" / "_delta_log" / f"{0:020d}.json"
    log.write_text("{not json")
    done = ticklake("status", NEW, "--lake", lake)
    assert done.exit_code == 1 and "organism_data" in done.stdout and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["lake[1]", "lake*", "lake?", "l[a-z]ke", "**", "lake{1,2}"])
def test_a_folder_of_any_name_is_that_folder_alone(ticklake, report, lake, name):
    for rows, other in enumerate((name, "lake1", "lakeX", "lbke"), 1):
        made = shutil.copytree(lake, lake.parent / f"made-{rows}")
        add_ticks(made / NEW / "organism_data", range(5, 5 + rows))
        made.rename(lake.parent / other)
    query = "SELECT count(*) AS rows FROM organism_data"
    assert report("sql", query, "--lake", lake.parent / name, "--run", NEW) == [{"rows": 6}]
    with pytest.raises(BadQuery, match="disabled by configuration"):
        ticklake(
            "sql", f"SELECT * FROM read_parquet('{lake.parent}/lake1/*/*/*.parquet')", "--lake", lake.parent / name
        )
