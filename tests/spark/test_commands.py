"""The commands that need Spark, as a user runs them: real processes, exit codes, JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from ticklake.cli import cli

ROOT = Path(__file__).parents[2]
TICKLAKE = Path(sys.executable).with_name("ticklake")


def ticklake(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TICKLAKE), *arguments], cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.usefixtures("spark")
def test_index_tells_what_it_did_and_does_nothing_twice(maker: Any, tmp_path: Path) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    places = ("--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"))
    first = ticklake("index", maker.run_id, *places, "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    tables = {table["table"]: table for table in json.loads(first.stdout)["tables"]}
    assert (tables["environment_data"]["rows"], tables["organism_data"]["rows"]) == (200, 20)

    path = next((tmp_path / "storage" / maker.run_id).glob("batch_*10_*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    again = in_process("index", maker.run_id, *places, "--table", "environment_data")
    assert again.exit_code == 0, again.output
    assert "Now try: ticklake sql" in again.stdout
    assert maker.rows().num_rows == 200

    path.write_bytes(whole)
    replaced = in_process("index", maker.run_id, *places, "--ticks", "5:14", "--replace", "--json")
    assert {table["ticks"] for table in json.loads(replaced.stdout)["tables"]} == {10}
    assert maker.keys() == sorted(maker.expected_keys(range(20)))


def in_process(*arguments: str) -> Result:
    """The command on the Spark session of the tests, where what a process adds is not the point."""
    return CliRunner().invoke(cli, [*arguments, "--master", "local[2]"])


@pytest.mark.slow  # in this process: `test_bad_files` and `test_own_tables`
def test_index_with_an_indexer_of_ones_own_and_a_bad_file(maker: Any, tmp_path: Path) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    path = next((tmp_path / "storage" / maker.run_id).glob("batch_*10_*"))
    path.write_bytes(path.read_bytes()[:-4])
    done = ticklake(
        "index", maker.run_id, "--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"),
        "--table", "own_indexer:EnergyIndexer", cwd=ROOT / "examples",
    )  # fmt: skip
    assert done.returncode == 1
    assert path.name in done.stderr and "Traceback" not in done.stderr
    energy = maker.rows("energy_data").sort_by("tick_number").column("energy").to_pylist()
    assert energy == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("20990101-000000-00000000",), "No run '20990101-000000-00000000'"),
        pytest.param(("../etc",), "../etc", marks=pytest.mark.slow),
        pytest.param(("{run}", "--table", "nothing"), "environment_data", marks=pytest.mark.slow),
        pytest.param(("{run}", "--table", "no.such:Thing"), "no.such:Thing", marks=pytest.mark.slow),
    ],
)
def test_a_users_mistake_is_one_line(maker: Any, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    maker.metadata()
    wanted = [argument.format(run=maker.run_id) for argument in arguments]
    done = ticklake(
        "index", *wanted, "--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "l"), cwd=tmp_path
    )
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_demo_runs_the_whole_pipeline(tmp_path: Path) -> None:
    done = ticklake("demo", "--ticks", "60", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tables = {table["name"]: table for table in report["run"]["tables"]}
    assert set(tables) == {"environment_data", "organism_data", "metadata"}
    assert report["run"]["storage"]["completed"] is True
    assert len(report["population"]) == 60
    environment = DeltaTable(Path(tmp_path / report["lake"]) / report["run"]["run_id"] / "environment_data")
    assert environment.to_pyarrow_table(columns=["tick_number"]).column(0).unique().sort().to_pylist() == list(
        range(60)
    )


@pytest.mark.slow  # with fewer services: `test_node` and `test_signals`
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_node_stops_gracefully_and_leaves_no_buffered_tick(
    tmp_path: Path, eventually: Callable[..., None], number: signal.Signals
) -> None:
    assert ticklake("init", str(tmp_path), cwd=tmp_path).returncode == 0
    file = tmp_path / "ticklake.conf"
    smaller_but_longer = file.read_text().replace("max_ticks = 2000, shape = [128, 128]", "shape = [32, 32]")
    file.write_text(smaller_but_longer)
    with subprocess.Popen(
        [str(TICKLAKE), "run", str(file)], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as node:
        try:
            eventually(
                lambda: bool(list(tmp_path.glob("data/lake/*/environment_data/*.parquet"))) or node.poll() is not None
            )
            os.kill(node.pid, number)
            _, said = node.communicate(timeout=120)
        finally:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
    assert node.returncode == 0, said
    assert "Everything that was accepted is written" in said
    (run,) = (tmp_path / "data" / "lake").iterdir()
    stored = max(int(path.name.split("_")[2].partition(".")[0]) for path in tmp_path.glob("data/storage/*/batch_*"))
    ticks = (
        DeltaTable(run / "environment_data").to_pyarrow_table(columns=["tick_number"]).column(0).unique().to_pylist()
    )
    assert sorted(ticks) == list(range(len(ticks)))
    assert len(ticks) <= stored + 1


def ticks_in(run: Path) -> list[int]:
    rows = DeltaTable(run / "environment_data").to_pyarrow_table(columns=["tick_number"])
    return sorted(rows.column(0).unique().to_pylist())


@pytest.mark.usefixtures("spark")
def test_analyze_makes_all_tables_of_analytics_and_does_nothing_twice(maker: Any, tmp_path: Path) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    places = ("--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"))
    one = in_process("analyze", *places, "--table", "births", "--json")
    assert [(table["table"], table["rows"]) for table in json.loads(one.stdout)["tables"]] == [("births", 1)]
    rest = in_process("analyze", maker.run_id, *places, "--json")
    assert rest.exit_code == 0, rest.output
    tables = {table["table"]: (table["ticks"], table["present"]) for table in json.loads(rest.stdout)["tables"]}
    assert tables.pop("births") == (0, 20)
    assert set(tables.values()) == {(20, 0)}
    again = json.loads(CliRunner().invoke(cli, ["analyze", *places, "--json", "--master", "local[nothing]"]).stdout)
    assert {table["present"] for table in again["tables"]} == {20}
    status = json.loads(CliRunner().invoke(cli, ["status", maker.run_id, *places, "--json"]).stdout)
    assert {table["missing"] for table in status["tables"] if table["name"] != "metadata"} == {0}
    verified = CliRunner().invoke(cli, ["verify", maker.run_id, *places, "--json"])
    assert [table["coverage"]["missing"] for table in json.loads(verified.stdout)["tables"]] == [[]] * 8
    sql = CliRunner().invoke(cli, ["sql", "SELECT sum(births) AS born FROM tick_stats", *places[2:], "--json"])
    assert json.loads(sql.stdout) == [{"born": 1}]
    refused = CliRunner().invoke(cli, ["analyze", *places, "--table", "organism_data"])
    assert "organism_data" in str(refused.exception)
    assert "tick_stats" in str(refused.exception)
