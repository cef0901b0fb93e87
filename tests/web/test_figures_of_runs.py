"""What metrics, `top`, the overview and alert rules say of all runs of a database, against plain SQL on every file."""

from __future__ import annotations

import json
import operator
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from stories import PlainSql, shown_rows

from ticklake.cli import cli
from ticklake.config import load
from ticklake.consumer import Outbox, Relay
from ticklake.contracts import BatchInfo
from ticklake.coordination import Coordinator, FoundFile
from ticklake.insights import WORST
from ticklake.node.node import Node
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.web.site import Site

pytestmark = pytest.mark.warns("DEAD_LETTER", "Permanent gap")
ALERTS = Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yml"
DAY_MS = 86_400_000
SHOWN = "20261120-120000-shown"
YESTERDAY = "20261119-120000-yesterday"

# The messages that a group has neither acknowledged nor set aside. A baton is no message.
OPEN = """
    SELECT {} FROM topic_messages AS m, topic_group_positions AS p
    WHERE m.topic_name = p.topic_name AND m.topic_name NOT LIKE 'outbox/%' AND NOT EXISTS (
        SELECT 1 FROM topic_consumer_group AS c
        WHERE c.topic_name = m.topic_name AND c.message_id = m.message_id AND c.consumer_group = p.consumer_group
          AND (c.acknowledged_at IS NOT NULL OR c.set_aside_at IS NOT NULL))
"""
UNREAD = """
    SELECT {} FROM topic_messages AS m
    WHERE m.topic_name NOT IN (SELECT topic_name FROM topic_group_positions)
"""


class Truth(NamedTuple):
    """The figures of one run, by SQL. `since` is when its oldest waiting message was stored, in milliseconds."""

    messages: int
    unread: int
    dead: int
    pending: int
    permanent: int
    since: int | None

    @classmethod
    def of(cls, plain: PlainSql) -> Truth:
        gaps = "SELECT name FROM sqlite_master WHERE name = 'coordinator_gaps'"
        has_gaps = bool(plain.rows(gaps))
        count = "SELECT count(*) FROM coordinator_gaps WHERE status = ?"
        pending, permanent = (plain.number(count, one) if has_gaps else 0 for one in ("pending", "permanent"))
        times = [row[0] for sql in (OPEN, UNREAD) for row in plain.rows(sql.format("min(m.created_at)"))]
        return cls(
            plain.number(OPEN.format("count(*)")),
            plain.number(UNREAD.format("count(*)")),
            plain.number("SELECT count(*) FROM topic_dead_letters"),
            pending,
            permanent,
            min((one for one in times if one is not None), default=None),
        )

    @property
    def has_work(self) -> bool:
        return any(self[:5])

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else time.time() - self.since / 1000


