"""Pages over tables that are damaged, or that hold odd commits of others: they say so, and none breaks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable

from ticklake import Database
from ticklake.coordination import Target, bind
from ticklake.storage.files import Storage
from ticklake.web.site import Site

PAGES = ["/", "/completeness", "/tables", "/world", "/charts", "/api/runs/{run}/series?points=5"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, indexed: ModuleType) -> Path:
    root = tmp_path_factory.mktemp("whole")
    indexed.make_run(root, shape=(12, 8), ticks=40, organisms=4)
    return root


def foreign(table: Path, **info: Any) -> None:
    version = int(DeltaTable(table).version()) + 1
    commit = {"commitInfo": {"operation": "WRITE", "timestamp": 1, **info}}
    (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(commit) + "\n")


def cut(table: Path) -> None:
    file = sorted(table.glob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-9])


DAMAGES: dict[str, tuple[str, Callable[[Path], None], set[str]]] = {
    "a time in the far future": ("environment_data", lambda table: foreign(table, timestamp=10**18), set()),
    "a time far below 1970": ("environment_data", lambda table: foreign(table, timestamp=-(10**18)), set()),
    "no time": ("environment_data", lambda table: foreign(table, timestamp=None), set()),
    "a time as text": ("environment_data", lambda table: foreign(table, timestamp="yesterday"), set()),
    "odd sources": (
        "environment_data",
        lambda table: foreign(table, **{"ticklake.sources": json.dumps([{"ticks": 3}, {"file": 7, "ticks": {}}])}),
        set(),
    ),
    "metadata cut off": ("metadata", cut, {"/world", "/charts", PAGES[-1]}),
    "metadata gone": (
        "metadata",
        lambda table: next(table.glob("*.parquet")).unlink(),
        {"/world", "/charts", PAGES[-1]},
    ),
    "rows cut off": ("environment_data", cut, {"/completeness", PAGES[-1]}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_page_breaks(whole: Path, tmp_path: Path, serve_site: Callable[..., httpx.Client], damage: str) -> None:
    table, act, unavailable = DAMAGES[damage]
    shutil.copytree(whole, tmp_path / "run")
    (run,) = Storage(tmp_path / "run" / "storage").runs()
    act(tmp_path / "run" / "lake" / run / table)
    client = serve_site(Site(Storage(tmp_path / "run" / "storage"), tmp_path / "run" / "lake", []))
    answers = {path: client.get(path.format(run=run), follow_redirects=True) for path in PAGES}
    statuses = {path: answer.status_code for path, answer in answers.items()}
    assert statuses == {path: 503 if path in unavailable else 200 for path in PAGES}
    for path in unavailable:
        assert "cannot be read" in answers[path].text


def test_a_log_that_cannot_be_listed_is_told_beside_its_table(
    whole: Path, tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (run,) = Storage(tmp_path / "run" / "storage").runs()
    foreign(tmp_path / "run" / "lake" / run / "environment_data", timestamp="yesterday")
    client = serve_site(Site(Storage(tmp_path / "run" / "storage"), tmp_path / "run" / "lake", []))
    assert "yesterday" in client.get("/tables").text


def test_a_table_that_is_gone_is_named_on_every_page_about_tables(
    whole: Path, tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (run_id,) = Storage(tmp_path / "run" / "storage").runs()
    table = tmp_path / "run" / "lake" / run_id / "organism_data"
    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        target = Target.at(str(DeltaTable(table).metadata().id), table.as_uri())
        bind(database.run(run_id), "batch-topic", "organisms", "OrganismIndexer", target, lambda *_: None)
        client = serve_site(Site(Storage(tmp_path / "run" / "storage"), tmp_path / "run" / "lake", [database]))
        assert " is gone" not in client.get("/tables").text
        shutil.rmtree(table)
        for page in ("/", "/completeness", "/tables"):
            answer = client.get(f"{page}?run={run_id}")
            assert answer.status_code == 200
            assert f"{table}, which group organisms has filled, is gone" in answer.text, page
        shutil.rmtree(table.parent)
        assert "organism_data" in client.get(f"/tables?run={run_id}").text
