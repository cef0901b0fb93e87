"""The pages over real HTTP, on a run that was really indexed."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ticklake.contracts import BatchInfo
from ticklake.insights import Announcement, GapsReport, Glance, GroupReport, TableReport
from ticklake.node.node import Node
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.web import rendering
from ticklake.web.feeds import pipeline
from ticklake.web.feeds.live import Live
from ticklake.web.feeds.sampling import PerRun, Sampler
from ticklake.web.feeds.survey import Ranges
from ticklake.web.pages import charts, completeness
from ticklake.web.pages.world import HEADER, NO_CELLS, NO_ORGANISMS
from ticklake.web.site import Site

PATHS = [entry.path for entry in rendering.MENU]
Serve = Callable[..., httpx.Client]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_there_and_runs_nothing_but_our_own_files(pages: httpx.Client, path: str) -> None:
    answer = pages.get(path)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:|https?://", answer.text)


@pytest.mark.parametrize("path", ["/", "/topics", "/dead-letters"])
def test_text_from_outside_is_shown_as_text(pages: httpx.Client, path: str, indexed: Any) -> None:
    text = pages.get(path).text
    assert "&lt;script&gt;" in text
    assert indexed.SCRIPT not in text


@pytest.mark.parametrize("path", PATHS)
def test_a_page_without_anything_to_show_says_so(tmp_path: Path, serve_site: Serve, path: str) -> None:
    answer = serve_site(Site(Storage(tmp_path / "storage"), tmp_path / "lake")).get(path)
    assert answer.status_code == 200
    assert re.search("Nothing here yet|no storage is given|No database|have no node", answer.text)


def test_a_run_that_is_not_there_is_a_page_that_says_so(pages: httpx.Client) -> None:
    answer = pages.get("/?run=20010101-000000-00000000")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "No run" in answer.text or "no run" in answer.text


def test_everything_is_below_the_prefix(run_site: Site, serve_site: Serve) -> None:
    client = serve_site(run_site, path_prefix="/lake")
    links = re.findall(
        r'(?:href|src|hx-post|hx-get|sse-connect)="(/[^"]*)"', "".join(client.get(p).text for p in PATHS)
    )
    assert links
    assert {link for link in links if not link.startswith("/lake/")} == set()
    assert client.get("/static/ticklake.css").status_code == 200


def test_the_pages_of_a_node_show_and_steer_its_services(node: Node, serve: Callable[..., httpx.Client]) -> None:
    client = serve(node)
    assert "persistence-service" in client.get("/system").text
    answer = client.post("/system/services", data={"service": "persistence-service", "action": "pause"})
    assert "persistence-service is paused." in answer.text
    answer = client.post("/system/services", data={"service": "persistence-service", "action": "pause"})
    assert "Cannot pause persistence-service" in answer.text
    assert client.get("/").status_code == 200


def test_pages_of_their_own_show_a_node_that_runs_elsewhere(
    node: Node, serve: Callable[..., httpx.Client], serve_site: Serve
) -> None:
    client = serve_site(Site(settings=node.settings))
    lock = Path(node.settings.node.directory) / f"{node.settings.node.name}.lock"
    assert "is not running on this machine" in client.get("/system").text
    url = str(serve(node).base_url).rstrip("/")
    lock.write_text(json.dumps({"url": url}))
    shown = client.get("/system").text
    assert "persistence-service" in shown and f'href="{url}/system"' in shown and "hx-post" not in shown
    lock.write_text(json.dumps({"url": "http://127.0.0.1:9"}))
    assert "does not answer now" in client.get("/system").text
    lock.write_text(json.dumps({"url": "javascript:alert(1)"}))
    assert 'href="javascript' not in client.get("/system").text


class TestFrames:
    def test_a_frame_is_what_the_table_has_at_that_tick(
        self, pages: httpx.Client, run_site: Site, indexed: Any
    ) -> None:
        data = pages.get(f"/api/runs/{indexed.RUN_ID}/frame?tick=77").content
        magic, cells, organisms, _, tick = HEADER.unpack_from(data)
        assert (magic, tick, len(data)) == (b"TLF2", 77, HEADER.size + cells * 14 + organisms * 17)
        table = DeltaTable(Path(run_site.lake or "") / indexed.RUN_ID / "environment_data").to_pyarrow_table(
            filters=[("tick_number", "=", 77)]
        )
        assert table.num_rows == cells > 0
        columns = np.frombuffer(data, "<i4", 2 * cells + 4 * organisms, HEADER.size)
        assert np.array_equal(columns[:cells], table["cell_id"])
        assert np.array_equal(columns[cells : 2 * cells], table["owner_id"])
        values = np.frombuffer(data, "<i4", cells, HEADER.size + columns.nbytes)
        assert np.array_equal(values, table["molecule_value"])
        kinds = np.frombuffer(data, "<i2", cells, HEADER.size + columns.nbytes + values.nbytes)
        assert np.array_equal(kinds, np.asarray(table["molecule_type"]) >> 16)

    def test_a_tick_that_is_in_no_table_is_no_empty_world(self, pages: httpx.Client, indexed: Any) -> None:
        data = pages.get(f"/api/runs/{indexed.RUN_ID}/frame?tick=100000").content
        assert HEADER.unpack(data)[1:4] == (0, 0, NO_CELLS | NO_ORGANISMS)

    @pytest.mark.parametrize("tick", ["", "x", "-1", "1e3", "9" * 30])
    def test_a_tick_that_is_none_is_refused(self, pages: httpx.Client, indexed: Any, tick: str) -> None:
        assert pages.get(f"/api/runs/{indexed.RUN_ID}/frame?tick={tick}").status_code == 400

    def test_a_run_without_tables_is_refused(self, pages: httpx.Client) -> None:
        assert pages.get("/api/runs/..%2F..%2Fetc/frame?tick=1").status_code in (400, 404)
        assert pages.get("/api/runs/nothing/frame?tick=1").status_code == 404

    def test_a_cell_has_a_past_and_an_organism_a_life(self, pages: httpx.Client, indexed: Any) -> None:
        run = f"/api/runs/{indexed.RUN_ID}"
        past = pages.get(f"{run}/cells/5?tick=50").json()
        assert (past["from"], past["to"]) == (0, 50)
        assert all(0 <= row["tick_number"] <= 50 for row in past["rows"])
        life = pages.get(f"{run}/organisms/1?tick=20").json()
        assert (life["birth_tick"], life["parent_id"]) == (0, None)
        assert [tick for tick, *_ in life["path"]] == sorted(tick for tick, *_ in life["path"])


class TestCharts:
    def test_the_series_of_a_run_are_what_its_tables_have(
        self, pages: httpx.Client, run_site: Site, indexed: Any
    ) -> None:
        found = pages.get(f"/api/runs/{indexed.RUN_ID}/series?from=70&to=79").json()
        assert (found["first"], found["last"], found["from"], found["to"], found["exact"]) == (0, 119, 70, 79, True)
        columns = {one["name"]: one["values"] for one in found["columns"]}
        table = Path(run_site.lake or "") / indexed.RUN_ID / "organism_data"
        rows = DeltaTable(table).to_pyarrow_table(filters=[("tick_number", "=", 77)])
        assert columns["from_tick"][7] == columns["to_tick"][7] == 77
        assert columns["energy_mean"][7] == sum(one["energy"] for one in rows.to_pylist() if not one["is_dead"])
        assert columns["population_mean"][7] == rows["is_dead"].to_pylist().count(False)
        born = [one for one in rows.to_pylist() if one["birth_tick"] == 77 and one["parent_id"] is not None]
        assert columns["births_max"][7] == len(born)
        assert columns["occupied_cells_mean"][7] > 0

    def test_the_same_comes_as_csv_and_parquet(self, pages: httpx.Client, indexed: Any) -> None:
        path = f"/api/runs/{indexed.RUN_ID}/series?points=12&format="
        text, data = pages.get(f"{path}csv"), pages.get(f"{path}parquet")
        assert text.headers["content-disposition"] == f'attachment; filename="{indexed.RUN_ID}-series.csv"'
        table = pq.read_table(io.BytesIO(data.content))
        assert table.num_rows == 12 == text.text.count("\n") - 1
        assert text.text.splitlines()[0].replace('"', "").split(",") == table.column_names

    @pytest.mark.parametrize("query", ["points=1", "points=x", "format=exe", "from=x", "to=-1", "from=" + "9" * 40])
    def test_a_chart_that_cannot_be_is_refused(self, pages: httpx.Client, indexed: Any, query: str) -> None:
        assert pages.get(f"/api/runs/{indexed.RUN_ID}/series?{query}").status_code == 400
        assert pages.get(f"/api/runs/nothing/series?{query}").status_code == 404

    def test_a_query_of_ones_own_is_answered(self, pages: httpx.Client, indexed: Any) -> None:
        sql = "SELECT tick_number, count(*) AS n, 'a' AS text, 1.5::DECIMAL(5,2) AS d, [1] AS l, 'nan'::DOUBLE AS nan"
        path, params = f"/api/runs/{indexed.RUN_ID}/query", {"sql": f"{sql} FROM organism_data GROUP BY 1 ORDER BY 1"}
        found = pages.get(path, params=params).json()
        assert [(one["name"], one["number"], one["values"][0]) for one in found["columns"]][2:] == [
            ("text", False, "a"),
            ("d", True, 1.5),
            ("l", False, "[1]"),
            ("nan", True, None),
        ]
        assert not found["more"]
        assert pages.get(path, params=params | {"format": "csv"}).text.count("\n") == 121
        assert pq.read_table(io.BytesIO(pages.get(path, params=params | {"format": "parquet"}).content)).num_rows == 120

    @pytest.mark.parametrize(
        "sql",
        [
            "",
            "SELEC",
            "SELECT 1; SELECT 2",
            "FROM '/etc/passwd'",
            "FROM read_text('/etc/passwd')",
            "x" * 9000,
            "COPY organism_data TO 'out.csv'",
            "CREATE TABLE t AS SELECT 1",
            "SET memory_limit = '1TB'",
            "ATTACH 'x.db'",
        ],
    )
    def test_a_query_that_fails_or_reaches_out_is_one_line(self, pages: httpx.Client, indexed: Any, sql: str) -> None:
        answer = pages.get(f"/api/runs/{indexed.RUN_ID}/query", params={"sql": sql})
        assert answer.status_code == 400
        assert "\n" not in answer.json()["error"]["message"]

    def test_two_queries_at_a_time_are_enough(self, pages: httpx.Client, indexed: Any) -> None:
        with charts.QUERIES, charts.QUERIES:
            assert pages.get(f"/api/runs/{indexed.RUN_ID}/query?sql=SELECT+1").status_code == 429
        assert pages.get(f"/api/runs/{indexed.RUN_ID}/query?sql=SELECT+1").status_code == 200


@pytest.mark.warns("DEAD_LETTER")
class TestChanges:
    @pytest.fixture
    def own(self, tmp_path: Path, indexed: Any, serve_site: Serve) -> Iterator[tuple[httpx.Client, Database]]:
        """A database of its own, with a group and a dead letter."""
        with Database(f"sqlite:///{tmp_path}") as database:
            indexed.make_topic(database)
            yield serve_site(Site(databases=[database])), database

    @pytest.mark.parametrize("what", ["groups/reset", "claims/release", "dead-letters/replay", "dead-letters/discard"])
    def test_a_change_needs_the_token_and_a_page_of_ours(self, own: Any, indexed: Any, what: str) -> None:
        client, database = own
        path, data = f"/runs/{indexed.RUN_ID}/{what}", {"every": "1", "topic": "batch-topic", "group": indexed.GROUP}
        assert client.post(path, data=data, headers={"authorization": ""}).status_code == 401
        assert client.post(path, data=data, headers={"origin": "https://evil.example"}).status_code == 403
        assert database.run(indexed.RUN_ID).dead_letters.count() == 1

    def test_a_read_only_server_changes_nothing_and_shows_no_button(
        self, own: Any, indexed: Any, serve_site: Serve
    ) -> None:
        client = serve_site(Site(databases=[own[1]], read_only=True), read_only=True)
        assert client.post(f"/runs/{indexed.RUN_ID}/dead-letters/replay", data={"every": "1"}).status_code == 403
        for path in ("/topics", "/dead-letters"):
            assert "hx-post" not in client.get(path).text

    def test_a_reset_is_tried_before_it_is_done(self, own: Any, indexed: Any) -> None:
        client, database = own
        run, path = database.run(indexed.RUN_ID), f"/runs/{indexed.RUN_ID}/groups/reset"
        before = run.groups.list()
        values = {"topic": "batch-topic", "group": indexed.GROUP, "where": "end"}
        assert "would have 0 messages" in client.post(path, data=values | {"dry_run": "1"}).text
        assert [one.lag for one in run.groups.list()] == [one.lag for one in before] == [1]
        assert "has 0 messages" in client.post(path, data=values).text
        assert [one.lag for one in run.groups.list()] == [0]
        assert 'role="alert"' in client.post(path, data=values | {"group": "nobody"}).text

    @pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
    def test_a_group_is_reset_to_the_time_that_the_page_shows(
        self, own: Any, indexed: Any, in_zone: Callable[[str], None], zone: str
    ) -> None:
        in_zone(zone)
        client, _ = own
        path, values = f"/runs/{indexed.RUN_ID}/groups/reset", {"topic": "batch-topic", "group": indexed.GROUP}
        page = client.get("/topics", params={"topic": "batch-topic"}).text
        (every,) = re.findall(r"topic=batch-topic#tail.*?<td class=\"n\">(\d+)", page)
        (first,) = re.findall(r"topic=batch-topic#tail.*?<td>(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", page)
        answer = client.post(path, data=values | {"to": first, "dry_run": "1"}).text
        assert f"would have {every} messages of batch-topic ahead, from {first} UTC on." in answer
        for time in ("9999-12-31T23:59:59-01:00", "0001-01-01T00:00+01:00"):
            answer = client.post(path, data=values | {"to": time, "dry_run": "1"})
            assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)

    def test_a_dead_letter_is_replayed(self, own: Any, indexed: Any) -> None:
        client, database = own
        letters, path = database.run(indexed.RUN_ID).dead_letters, f"/runs/{indexed.RUN_ID}/dead-letters/replay"
        assert "Nothing was selected." in client.post(path).text
        assert "1 dead letters would be" in client.post(path, data={"every": "1", "dry_run": "1"}).text
        (name,) = re.findall(r'name="letter" value="([^"]*)"', client.get("/dead-letters").text)
        chosen = name.replace("&#34;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'")
        assert letters.count() == 1
        assert "1 dead letters replayed." in client.post(path, data={"letter": chosen}).text
        assert letters.count() == 0

    def test_claims_are_released_only_if_it_is_said_which(self, own: Any, indexed: Any) -> None:
        client, database = own
        run, path = database.run(indexed.RUN_ID), f"/runs/{indexed.RUN_ID}/claims/release"
        run.groups.reset("batch-topic", indexed.GROUP, "earliest")
        with run.reader("batch-topic", group=indexed.GROUP) as reader:
            assert reader.poll(5) is not None
            for nothing in ({}, {"topic": "", "group": "", "message": ""}):
                answer = client.post(path, data=nothing)
                assert answer.status_code == 400 and "Say which claims" in answer.text
                assert len(run.claims.list()) == 1
            assert "1 claims released." in client.post(path, data={"group": indexed.GROUP}).text
            assert run.claims.list() == []

    @pytest.mark.parametrize("letter", ["", "x", "1", "[]", '["a", "b"]', "[" * 3_000, '{"a":' * 3_000])
    def test_a_letter_that_cannot_be_understood_is_refused(self, own: Any, indexed: Any, letter: str) -> None:
        path = f"/runs/{indexed.RUN_ID}/dead-letters/replay"
        answer = own[0].post(path, data={"letter": [letter, "also no letter"]})
        assert answer.status_code == 400 and "a list of topic, group and message id" in answer.text

    def test_a_form_that_is_too_large_is_refused(self, own: Any, indexed: Any) -> None:
        answer = own[0].post(f"/runs/{indexed.RUN_ID}/groups/reset", content=b"x" * 100_000)
        assert answer.status_code == 413


class TestLive:
    def test_fifty_viewers_cost_one_look(self, run_site: Site, indexed: Any) -> None:
        watch = Live(run_site).watch(indexed.RUN_ID)
        viewers = [threading.Thread(target=watch.flow) for _ in range(50)]
        for viewer in viewers:
            viewer.start()
        for viewer in viewers:
            viewer.join()
        assert len(watch.history) == 1
        assert watch.flow().lag_ticks == 20

    def test_a_topic_of_any_name_tells_of_files_also_if_nobody_reads_it(
        self, tmp_path: Path, indexed: Any, serve_site: Serve
    ) -> None:
        with Database(f"sqlite:///{tmp_path / 'database'}") as database:
            with database.run(indexed.RUN_ID).writer("files-of-the-producer") as writer:
                writer.send(BatchInfo(simulation_run_id=indexed.RUN_ID, tick_start=4000, tick_end=4321))
            text = serve_site(Site(databases=[database])).get("/").text
            assert "up to tick 4,321" in text and "files-of-the-producer" in text

    def test_a_look_is_drawn_once_for_all(self, run_site: Site, indexed: Any) -> None:
        watch, drawn = Live(run_site).watch(indexed.RUN_ID), []

        def draw(flow: pipeline.Flow) -> str:
            drawn.append(flow)
            return str(len(drawn))

        assert [watch.drawn(draw) for _ in range(50)] == ["1"] * 50

    def test_a_live_page_sends_what_it_shows(self, pages: httpx.Client) -> None:
        with pages.stream("GET", "/live/overview") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            event = next(answer.iter_text())
        assert event.startswith("data: ") and "environment_data" in event and "<svg" in event

    def test_a_database_that_is_away_is_a_line_on_the_page(self, tmp_path: Path, run_site: Site, indexed: Any) -> None:
        away = Database("postgresql://nobody@127.0.0.1:9/none")
        flow = Live(Site(lake=run_site.lake, databases=[away])).watch(indexed.RUN_ID).flow()
        assert len(flow.errors) == 1
        assert {table.name for table in flow.glance.tables} >= {"environment_data", "organism_data"}
        assert (flow.lag_messages, flow.lag_seconds, flow.glance.dead_letters) == (None, None, None)

    @pytest.mark.parametrize("is_damaged", [True, False])
    def test_a_database_that_fails_does_not_deny_the_tables(
        self, tmp_path: Path, run_site: Site, indexed: Any, serve_site: Serve, is_damaged: bool
    ) -> None:
        url = f"sqlite:///{tmp_path / 'database'}" if is_damaged else "postgresql://nobody@127.0.0.1:9/none"
        if is_damaged:
            with Database(url) as database, database.run(indexed.RUN_ID).writer("batch-topic") as writer:
                writer.send(BatchInfo(simulation_run_id=indexed.RUN_ID, tick_start=0, tick_end=9))
            (file,) = (tmp_path / "database").glob("*.sqlite")
            data = bytearray(file.read_bytes())
            data[4096:8192] = b"\xff" * 4096
            file.write_bytes(data)
        with Database(url) as database:
            client = serve_site(Site(lake=run_site.lake, databases=[database]))
            for path in (f"/?run={indexed.RUN_ID}", "/"):
                text = client.get(path).text
                assert 'role="alert"' in text and "environment_data" in text
                for denial in ("No table yet", "none yet", "nothing announced yet", "no new ticks"):
                    assert denial not in text
            assert client.get(f"/tables?run={indexed.RUN_ID}").status_code == 200
            assert client.get("/?run=20200101-000000-00000000").status_code == (404 if is_damaged else 503)


GROUP = GroupReport("batch-topic", "environment-indexer", 3, 1, 0, 4.0)
TABLE = TableReport("environment_data", 100, 2, 1000, TickRange(0, 79))


def flow(**changes: Any) -> pipeline.Flow:
    glance = Glance("run", 1.0, [TABLE], [GROUP], [GapsReport("EnvironmentIndexer", 2, 1, 9.0)])
    announced = Announcement("batch-topic", TickRange(80, 99), 1.5)
    return pipeline.Flow(glance, announced, {"environment_data": 50.0}, 10.0, None, **changes)


def test_the_figures_of_a_flow_are_those_of_its_worst_part() -> None:
    one = flow()
    assert (one.lag_messages, one.lag_ticks, one.lag_seconds, one.rows_per_second, one.glance.missing) == (
        3,
        20,
        4.0,
        50.0,
        3,
    )


def test_what_one_table_lacks_says_nothing_of_another_that_was_not_looked_through() -> None:
    looked_at, broken = replace(TABLE, missing=0), TableReport("organism_data", error="It cannot be read.")
    metadata = TableReport("metadata", 6, 1, 100)
    for tables, missing in (
        ([looked_at, metadata], 0),
        ([looked_at, TABLE], None),
        ([looked_at, broken], None),
        ([replace(TABLE, missing=2), TABLE], 2),
        ([], None),
    ):
        assert Glance("run", 1.0, tables, [], []).missing == missing


def test_a_drawing_has_every_stage_and_nothing_outside() -> None:
    columns = pipeline.stages(flow())
    for drawing in (pipeline.drawn_wide(columns), pipeline.drawn_tall(columns)):
        assert [box.stage.kind for box in drawing.boxes] == ["simulation", "storage", "topic", "indexer", "table"]
        assert all(box.x + box.width <= drawing.width and box.y + box.height <= drawing.height for box in drawing.boxes)
        assert len(drawing.pipes) == 4


def test_tables_lie_beside_those_who_write_them_and_pipes_do_not_cross() -> None:
    groups = [GroupReport("batch-topic", name, 0, 0, 0, None) for name in ("audit", "environment-indexer")]
    tables = [TABLE, TableReport("metadata", 6, 1, 100)]
    seen = pipeline.Flow(Glance("run", 1.0, tables, groups, []), None, {}, None, None)
    *_, indexers, written = pipeline.stages(seen)
    assert [one.name for one in indexers] == ["audit", "environment-indexer"]
    assert [one.name for one in written] == ["metadata", "environment_data"]


def test_a_pipe_leads_from_a_topic_to_those_who_read_it() -> None:
    read = {
        "environment-indexer": "batch-topic",
        "organism-indexer": "batch-topic",
        "metadata-indexer": "metadata-topic",
    }
    groups = [GroupReport(topic, name, 0, 0, 0, None) for name, topic in read.items()]
    announced = Announcement("batch-topic", TickRange(80, 99), 1.5)
    seen = pipeline.Flow(Glance("run", 1.0, [TABLE], groups, []), announced, {}, 10.0, None)
    columns = pipeline.stages(seen)
    assert [(one.name, one.flows) for one in columns[2]] == [("batch-topic", True), ("metadata-topic", False)]
    drawing = pipeline.drawn_wide(columns)
    y = {box.stage.name: box.y + box.height // 2 for box in drawing.boxes}
    pipes = [pipe.path.partition(" ")[2] for pipe in drawing.pipes]
    leads = {
        (name, topic)
        for name in read
        for topic in ("batch-topic", "metadata-topic")
        if any(pipe.startswith(f"{y[topic]}C") and pipe.endswith(f" {y[name]}") for pipe in pipes)
    }
    assert leads == set(read.items())


def test_a_table_without_rows_is_not_said_to_be_up_to_date() -> None:
    empty = replace(flow().glance, tables=[TableReport("environment_data", 0, 0, 0)])
    *_, (table,) = pipeline.stages(replace(flow(), glance=empty, rates={}))
    assert (table.figures, table.state) == (("no rows yet",), "idle")


class TestMaps:
    def test_a_map_of_a_million_ranges_stays_small(self) -> None:
        whole = TickRange(0, 9_999_999)
        many = Ranges([TickRange(start, start + 4) for start in range(0, 10_000_000, 10)])
        assert len(many) == 1_000_000
        assert len(many.stripes("covered", whole, 1)) <= 2000
        assert many.stripes("covered", whole, 1)[0].x == 0
        near = many.stripes("covered", TickRange(5_000_000, 5_000_019), 1)
        assert [(one.x, one.width) for one in near] == [(0, 250), (500, 250)]
        assert many.stripes("covered", TickRange(5, 9), 1) == []

    def test_the_smallest_hole_can_be_seen(self) -> None:
        (hole,) = Ranges([TickRange(5, 5)]).stripes("lost", TickRange(0, 9_999_999), 1)
        assert hole.width == 1

    def test_a_run_without_ranges_has_an_empty_map(self) -> None:
        assert Ranges([]).stripes("lost", TickRange(0, 9), 1) == []

    @pytest.mark.parametrize(("start", "end"), [(0, 999), (0, 0), (400, 500), (998, 999), (0, 1)])
    def test_wherever_one_zooms_one_stays_in_the_run(self, start: int, end: int) -> None:
        for _, _, ticks in completeness.zooming(TickRange(start, end), TickRange(0, 999)):
            assert ticks and ticks.within(TickRange(0, 999)) == ticks

    def test_whoever_zooms_is_shown_what_was_found_before(self, pages: httpx.Client) -> None:
        links = re.findall(r'href="(/completeness[^"]*from=[^"]*)"', pages.get("/completeness?from=20&to=80").text)
        assert len(links) == 4
        for link in links:
            assert 'class="covered"' in pages.get(link.replace("&amp;", "&")).text


def test_one_look_is_shared_and_a_slow_one_is_good_for_longer() -> None:
    now, looks = [0.0], []

    def look() -> int:
        now[0] += 3.0
        looks.append(now[0])
        return len(looks)

    sampler = Sampler(look, 2.0, clock=lambda: now[0])
    assert [sampler.latest(), sampler.latest()] == [1, 1]
    now[0] += 29.0
    assert sampler.latest() == 1
    now[0] += 1.0
    assert sampler.latest() == 2


def test_a_look_that_failed_is_taken_again() -> None:
    answers = [OSError("away"), 7]

    def look() -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    sampler = Sampler(look, 2.0)
    with pytest.raises(OSError, match="away"):
        sampler.latest()
    assert sampler.latest() == 7


def test_the_runs_that_nobody_asked_for_longest_make_room() -> None:
    made = PerRun(lambda run_id: [run_id], most=2)
    first = made["a"]
    assert made["b"] == ["b"] and made["a"] is first and made["c"] == ["c"]
    assert made["a"] is first and made["b"] == ["b"]


CSS = Path(rendering.__file__).parent / "static" / "ticklake.css"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", CSS.read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme]))
    inks = ["ink", "quiet", "accent", "ok", "warn", "error"]
    pairs = [(ink, ground) for ink in inks for ground in ("card", "ground")] + [
        ("on-accent", "accent"),
        ("ink", "soft"),
    ]
    for ink, ground in [*pairs, ("accent", "soft"), ("quiet", "soft")]:
        light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{ink} on {ground}"


def test_a_table_whose_rows_are_not_known_is_not_called_empty() -> None:
    unknown, empty = TableReport("cells"), TableReport("cells", rows=0)
    flow = pipeline.Flow(Glance("run", 0.0, [unknown], [], []), None, {}, None, None)
    assert pipeline._table(unknown, flow).figures[0] == f"{rendering.UNKNOWN} rows"
    assert pipeline._table(empty, flow).figures == ("no rows yet",)