class Runs:
    """A database with many runs."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root, self.database = root, database

    def announce(self, run_id: str, count: int, *groups: str) -> None:
        run = self.database.run(run_id)
        with run.writer("batch-topic") as writer:
            writer.send_many([BatchInfo(simulation_run_id=run_id, tick_start=at) for at in range(count)])
        for group in groups:
            run.reader("batch-topic", group=group).close()

    def work(self, run_id: str, group: str, done: int, failed: int = 0) -> None:
        reader = self.database.run(run_id).reader("batch-topic", group=group, max_delivery_attempts=1)
        with reader:
            messages = reader.poll_many(done + failed, 5)
            assert all(reader.ack_many(messages[:done]))
            for message in messages[done:]:
                reader.fail(message, "broken")

    def age(self, run_id: str, ms: int) -> None:
        PlainSql.of(self.root, run_id).rows("UPDATE topic_messages SET created_at = created_at - ?", ms)

    def truth(self) -> dict[str, Truth]:
        found = {run_id: Truth.of(PlainSql.of(self.root, run_id)) for run_id in self.database.runs()}
        return {run_id: one for run_id, one in found.items() if one.has_work}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    root = tmp_path_factory.mktemp("runs")
    with Database(f"sqlite:///{root / 'database'}") as database:
        made = Runs(root, database)
        made.announce(SHOWN, 7, "environment-indexer", "organism-indexer")
        made.work(SHOWN, "environment-indexer", 3)
        made.announce(YESTERDAY, 65, "environment-indexer")
        made.announce("20261101-120000-done", 4, "environment-indexer")
        made.work("20261101-120000-done", "environment-indexer", 4)
        made.announce("20261102-120000-dead", 4, "environment-indexer")
        made.work("20261102-120000-dead", "environment-indexer", 2, 2)
        made.announce("20261103-120000-alone", 3)
        gappy = Coordinator(database.run("20261104-120000-gaps"), "EnvironmentIndexer", step=1)
        gappy.claim([FoundFile("a", TickRange(100, 199))], 1)
        gappy.make_permanent(0)
        gappy.claim([FoundFile("b", TickRange(300, 399))], 1)
        for number in range(WORST + 2):
            made.announce(f"20261105-120000-{number:04}", number + 1, "audit")
        _relay(database)
        made.age(YESTERDAY, DAY_MS)
        yield made


def _relay(database: Database) -> None:
    """An outbox that has sent everything. Its baton stays claimed or open for ever."""
    run = database.run("20261106-120000-relayed")
    outbox = Outbox(run, "results")
    with run.transaction() as transaction:
        outbox.add([outbox.result(f"{1:032x}", "g", 0, BatchInfo(tick_start=1))], transaction)
    with Relay(run, "results") as relay:
        assert relay.relay() == 1
    run.reader("results", group="reader").close()
    with run.reader("results", group="reader") as reader:
        assert reader.ack(reader.poll(5))


@pytest.fixture
def node(runs: Runs, tmp_path: Path) -> Iterator[Node]:
    file = tmp_path / "node.conf"
    file.write_text(
        f"""
        resources {{
          index-database {{ class = Database, url = "{runs.database.url}" }}
          batch-topic {{ class = Topic, database = index-database }}
          tick-storage {{ class = Storage, path = "{tmp_path / "storage"}" }}
          lake {{ class = Lake, path = "{tmp_path / "lake"}" }}
        }}
        services {{ environment-indexer {{
          resources {{ batch-in = "topic-read:batch-topic?consumerGroup=environment-indexer" }}
          options {{ run_id = {SHOWN} }}
        }} }}
        """
    )
    made = Node(load(file))
    yield made
    assert made.stop(60)


def samples(client: httpx.Client) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of all metrics, by run, topic and group."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for one in family.samples:
            labels = sorted(one.labels, key=lambda label: {"run": 0, "topic": 1, "group": 2}.get(label, 3))
            found.setdefault(one.name, {})[tuple(one.labels[label] for label in labels)] = one.value
    return found


def test_metrics_have_the_totals_of_all_runs(runs: Runs, node: Node, serve: Callable[..., httpx.Client]) -> None:
    truth = runs.truth()
    assert len(truth) > WORST + 2 and truth[YESTERDAY][:2] == (65, 0)
    found = {name: values[()] for name, values in samples(serve(node)).items() if name.startswith("ticklake_backlog_")}
    oldest = found.pop("ticklake_backlog_oldest_age_seconds")
    assert found == {
        "ticklake_backlog_files": 0,
        "ticklake_backlog_ticks": 0,
        "ticklake_backlog_messages": sum(one.messages for one in truth.values()),
        "ticklake_backlog_unread_messages": sum(one.unread for one in truth.values()),
        "ticklake_backlog_dead_letters": sum(one.dead for one in truth.values()),
        "ticklake_backlog_gaps_pending": sum(one.pending for one in truth.values()),
        "ticklake_backlog_gaps_permanent": sum(one.permanent for one in truth.values()),
        "ticklake_backlog_runs": len(truth),
        "ticklake_backlog_runs_unreadable": 0,
        "ticklake_backlog_runs_unchecked": 0,
    }
    assert all(found[f"ticklake_backlog_{name}"] for name in ("unread_messages", "dead_letters", "gaps_permanent"))
    assert oldest == pytest.approx(max(one.seconds for one in truth.values()), abs=30)


def test_metrics_name_the_own_run_and_the_worst_others_and_no_more(
    runs: Runs, node: Node, serve: Callable[..., httpx.Client]
) -> None:
    truth, found = runs.truth(), samples(serve(node))
    lags, gaps = found["ticklake_group_lag"], found["ticklake_run_gaps_pending"]
    named = [run_id for (run_id,) in gaps]
    assert len(named) == WORST + 1 and {run_id for run_id, *_ in lags} <= set(named)
    worst = sorted(truth, key=lambda run_id: truth[run_id].seconds, reverse=True)
    assert set(named) == {SHOWN, *[one for one in worst if one != SHOWN][:WORST]}
    for (run_id,), pending in gaps.items():
        one = truth[run_id]
        assert pending == one.pending
        assert found["ticklake_run_gaps_permanent"][(run_id,)] == one.permanent
        assert found["ticklake_run_unread_messages"][(run_id,)] == one.unread
        assert sum(lag for (run, *_), lag in lags.items() if run == run_id) == one.messages
    assert not any(group == "relay" for *_, group in lags), "the baton of an outbox is no message"


COMPARISONS = {">": operator.gt, "==": operator.eq}


def fires(expression: str, found: dict[str, dict[tuple[str, ...], float]]) -> bool:
    name, sign, limit = expression.split()
    return any(COMPARISONS[sign](value, float(limit)) for value in found.get(name, {}).values())


def test_alerts_fire_for_a_run_of_yesterday_that_nobody_reads(
    runs: Runs, node: Node, serve: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    wanted = {rule["alert"]: rule["expr"] for rule in rules if re.fullmatch(r"\w+ (>|==) \d+", rule["expr"])}
    found = samples(serve(node))
    firing = {name for name, expression in wanted.items() if fires(expression, found)}
    assert firing >= {
        "TickLakeGroupBehind",
        "TickLakeRunsBehind",
        "TickLakeRunsWithoutReader",
        "TickLakeDeadLettersOfRuns",
        "TickLakeGapsOfRuns",
    }
    assert not firing & {"TickLakeRunsUnreadable", "TickLakeRunsUnchecked", "TickLakeStoreDown"}
    ages = found["ticklake_group_oldest_age_seconds"]
    assert ages[YESTERDAY, "batch-topic", "environment-indexer"] > 86_000


def top(runs: Runs, *options: str) -> str:
    done = CliRunner().invoke(cli, ["top", SHOWN, "--once", "--database", runs.database.url, *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_top_names_the_other_runs_with_work(runs: Runs) -> None:
    truth = {run_id: one for run_id, one in runs.truth().items() if run_id != SHOWN}
    others = json.loads(top(runs, "--json"))["other_runs"]
    assert (others["runs"], others["runs_unchecked"], others["unreadable"]) == (len(truth), 0, [])
    figures: dict[str, Callable[[Truth], Any]] = {
        "messages": lambda one: one.messages,
        "unread_messages": lambda one: one.unread,
        "dead_letters": lambda one: one.dead,
        "gaps_pending": lambda one: one.pending,
        "gaps_permanent": lambda one: one.permanent,
    }
    for name, figure in figures.items():
        assert others[name] == sum(map(figure, truth.values())), name
        assert [one[name] for one in others["worst"]] == [figure(truth[one["run_id"]]) for one in others["worst"]]
    assert len(others["worst"]) == WORST and others["worst"][0]["run_id"] == YESTERDAY
    assert others["oldest_seconds"] == others["worst"][0]["oldest_seconds"] == pytest.approx(86_400, abs=600)
    rows = shown_rows(top(runs))
    assert [YESTERDAY, "65", "0", "0", "1.0 d", "0", "0"] in rows
    gaps = sum(one.pending + one.permanent for one in truth.values())
    counts = [sum(one[at] for one in truth.values()) for at in (0, 1, 2)]
    total = [f"all {len(truth)} runs", str(counts[0]), str(counts[1]), "0", "1.0 d", str(counts[2]), str(gaps)]
    assert total in rows


def test_the_overview_names_the_other_runs_with_work(runs: Runs, serve_site: Callable[..., httpx.Client]) -> None:
    truth = {run_id: one for run_id, one in runs.truth().items() if run_id != SHOWN}
    client = serve_site(Site(databases=[runs.database]))
    answer = client.get("/", params={"run": SHOWN})
    page = " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())
    assert f"Other runs with work {len(truth)} runs, the 5 with the oldest messages" in page
    assert f"{YESTERDAY} 65 0 0 1 d 0 0" in page
    assert f'href="/?run={YESTERDAY}"' in answer.text
    counts = [sum(one[at] for one in truth.values()) for at in (0, 1, 2)]
    gaps = sum(one.pending + one.permanent for one in truth.values())
    assert f" all {counts[0]} {counts[1]} 0 1 d {counts[2]} {gaps} " in page
    assert client.get("/", params={"run": YESTERDAY}).text.count(SHOWN) >= 1


def test_a_database_with_one_run_has_no_list_of_others(tmp_path: Path, serve_site: Callable[..., httpx.Client]) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        Runs(tmp_path, database).announce(SHOWN, 7, "environment-indexer")
        page = serve_site(Site(databases=[database])).get("/", params={"run": SHOWN}).text
        assert "Other runs with work" not in page
        done = CliRunner().invoke(cli, ["top", SHOWN, "--once", "--database", database.url])
        assert "other runs" not in done.stdout


@pytest.mark.warns("is damaged")
def test_a_run_that_cannot_be_read_is_said_and_not_counted(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        Runs(tmp_path, database).announce(SHOWN, 7, "environment-indexer")
        (tmp_path / "database" / "SIM_BROKEN.sqlite").write_bytes(b"this is no database, it is only a text" * 200)
        page = serve_site(Site(databases=[database])).get("/", params={"run": SHOWN}).text
        assert "1 runs cannot be read, for example: " in page and "SIM_BROKEN.sqlite" in page
        done = CliRunner().invoke(cli, ["top", SHOWN, "--once", "--database", database.url], env={"COLUMNS": "300"})
        assert "1 runs cannot be read, for example: " in done.stdout
