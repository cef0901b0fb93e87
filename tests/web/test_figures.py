"""Every figure that a page, a command or an export shows, against the batch files as protobuf itself reads them.

Routes and commands in this table are those of the code: `test_every_route_and_every_command_is_in_the_table` has it so.

| shown in | figure | test |
| --- | --- | --- |
| `/api/runs/{run}/series`, `/charts` | population, births, deaths, energy, cells; ticks of a bucket | test_series_* |
| series as CSV and Parquet | the same, and which births and deaths are a lower bound | test_exports_* |
| `/api/runs/{run}/frame`, `/world` | cells, owners, values, organisms, the dead; a missing tick | test_frames_* |
| `/api/runs/{run}/ticks` | first and last tick | test_frames_* |
| `/api/runs/{run}/organisms/{organism}` | state, last seen, energy, age, birth, parent, path | test_lives_* |
| `/api/runs/{run}/cells/{cell}` | since when a cell is what it is, empty, or not known | test_cells_* |
| `/api/runs/{run}/query`, `sql` | what DuckDB finds, large integers, text, cut results | test_queries_* |
| `/`, `top` | rows, ticks, gaps, missing, lag, waiting, dead letters | test_overview_* |
| `/live/overview` | the same, live | test_overview_* in test_figures_of_topics.py |
| `status`, `runs`, `/tables` | files, bytes, ticks, rows, lag, missing | test_status_* |
| `gaps`, `verify`, `/completeness` | files, ticks, missing ranges, duplicates | test_completeness_* |
| `topics`, `topics tail`, `/topics` | messages, groups, times | test_topics_* in test_figures_of_topics.py |
| `groups` | lag, claimed, dead letters, age | test_groups_* in test_figures_of_topics.py |
| `claims` | versions, attempts, ages | test_claims_* in test_figures_of_topics.py |
| `dead-letters list`, `dead-letters show` | attempts, times | test_dead_letters_* in test_figures_of_topics.py |
| `/dead-letters` | letters, reasons | test_dead_letters_* in test_figures_of_topics.py |
| `groups reset`, `POST /runs/{run}/groups/reset` | messages | test_acts_on_groups_* in test_figures_of_topics.py |
| `claims release`, `POST /runs/{run}/claims/release` | claims | test_acts_on_claims_* in test_figures_of_topics.py |
| `dead-letters replay` | dead letters | test_acts_on_dead_letters_* in test_figures_of_topics.py |
| `dead-letters discard` | dead letters | test_acts_on_dead_letters_* in test_figures_of_topics.py |
| `POST /runs/{run}/dead-letters/replay` | the same | test_acts_on_dead_letters_* in test_figures_of_topics.py |
| `POST /runs/{run}/dead-letters/discard` | the same | test_acts_on_dead_letters_* in test_figures_of_topics.py |
| `topics prune` | messages | test_acts_on_topics_* in test_figures_of_topics.py |
| `doctor`, `/system/doctor` | runs, claims, dead letters | test_the_doctor_* in test_figures_of_topics.py |
| the same | files, bytes, room | test_the_doctor_* in test_figures_of_upkeep.py |
| `optimize` | files, bytes | test_optimize_* in test_figures_of_upkeep.py |
| `vacuum` | files, bytes | test_vacuum_* in test_figures_of_upkeep.py |
| `reconcile` | files, ticks | test_reconcile_* in test_figures_of_upkeep.py |
| `end` | last tick | test_the_end_* in test_figures_of_upkeep.py |
| `runs close`, `runs delete`, `runs archive` | ticks, files, rows | test_a_run_that_* in test_figures_of_upkeep.py |
| `/system`, `POST /system/services` | counters | test_the_system_* in test_figures_of_upkeep.py |
| `/api/services`, `/api/services/{name}` | counters | test_the_system_* in test_figures_of_upkeep.py |
| `/api/services/{name}/errors` | errors | test_the_system_* in test_figures_of_upkeep.py |
| `POST /api/services/{name}/{action}` | counters | test_the_system_* in test_figures_of_upkeep.py |
| `/api/resources` | queued, published | test_the_system_* in test_figures_of_upkeep.py |
| `index` | ticks, rows, bad files | test_index_counts_* in ../spark/test_figures_of_commands.py |
| `analyze` | ticks, rows | test_analyze_makes_* in ../spark/test_commands.py |
| `index-events` | batches, events | test_index_events_* in ../spark/test_figures_of_commands.py |
| `demo` | files, bytes, rows, population | test_the_demo_* in ../spark/test_figures_of_commands.py |
| `db upgrade` | messages | test_doctor_names_it_* in ../contract/test_restored.py |
| `/metrics` | counters, gauges, ratios | class Topics in ../contract/test_metric_invariants.py |
| the same | lag, claimed, dead letters, age | test_groups_* in test_figures_of_topics.py |
| the same | totals and the worst of all runs | test_metrics_* in test_figures_of_runs.py |
| `/`, `/live/overview` | other runs with work | test_the_overview_* in test_figures_of_runs.py |
| `top` | other runs with work | test_top_* in test_figures_of_runs.py |
| `doctor`, `/system/doctor` | messages that nobody reads | test_a_run_that_* in ../contract/test_doctor.py |
| `index` | messages acknowledged | test_what_was_indexed_* in ../contract/test_acknowledged_by_index.py |
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import stories
from deltalake import DeltaTable, write_deltalake
from starlette.routing import BaseRoute, Mount, Route
from stories import Life, Told

from ticklake.cli import cli
from ticklake.config.options import HttpOptions
from ticklake.contracts import BatchInfo
from ticklake.node.node import Node
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.web.pages.world import HEADER, NO_CELLS, NO_ORGANISMS
from ticklake.web.server import open_server, open_site
from ticklake.web.site import Site

DASH = "\N{EN DASH}"
FIGURES = ("population", "births", "deaths", "energy", "occupied_cells")


def every(first: int, last: int, step: int, files: int) -> list[TickRange]:
    """So many files one after the other."""
    ticks = list(range(first, last + 1, step))
    size = -(-len(ticks) // files)
    return [TickRange(part[0], part[-1]) for part in (ticks[at : at + size] for at in range(0, len(ticks), size))]


FAMILY = [
    Life(1, None, 0, 31),
    Life(2, None, 0),
    Life(3, 1, 4, 40),
    Life(4, 1, 17, 18),
    Life(5, 3, 25, 44),
    Life(6, 2, 58),
]
STORIES = {
    story.name: story
    for story in (
        stories.Story("living", 1, every(0, 59, 1, 3), FAMILY),
        stories.Story("dead", 1, every(0, 59, 1, 3), FAMILY, records_dead=True),
        stories.Story(
            "sampled",
            100,
            # Four ranges are missing.
            [
                TickRange(0, 900),
                TickRange(1200, 2000),
                TickRange(2400, 2400),
                TickRange(3000, 3900),
                TickRange(4100, 5000),
            ],
            [
                Life(1, None, 0, 1550),
                Life(2, None, 0, 2371),
                Life(3, 1, 250, 4300),
                Life(4, 1, 310, 390),
                Life(5, 3, 4210, 4290),
                Life(6, 3, 4250),
            ],
        ),
        stories.Story(
            "dies-out",
            7,
            every(0, 140, 7, 4),
            [Life(1, None, 0, 50), Life(2, 1, 8, 12), Life(3, 1, 20, 70), Life(4, 3, 63, 64)],
            records_dead=True,
            empty_world=[TickRange(105, 140)],
        ),
        stories.Story(
            "late", 10, every(500, 790, 10, 2), [Life(70, None, 500), Life(71, 70, 511, 640), Life(72, 9, 503, 700)]
        ),
        stories.Story(
            "holed",
            1,
            [TickRange(0, 9), TickRange(20, 29), TickRange(31, 31), TickRange(40, 74)],
            [Life(1, None, 0), Life(2, None, 0, 15), Life(3, 1, 5, 20), Life(4, 1, 6, 25), Life(5, 1, 28, 42)],
        ),
        stories.Story("starts-late", 1, every(20, 79, 1, 2), [Life(1, None, 0), Life(2, 1, 22, 30)]),
    )
}


# Births and deaths that were recorded or were not, sampled ticks, missing ranges: these two have all of it.
QUICK = {"dead", "sampled"}


@pytest.fixture(
    scope="module", params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STORIES]
)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, str]:
    story, root = STORIES[request.param], tmp_path_factory.mktemp("story")
    return story, root, stories.write(story, root)


@pytest.fixture
def told(written: tuple[Any, Path, str], serve_site: Callable[..., httpx.Client]) -> Iterator[Told]:
    story, root, url = written
    with Database(url) as database:
        yield Told(story, root, url, serve_site(Site(Storage(root / "storage"), root / "lake", [database])))


@pytest.fixture(scope="module")
def one_written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, str]:
    story, root = STORIES["living"], tmp_path_factory.mktemp("one")
    return story, root, stories.write(story, root)


@pytest.fixture
def one(one_written: tuple[Any, Path, str], serve_site: Callable[..., httpx.Client]) -> Iterator[Told]:
    """One story, for what does not depend on it."""
    story, root, url = one_written
    with Database(url) as database:
        yield Told(story, root, url, serve_site(Site(Storage(root / "storage"), root / "lake", [database])))


def expected(told: Told, first: int, last: int) -> dict[str, tuple[float, float, float] | None]:
    """Mean, least and most of the ticks there are from one to another; None if there is none."""
    ticks = [tick for tick in told.truth.sampled if first <= tick <= last]
    found = {}
    for name in FIGURES:
        values = [value for tick in ticks if (value := told.truth.figures(tick)[name]) is not None]
        found[name] = (fmean(values), min(values), max(values)) if values else None
    return found


def check_series(told: Told, found: dict[str, Any]) -> None:
    for at, (first, last) in enumerate(zip(found["from_tick"], found["to_tick"], strict=True)):
        known = [tick for tick in told.truth.sampled if first <= tick <= last]
        assert found["births_deaths_exact"][at] is told.truth.exact(first, last), (first, last)
        assert found["ticks"][at] == (last - first) // told.story.step + 1
        assert found["organism_data_ticks"][at] == found["environment_data_ticks"][at] == len(known)
        for name, values in expected(told, first, last).items():
            shown = tuple(found[f"{name}_{kind}"][at] for kind in ("mean", "min", "max"))
            assert shown == (pytest.approx(values) if values else (None, None, None)), (name, first, last)


def test_series_have_every_figure_of_every_tick(told: Told) -> None:
    found = told.series(points=1000)
    first, last, step = told.truth.sampled[0], told.truth.sampled[-1], told.story.step
    assert (found["first"], found["last"], found["step"], found["exact"]) == (first, last, step, True)
    assert found["from_tick"] == found["to_tick"] == list(range(first, last + 1, step)), "one tick a bucket"
    check_series(told, found)


@pytest.mark.parametrize("points", [2, 3, 7])
def test_series_have_mean_least_and_most_of_larger_parts(told: Told, points: int) -> None:
    check_series(told, told.series(points=points))


@pytest.mark.parametrize("cut", [(1, 1), (0, 33), (33, 0), (12, 41)])
def test_series_of_a_part_stay_on_sampled_ticks(told: Told, cut: tuple[int, int]) -> None:
    first, last, step = told.truth.sampled[0], told.truth.sampled[-1], told.story.step
    asked = TickRange(first + cut[0], last - cut[1])
    found = told.series(**{"from": asked.start, "to": asked.end})
    wanted = [tick for tick in range(first, last + 1, step) if tick in asked]
    assert found["from_tick"] == found["to_tick"] == wanted
    assert (found["from"], found["to"]) == (wanted[0], wanted[-1])
    check_series(told, found)


def test_series_between_two_sampled_ticks_are_refused(told: Told) -> None:
    first, step = told.truth.sampled[0], told.story.step
    if step == 1:
        pytest.skip("every tick is sampled")
    asked = {"from": first + 1, "to": first + step - 1}
    answer = told.client.get(f"/api/runs/{told.story.run_id}/series", params=asked)
    assert answer.status_code == 400 and f"multiple of {step}" in answer.json()["error"]["message"]
    assert told.client.get("/charts", params={"run": told.story.run_id, **asked}).status_code == 400


def test_series_say_which_births_and_deaths_are_a_lower_bound(told: Told) -> None:
    exact = told.story.step == 1
    found = told.series(points=1000)
    assert found["births_deaths_exact"] == [told.truth.exact(tick, tick) for tick in found["from_tick"]]
    assert ("at least" in found["births_and_deaths"]) is not exact
    assert ("at least, since the previous sampled tick" in told.page("/charts")) is not exact
    lives, last = told.story.lives, max(told.truth.ticks)
    if min(told.truth.ticks) == 0 and not told.truth.missing():
        born = sum(told.truth.figures(tick)["births"] for tick in told.truth.ticks)
        died = sum(told.truth.figures(tick)["deaths"] for tick in told.truth.ticks)
        really_born = sum(one.parent is not None and one.birth <= last for one in lives)
        really_died = sum(one.death is not None and one.death <= last for one in lives)
        assert born <= really_born and died <= really_died
        if exact or told.story.records_dead:
            assert (born, died) == (really_born, really_died), "and here they are all"


def test_exports_have_the_same_figures_and_labels(told: Told) -> None:
    asked = {"from": min(told.truth.ticks) + 1, "to": max(told.truth.ticks) - 1, "points": 5}
    found = told.series(**asked)
    names = [one["name"] for one in found["columns"]]
    rows = list(csv.reader(io.StringIO(told.get("series", **asked, format="csv").text)))
    table = pq.read_table(io.BytesIO(told.get("series", **asked, format="parquet").content))
    assert rows[0] == table.column_names == names
    assert "births_deaths_exact" in names and "ticks" in names
    for at, name in enumerate(names):
        assert [plain(row[at]) for row in rows[1:]] == pytest.approx(found[name]), name
        assert table[name].to_pylist() == pytest.approx(found[name]), name


def plain(text: str) -> float | bool | None:
    """A value of a CSV file."""
    return {"": None, "true": True, "false": False}[text] if not text or text.isalpha() else float(text)


def test_frames_are_what_the_files_have_and_a_missing_tick_is_no_empty_world(told: Told) -> None:
    first, last, step = min(told.truth.ticks), max(told.truth.ticks), told.story.step
    assert told.get("ticks").json() == {"first": first, "last": last}
    world = told.client.get("/world", params={"run": told.story.run_id}).text
    assert f'data-first="{first}" data-last="{last}" data-step="{step}"' in world
    assert f"{stories.WIDTH} \N{MULTIPLICATION SIGN} {stories.HEIGHT} cells" in world
    for tick in range(first, last + 2 * step, step):
        data = told.get("frame", tick=tick).content
        _, cells, organisms, flags, number = HEADER.unpack_from(data)
        assert number == tick
        if tick not in told.truth.ticks:
            assert (cells, organisms, flags) == (0, 0, NO_CELLS | NO_ORGANISMS)
            continue
        truth = told.truth.ticks[tick]
        assert (cells, organisms, flags) == (len(truth.cells), len(truth.organisms), 0)
        whole = np.frombuffer(data, "<i4", 2 * cells + 4 * organisms, HEADER.size)
        assert whole[:cells].tolist() == [one.flat_index for one in truth.cells]
        assert whole[cells : 2 * cells].tolist() == [one.owner_id for one in truth.cells]
        ids, x, y, energy = whole[2 * cells :][: 4 * organisms].reshape(4, organisms).tolist()
        shown = list(zip(ids, x, y, energy, strict=True))
        assert shown == [(one.organism_id, *one.ip.components, one.energy) for one in truth.organisms]
        values = np.frombuffer(data, "<i4", cells, HEADER.size + whole.nbytes)
        assert values.tolist() == [one.molecule_value for one in truth.cells]
        types = np.frombuffer(data, "<i2", cells, HEADER.size + whole.nbytes + values.nbytes)
        assert types.tolist() == [one.molecule_type >> 16 for one in truth.cells]
        dead = np.frombuffer(data, "u1", organisms, len(data) - organisms)
        assert dead.tolist() == [int(one.is_dead) for one in truth.organisms]


def test_lives_say_what_is_known_at_a_tick_and_since_when_it_is_not(told: Told) -> None:
    step = told.story.step
    for life in told.story.lives:
        for tick in range(min(told.truth.ticks), max(told.truth.ticks) + 2 * step, max(step, 4)):
            rows = {
                number: one
                for number, data in sorted(told.truth.ticks.items())
                for one in data.organisms
                if one.organism_id == life.id and number <= tick
            }
            last = max(rows, default=None)
            found = told.get(f"organisms/{life.id}", tick=tick).json()
            if last is not None and rows[last].is_dead:
                state = "dead"
            elif last == tick:
                state = "alive"
            elif tick not in told.truth.ticks:
                state = "unknown"
            else:
                state = "absent" if last is None else "gone"
            assert (found["state"], found["last_seen"]) == (state, last), (life, tick)
            assert [row[0] for row in found["path"]] == sorted(rows)
            if last is not None:
                truth = rows[last]
                assert (found["energy"], found["age"]) == (truth.energy, last - truth.birth_tick)
                assert (found["birth_tick"], found["parent_id"]) == (life.birth, life.parent)
            children = {
                one.organism_id
                for number, data in told.truth.ticks.items()
                for one in data.organisms
                if number <= tick and one.HasField("parent_id") and one.parent_id == life.id
            }
            assert (found["children"], found["more_children"]) == (sorted(children), 0)


def test_cells_change_when_the_files_say_so(told: Told) -> None:
    first, last, step = min(told.truth.ticks), max(told.truth.ticks), told.story.step
    for cell in (0, 5, 13, 47):
        states: list[tuple[int, Any]] = []
        for tick in sorted({*range(-(-first // step) * step, last + 1, step), *told.truth.ticks}):
            data = told.truth.ticks.get(tick)
            here = [one for one in data.cells if one.flat_index == cell] if data is not None else []
            state = "unknown" if data is None else (here[0].molecule_value, here[0].owner_id) if here else "empty"
            if not states or states[-1][1] != state:
                states.append((tick, state))
        found = told.get(f"cells/{cell}", tick=last).json()
        assert (found["from"], found["to"]) == (first, last)
        shown = [
            (
                one["tick_number"],
                (one["molecule_value"], one["owner_id"]) if one["state"] == "occupied" else one["state"],
            )
            for one in found["changes"]
        ]
        assert shown == states


def test_cells_are_followed_back_to_a_sampled_tick_whichever_is_asked_for(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    story = stories.Story("long", 7, [TickRange(0, 7 * 450)], [Life(1, None, 0)])
    told = Told(story, tmp_path, stories.write(story, tmp_path), serve_site(Site(lake=tmp_path / "lake")))
    for tick in (7 * 420, 7 * 420 + 3):
        found = told.get("cells/3", tick=tick).json()
        assert (found["from"], found["to"]) == (7 * 21, tick)
        assert "unknown" not in {one["state"] for one in found["changes"]}


def test_queries_count_the_same_rows_and_keep_what_a_browser_cannot_hold(told: Told) -> None:
    sql = "SELECT count(*) AS n, sum(energy) AS e FROM organism_data"
    truth = [one for data in told.truth.ticks.values() for one in data.organisms]
    found = told.get("query", sql=sql).json()
    assert [one["values"] for one in found["columns"]] == [[len(truth)], [sum(one.energy for one in truth)]]
    (row,) = json.loads(told.command("sql", sql, "--format", "json", places="l"))
    assert (row["n"], int(row["e"])) == (len(truth), sum(one.energy for one in truth))
    large = told.get("query", sql="SELECT 9007199254740993 AS large, 'a' AS text").json()["columns"]
    assert [(one["number"], one["values"]) for one in large] == [(False, ["9007199254740993"]), (False, ["a"])]
    many = {"sql": "SELECT * FROM range(10001)"}
    assert told.get("query", **many).json()["more"] is True
    cut = told.get("query", **many, format="csv")
    assert 'filename="query-first-10000-rows.csv"' in cut.headers["content-disposition"]
    assert cut.text.count("\n") == 10_001


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("INTERVAL 1 DAY", "P0M1DT0S"),
        ("INTERVAL '1 year 90.5 seconds'", "P12M0DT90.5S"),
        ("[1, 2]", "[1, 2]"),
        ("MAP {'a': 1}", "[('a', 1)]"),
        ("12345678901234.12345678::DECIMAL(22, 8)", "12345678901234.12345678"),
        ("12345678901234567890123456789", "12345678901234567890123456789"),
        ("DATE '2026-11-16'", "2026-11-16"),
        ("TIMESTAMP '2026-11-16 12:30:00'", "2026-11-16 12:30:00"),
        ("TIMESTAMP_NS '2026-11-16 12:30:00.123456789'", "2026-11-16 12:30:00.123456789"),
        ("TIME '24:00:00'", "24:00:00"),
        ("DATE 'infinity'", "infinity"),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("DATE '5000000-01-01'", "5000000-01-01"),
        ("TIMESTAMP '290000-01-01'", "290000-01-01 00:00:00"),
        ("TIMESTAMPTZ '-infinity'", "-infinity"),
        ("[TIMESTAMP 'infinity', NULL]", "[infinity, NULL]"),
        ("{'a': DATE 'infinity'}", "{'a': infinity}"),
        ("MAP {DATE 'infinity': 1}", "{infinity=1}"),
        ("union_value(k := DATE 'infinity')", "infinity"),
    ],
)
def test_queries_of_every_type_can_be_taken_home(one: Told, value: str, text: str) -> None:
    told = one
    sql = f"SELECT {value} AS v, 1 AS n"
    assert told.get("query", sql=sql).json()["columns"][0]["values"] == [text]
    head, row = csv.reader(io.StringIO(told.get("query", sql=sql, format="csv").text))
    assert (head, row) == (["v", "n"], [text, "1"])
    assert pq.read_table(io.BytesIO(told.get("query", sql=sql, format="parquet").content)).num_rows == 1


def test_queries_with_bytes_that_are_no_text_in_a_later_row_can_be_taken_home(one: Told) -> None:
    sql = "SELECT * FROM (VALUES ('a'::BLOB), ('\\xFF'::BLOB), (NULL))"
    texts = one.get("query", sql=sql).json()["columns"][0]["values"]
    rows = list(csv.reader(io.StringIO(one.get("query", sql=sql, format="csv").text)))
    assert texts == ["b'a'", "b'\\xff'", None] and rows[1:] == [["b'a'"], ["b'\\xff'"], []]
    one.get("query", sql=sql, format="parquet")


def test_queries_with_an_interval_deep_inside_can_be_taken_home(one: Told) -> None:
    for form in ("json", "csv", "parquet"):
        one.get("query", sql="SELECT [{'x': INTERVAL 1 DAY}] AS v", format=form)


@pytest.mark.parametrize(("first", "last"), [(5000, 6000), (40, 10)])
def test_series_of_a_range_that_is_not_there_are_refused(one: Told, first: int, last: int) -> None:
    for form in ("json", "csv"):
        params: dict[str, Any] = {"from": first, "to": last, "format": form}
        answer = one.client.get(f"/api/runs/{one.story.run_id}/series", params=params)
        assert answer.status_code == 400 and f"{first:,}" in answer.json()["error"]["message"]
    assert one.client.get("/charts", params={"run": one.story.run_id, "from": first, "to": last}).status_code == 400


def test_frames_of_the_last_ticks_can_be_asked_for(one: Told) -> None:
    for tick in (10**18, 2**62, 2**63 - 1):
        assert HEADER.unpack_from(one.get("frame", tick=tick).content)[3:] == (NO_CELLS | NO_ORGANISMS, tick)
    assert one.client.get(f"/api/runs/{one.story.run_id}/frame", params={"tick": 2**63}).status_code == 400


def rows_of(told: Told) -> dict[str, int]:
    ticks = told.truth.ticks.values()
    return {
        "organism_data": sum(len(one.organisms) for one in ticks),
        "environment_data": sum(len(one.cells) for one in ticks),
    }


def missing_text(told: Told) -> str:
    missing = told.truth.missing()
    ticks = sum(one.count(told.story.step) for one in missing)
    return f"{ticks} in {len(missing)} range{'' if len(missing) == 1 else 's'}" if missing else "0"


def test_overview_says_what_is_missing_and_only_then_that_all_is_there(told: Told) -> None:
    shown, missing = told.page("/"), told.truth.missing()
    first, last = min(told.truth.ticks), max(told.truth.ticks)
    assert f"gaps {len(missing)} ranges missing" in shown
    assert ("up to date" in shown) is not bool(missing)
    for table, rows in rows_of(told).items():
        assert re.search(
            rf"{table} {rows:,} {DASH} \d+ [\d.]+ \w+ {first:,}{DASH}{last:,} {missing_text(told)}", shown
        ), table
        assert f"{rows:,} rows" in shown
    assert f"up to tick {last:,}" in shown
    assert "lag 0 messages" in shown and "lag 0 ticks" in shown and "dead letters 0" in shown
    frame = told.json("top", "--once")
    tables = {one["name"]: one for one in frame["tables"] if one["name"] != "metadata"}
    assert {name: one["rows"] for name, one in tables.items()} == rows_of(told)
    assert {one["missing"] for one in tables.values()} == {len(missing)}
    assert f"{len(missing)} gaps" in told.command("top", "--once")
    assert [(one["group"], one["lag"], one["claimed"], one["dead_letters"]) for one in frame["groups"]] == [
        ("environment-indexer", 0, 0, 0),
        ("organism-indexer", 0, 0, 0),
    ]


def test_overview_is_not_up_to_date_while_messages_wait_that_may_tell_of_more(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    story = stories.Story("waits", 1, [TickRange(0, 119)], [Life(1, None, 0)])
    with Database(stories.write(story, tmp_path)) as database:
        told = Told(story, tmp_path, database.url, serve_site(Site(lake=tmp_path / "lake", databases=[database])))
        assert "up to date" in told.page("/")
        with database.run(story.run_id).writer("batch-topic") as writer:
            for first, last in [(120, 319), *((tick, tick) for tick in range(100))]:
                key = f"{story.run_id}/batch_{first:010d}_{last:010d}.pb"
                writer.send(BatchInfo(simulation_run_id=story.run_id, storage_key=key, tick_start=first, tick_end=last))
        told.client = serve_site(Site(lake=tmp_path / "lake", databases=[database]))
        shown = told.page("/")
        assert "up to date" not in shown and "101 behind" in shown
        assert f"lag {DASH} ticks" in shown and "lag 101 messages" in shown
        assert "up to tick 119" in shown and "up to tick 99" not in shown


def test_overview_and_top_show_a_dash_for_what_is_not_known(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    story = stories.Story("hidden", 1, [TickRange(0, 3), TickRange(8, 9)], [Life(1, None, 0)])
    told = Told(story, tmp_path, stories.write(story, tmp_path), serve_site(Site(lake=tmp_path / "lake")))
    shown = told.page("/")
    assert f"lag {DASH} messages" in shown and f"lag {DASH} oldest message" in shown
    assert f"dead letters {DASH} show" in shown and "gaps 1 ranges missing" in shown
    assert f"{DASH} dead letters   1 gaps" in told.command("top", "--once", places="l")
    assert told.json("top", "--once", places="l")["dead_letters"] is None
    assert f"0 dead letters   {DASH} gaps" in told.command("top", "--once", places="d")
    shutil.rmtree(tmp_path / "lake" / story.run_id / "metadata")
    assert f"{DASH} dead letters   {DASH} gaps" in told.command("top", "--once", places="l")
    told.client = serve_site(Site(lake=tmp_path / "lake"))
    assert f"gaps {DASH} ranges missing" in told.page("/")


def test_status_and_runs_count_files_rows_and_missing_ticks(told: Told) -> None:
    files = list((told.root / "storage" / told.story.run_id).rglob("batch_*"))
    first, last, missing = min(told.truth.ticks), max(told.truth.ticks), told.truth.missing()
    status, (run,) = told.json("status"), told.json("runs")
    for report in (status, run):
        stored = report["storage"]
        assert (stored["files"], stored["bytes"]) == (len(files), sum(file.stat().st_size for file in files))
        assert (stored["ticks"], stored["completed"]) == ([first, last], False)
        tables = {one["name"]: one for one in report["tables"] if one["name"] != "metadata"}
        assert {name: one["rows"] for name, one in tables.items()} == rows_of(told)
        for one in tables.values():
            assert (one["ticks"], one["lag"]) == ([first, last], 0)
            lacking = sum(ticks.count(told.story.step) for ticks in missing)
            known = (len(missing), lacking) if report is status else (None, None)
            assert (one["missing"], one["missing_ticks"]) == known
    assert missing_text(told) in told.command("status")
    page = told.page("/tables")
    for table, rows in rows_of(told).items():
        assert f"{table} ticks {first:,}{DASH}{last:,} rows {rows:,}" in page
        parquet = list((told.root / "lake" / told.story.run_id / table).glob("*.parquet"))
        shown = next(one for one in status["tables"] if one["name"] == table)
        assert (shown["files"], shown["bytes"]) == (len(parquet), sum(file.stat().st_size for file in parquet))


def test_completeness_is_what_the_files_leave_open(told: Told) -> None:
    missing = [list(one) for one in told.truth.missing()]
    verify, gaps = told.json("verify", codes=(0, 1, 2, 3)), told.json("gaps")
    assert verify["storage"]["files"] == len(told.story.files)
    assert verify["storage"]["lost"] == missing
    assert verify["messages"]["messages"] == len(told.story.files)
    for table in [*verify["tables"], *gaps["tables"]]:
        assert (table["coverage"]["missing"], table["coverage"]["ticks"]) == (missing, len(told.truth.sampled))
        assert table["duplicated"] == 0
    assert {one["table"]: one["rows"] for one in verify["tables"]} == rows_of(told)
    page = told.page("/completeness")
    assert f"batch files {len(told.story.files)} " in page
    assert (f"{len(missing)} range" in page) is bool(missing)
    assert page.count(f"{len(told.truth.sampled)} ticks") == 2


def test_status_and_verify_agree_on_ticks_that_are_off_the_grid(tmp_path: Path) -> None:
    """No indexer of ours adds such ticks."""
    story = stories.Story("off-grid", 3, [TickRange(0, 3), TickRange(9, 12)], [Life(1, None, 0)])
    url = stories.write(story, tmp_path)
    (tmp_path / "storage" / story.run_id / "batch_0000000001_0000000004.pb").touch()
    table = tmp_path / "lake" / story.run_id / "environment_data"
    rows = DeltaTable(table).to_pyarrow_table().slice(0, 1)
    write_deltalake(table, rows.set_column(0, rows.schema.field(0), [[4]]), mode="append")
    told = Told(story, tmp_path, url, httpx.Client())
    (verify, *_), (status, *_) = told.json("verify", codes=(0, 1, 2, 3))["tables"], told.json("status")["tables"]
    assert verify["coverage"]["missing"] == [[6, 6]]
    assert (status["missing"], status["missing_ticks"]) == (1, 1)
    gaps = told.command("gaps")
    assert "4 of 5 ticks in 0–12" in gaps
    assert "  not expected: " in gaps
    assert "Files that do not match the sampling interval or the end of the run: batch_0000000001_0000000004.pb" in gaps


def test_topics_groups_and_claims_are_counted(told: Told) -> None:
    (topic,) = told.json("topics", places="d")
    assert (topic["topic"], topic["messages"], topic["groups"]) == ("batch-topic", len(told.story.files), 2)
    groups = told.json("groups", places="d")
    assert [(one["lag"], one["claimed"], one["dead_letters"], one["oldest_seconds"]) for one in groups] == [
        (0, 0, 0, None)
    ] * 2
    assert told.json("claims", places="d") == told.json("dead-letters", "list", places="d") == []
    page = told.page("/topics")
    assert f"batch-topic {len(told.story.files)} 2 " in page


@pytest.mark.warns("DEAD_LETTER", "Two rows have the same key", "failed")
def test_overview_and_status_show_what_a_tick_with_an_organism_twice_leaves_out(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    class Twins(stories.Story):  # type: ignore[misc, name-defined]
        def tick(self, number: int) -> Any:
            tick = super().tick(number)
            tick.organisms.extend(tick.organisms[:1] if number == 5 else [])
            return tick

    story = Twins("twins", 1, [TickRange(0, 3), TickRange(4, 7)], [Life(1, None, 0)])
    url = stories.write(story, tmp_path, attempts=1)
    with Database(url) as database:
        site = Site(Storage(tmp_path / "storage"), tmp_path / "lake", [database])
        told = Told(story, tmp_path, url, serve_site(site))
        tables = {one["name"]: one for one in told.json("status")["tables"]}
        assert (tables["organism_data"]["rows"], tables["organism_data"]["lag"]) == (4, 4)
        assert (tables["environment_data"]["ticks"], tables["environment_data"]["lag"]) == ([0, 7], 0)
        shown = told.page("/")
        assert "4 ticks behind" in shown and "dead letters 1" in shown
        assert told.series()["population_mean"] == [1.0] * 4 + [None] * 4


# What has no figure of the data, by name.
NO_FIGURE = {
    "config check",
    "config show",
    "db sql",
    "db status",
    "groups release",
    "init",
    "run",
    "topics send",
    "ui",
    "/api/node",
    "/health",
    "/openapi.json",
    "/ready",
    "/static",
    "POST /login",
    "POST /logout",
}


def rows_of_the_table() -> list[list[str]]:
    lines = [line for line in (__doc__ or "").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def every_command(command: click.Command, *names: str) -> Iterator[str]:
    """All that can be called: a group that does something by itself, too."""
    if names and not (isinstance(command, click.Group) and not command.invoke_without_command):
        yield " ".join(names)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found, *names, name)


def every_route(routes: Iterable[BaseRoute]) -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            assert not route.routes, "its routes are routes, too"
            yield route.path
            continue
        assert isinstance(route, Route) and route.methods
        yield from (route.path if one == "GET" else f"{one} {route.path}" for one in route.methods - {"HEAD"})


def test_every_route_and_every_command_is_in_the_table(
    make_node: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one needs a test of its figures, or a place among those that have none."""
    monkeypatch.setenv("TICKLAKE_TOKEN", "a-token-for-this-test-only")
    node = make_node()
    servers = [open_server(node, node.settings.node.http), open_site(Site(), HttpOptions(port=0), tmp_path)]
    with_node, alone = (list(every_route(one._app.routes)) for one in servers)
    for server in servers:
        server.stop()
    assert set(alone) < set(with_node)
    there = [*every_command(cli), *with_node]
    told = [name for shown, *_ in rows_of_the_table() for name in re.findall(r"`([^`]+)`", shown)]
    known = {*told, *NO_FIGURE}
    assert set(there) - known == set(), "these have no test of their figures"
    assert known - set(there) == set(), "these are not there any more"
    assert not NO_FIGURE & set(told)


def test_the_table_above_names_tests_that_are_there() -> None:
    here = Path(__file__)
    for *_, test in rows_of_the_table():
        name, _, file = test.partition(" in ")
        text = (here.parent / (file or here.name)).read_text(encoding="utf-8")
        wanted = rf"^class {name[6:]}\b" if name.startswith("class ") else rf"^ *def {name.removesuffix('*')}"
        assert re.search(wanted, text, re.MULTILINE), test
