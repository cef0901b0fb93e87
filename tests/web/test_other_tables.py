"""The pages of a run that has more than tables of ticks beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticklake.events import Event
from ticklake.events.batches import Batch
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.events import TABLE, slices_of, work_of
from ticklake.lake.flush import task
from ticklake.lake.flush.flush import Flusher
from ticklake.lake.lake import Lake
from ticklake.lake.table import Table
from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.web.site import Site

PAGES = ["/", "/completeness", "/tables", "/world", "/charts", "/topics", "/dead-letters", "/system"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, indexed: ModuleType) -> Iterator[Site]:
    """A run with events of which one batch is missing, and a foreign table, one without a key, one without rows."""
    root = tmp_path_factory.mktemp("other")
    url = indexed.make_run(root)
    (run_id,) = Storage(root / "storage").runs()
    lake = Lake(root / "lake")
    batches = [
        Batch(f"batch-{number}", 1.0, [Event(f"e-{number}", "moved", {}, 1.0)], 1, "processing", number)
        for number in (1, 3)
    ]
    ledger = lake.ledger(run_id, TABLE)
    work = work_of(batches, ledger.location)
    jobs = lambda _spark, told, pieces, _step: task.index(told, 0, pieces)  # noqa: E731
    Flusher(lambda: None, work, ledger, jobs).flush(slices_of(batches))  # type: ignore[arg-type,return-value]
    write_deltalake(str(lake.location(run_id, "notes")), pa.table({"note": ["a"]}))
    write_deltalake(str(lake.location(run_id, "loose")), pa.table({"tick_number": pa.array([0, 1], pa.int64())}))
    lake.ledger(run_id, Table("empty_data", pa.schema([("tick_number", pa.int64())]), ("tick_number",)))
    with Database(url) as database:
        yield Site(Storage(root / "storage"), root / "lake", [database])


@pytest.fixture
def pages(site: Site, serve_site: Callable[..., httpx.Client]) -> httpx.Client:
    return serve_site(site)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_shown(pages: httpx.Client, path: str) -> None:
    answer = pages.get(path, follow_redirects=True)
    assert answer.status_code == 200, answer.text[:500]


def test_completeness_shows_events_by_their_batches_and_names_what_it_cannot_judge(pages: httpx.Client) -> None:
    text = pages.get("/completeness").text
    assert "2 event batches" in text
    assert "<p>2</p>" in text
    assert "Not drawn, because their key does not start with a number: notes" in text


def test_a_commit_of_events_names_their_batches(pages: httpx.Client) -> None:
    assert "batch-3" in pages.get("/tables").text


@pytest.fixture
def without_ticks(tmp_path: Path, serve_site: Callable[..., httpx.Client]) -> httpx.Client:
    """A run whose only table is there and has no tick yet."""
    Lake(tmp_path / "lake").ledger("20251014-143025-550e8400", EnvironmentIndexer.table)
    return serve_site(Site(None, tmp_path / "lake", []))


@pytest.mark.parametrize("path", [*PAGES, "series", "ticks", "frame?tick=0", "cells/0?tick=0", "query?sql=SELECT+1"])
def test_a_run_whose_table_has_no_tick_yet_is_there(without_ticks: httpx.Client, path: str) -> None:
    address = path if path.startswith("/") else f"/api/runs/20251014-143025-550e8400/{path}"
    answer = without_ticks.get(address, follow_redirects=True)
    assert answer.status_code == 200, answer.text[:500]


def test_series_of_a_run_without_ticks_are_empty(without_ticks: httpx.Client) -> None:
    found = without_ticks.get("/api/runs/20251014-143025-550e8400/series").json()
    assert (found["first"], found["last"], found["from"], found["to"]) == (None,) * 4
    assert {tuple(column["values"]) for column in found["columns"]} == {()}
