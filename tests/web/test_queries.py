"""Queries of the page Charts that ask for too much, or for tables whose files are gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from click.testing import CliRunner

from ticklake.cli import cli
from ticklake.errors import BadQuery
from ticklake.web.site import Site

FORMATS = ["json", "csv", "parquet"]


@pytest.fixture
def lake(run_site: Site, tmp_path: Path) -> Path:
    """A copy of the run's tables that a test may damage."""
    assert run_site.lake is not None
    return Path(shutil.copytree(run_site.lake, tmp_path / "lake"))


@pytest.fixture
def ask(lake: Path, serve_site: Callable[..., httpx.Client], indexed: ModuleType) -> Callable[..., httpx.Response]:
    client = serve_site(Site(lake=lake))

    def query(sql: str, form: str = "json") -> httpx.Response:
        return client.get(f"/api/runs/{indexed.RUN_ID}/query", params={"sql": sql, "format": form})

    return query


@pytest.fixture
def without_files(lake: Path, indexed: ModuleType) -> None:
    """environment_data has lost its Parquet files."""
    for file in (lake / indexed.RUN_ID / "environment_data").rglob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize("form", FORMATS)
def test_a_result_of_a_few_very_long_values_is_refused(ask: Callable[..., httpx.Response], form: str) -> None:
    answer = ask("SELECT repeat('a', 2000000) AS long FROM range(100)", form)
    assert answer.status_code == 400
    assert "larger than" in answer.json()["error"]["message"]


def test_long_values_within_the_limit_come_whole_in_a_file(ask: Callable[..., httpx.Response]) -> None:
    answer = ask("SELECT repeat('a', 1000000) AS long FROM range(5)", "csv")
    assert answer.status_code == 200
    assert [len(line) for line in answer.text.splitlines()[1:]] == [1_000_002] * 5


@pytest.mark.warns("Skipped")
@pytest.mark.usefixtures("without_files")
def test_a_table_without_its_files_does_not_hide_the_others(ask: Callable[..., httpx.Response]) -> None:
    assert ask("SELECT count(*) > 0 AS some FROM organism_data").json()["columns"][0]["values"] == [True]


@pytest.mark.warns("Skipped")
@pytest.mark.usefixtures("without_files")
def test_a_query_of_a_table_without_its_files_says_which_cannot_be_read(ask: Callable[..., httpx.Response]) -> None:
    answer = ask("SELECT count(*) FROM environment_data")
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "environment_data (cannot be read)" in message and "\n" not in message


@pytest.mark.warns("Skipped")
@pytest.mark.usefixtures("without_files")
def test_the_command_says_so_too(lake: Path) -> None:
    done = CliRunner().invoke(cli, ["sql", "--lake", str(lake), "SELECT count(*) FROM environment_data"])
    assert isinstance(done.exception, BadQuery)
    assert "environment_data (cannot be read)" in str(done.exception)


@pytest.mark.warns("Skipped")
def test_neither_does_a_file_that_is_not_parquet(
    lake: Path, indexed: ModuleType, ask: Callable[..., httpx.Response]
) -> None:
    for file in (lake / indexed.RUN_ID / "environment_data").rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    assert ask("SELECT count(*) > 0 AS some FROM organism_data").json()["columns"][0]["values"] == [True]
    answer = ask("SELECT count(*) FROM environment_data")
    assert answer.status_code == 400
    assert "environment_data (cannot be read)" in answer.json()["error"]["message"]
