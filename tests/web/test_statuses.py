"""What the status of an answer says: whose fault it is, and whether the thing that was asked for is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.web.site import Site

DATA = ["frame?tick=5", "cells/5?tick=5", "organisms/1?tick=5", "ticks", "series", "query?sql=SELECT+1"]
NUMBERS = ["", "x", "-1", "-0", "+1", "1_000", " 1", "1.0", "1e3", "NaN", "inf", "0x1", "\u0663", "\uff19", "9" * 5000,
           str(2**63)]  # fmt: skip


@pytest.fixture
def lake(run_site: Site, tmp_path: Path) -> Path:
    """A copy of the run's tables that a test may damage."""
    assert run_site.lake is not None
    return Path(shutil.copytree(run_site.lake, tmp_path / "lake"))


@pytest.fixture
def client(lake: Path, run_site: Site, serve_site: Callable[..., httpx.Client]) -> httpx.Client:
    return serve_site(Site(run_site.storage, lake, run_site.databases))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_is_not_written_with_plain_digits_is_refused(
    pages: httpx.Client, indexed: ModuleType, number: str
) -> None:
    run = f"/api/runs/{indexed.RUN_ID}"
    for path in ("frame", "cells/1", "organisms/1"):
        assert pages.get(f"{run}/{path}", params={"tick": number}).status_code == 400, path
    if number:
        assert pages.get(f"{run}/series", params={"points": number}).status_code == 400
        for path in (f"{run}/series", "/charts", "/completeness"):
            for name in ("from", "to"):
                assert pages.get(path, params={name: number}).status_code == 400, (path, name)


@pytest.mark.parametrize("what", DATA)
def test_a_run_that_is_not_there_is_not_found(pages: httpx.Client, indexed: ModuleType, what: str) -> None:
    answer = pages.get(f"/api/runs/20010101-000000-00000000/{what}")
    assert answer.status_code == 404
    assert indexed.RUN_ID in answer.json()["error"]["message"], "the runs that are there are named"


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("organism_data", "organisms/1?tick=5"),
        ("environment_data", "cells/5?tick=5"),
        ("environment_data", "frame?tick=5"),
    ],
)
def test_a_table_that_is_not_there_is_not_found(
    client: httpx.Client, lake: Path, indexed: ModuleType, table: str, what: str
) -> None:
    path = f"/api/runs/{indexed.RUN_ID}/{what}"
    assert client.get(path).status_code == 200
    shutil.rmtree(lake / indexed.RUN_ID / table)
    answer = client.get(path)
    assert answer.status_code == 404
    assert f"no table '{table}'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/world", "/charts", "/completeness", "/api/runs/{run}/series"])
def test_a_damaged_table_is_not_the_fault_of_the_request(
    client: httpx.Client, lake: Path, indexed: ModuleType, path: str
) -> None:
    *_, newest = sorted((lake / indexed.RUN_ID / "environment_data" / "_delta_log").glob("*.json"))
    newest.write_bytes(b"\xff\x00 no JSON")
    answer = client.get(path.replace("{run}", indexed.RUN_ID))
    assert answer.status_code == 503
    assert "cannot be read" in answer.text


@pytest.fixture
def lost(tmp_path: Path, indexed: ModuleType) -> Iterator[Database]:
    """A database whose files were moved away."""
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        indexed.make_topic(database)
        shutil.move(tmp_path / "database", tmp_path / "elsewhere")
        yield database
        shutil.move(tmp_path / "elsewhere", tmp_path / "database")


@pytest.mark.warns("DEAD_LETTER")
@pytest.mark.parametrize("path", ["/topics", "/dead-letters"])
def test_nor_is_a_database_that_is_gone(
    tmp_path: Path, lost: Database, indexed: ModuleType, serve_site: Callable[..., httpx.Client], path: str
) -> None:
    storage = Storage(tmp_path / "storage")
    (tmp_path / "storage" / indexed.RUN_ID).mkdir(parents=True)
    answer = serve_site(Site(storage, databases=[lost])).get(path, params={"run": indexed.RUN_ID})
    assert answer.status_code == 503, answer.text


def test_a_refused_change_has_a_status_except_in_a_page(
    run_site: Site, serve_site: Callable[..., httpx.Client], indexed: ModuleType
) -> None:
    client = serve_site(run_site)
    path, form = f"/runs/{indexed.RUN_ID}/groups/reset", {"topic": "batch-topic", "group": "nobody", "where": "end"}
    assert client.post(path, data=form).status_code == 404
    # The script of the pages shows only answers with status 200.
    shown = client.post(path, data=form, headers={"hx-request": "true"})
    assert (shown.status_code, 'role="alert"' in shown.text) == (200, True)


@pytest.mark.parametrize("sources", ["x", "1", "[1]", "[" * 100_000])
def test_tables_are_shown_whatever_another_writer_says_of_its_commits(
    lake: Path, client: httpx.Client, indexed: ModuleType, sources: str
) -> None:
    log = lake / indexed.RUN_ID / "environment_data" / "_delta_log"
    version = max(int(file.stem) for file in log.glob("*.json") if file.stem.isdecimal()) + 1
    info = {"timestamp": 1, "operation": "BY HAND", "ticklake.sources": sources}
    (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))
    answer = client.get("/tables", params={"run": indexed.RUN_ID})
    assert answer.status_code == 200 and "by hand" in answer.text
