"""A run with a backlog, held claims and dead letters: what commands, pages and metrics say of it, against plain SQL."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import stories
from prometheus_client.parser import text_string_to_metric_families
from stories import Life, PlainSql, Story, Told, shown_rows

from ticklake.config import load
from ticklake.contracts import BatchInfo, RunCompleted
from ticklake.node.node import Node
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.web.site import Site

pytestmark = pytest.mark.warns("DEAD_LETTER")

HOUR_MS = 3_600_000
STORY = Story("backlog", 1, [TickRange(at, at + 9) for at in range(0, 30, 10)], [Life(1, None, 0), Life(2, 1, 5, 8)])
LATER = [TickRange(at, at + 9) for at in range(30, 70, 10)]
OTHER = "20261014-143026-other"
GROUPS = ("audit", "environment-indexer", "organism-indexer")

CLAIMED = "claimed_by IS NOT NULL AND acknowledged_at IS NULL AND set_aside_at IS NULL"
# A group still has to do what it has neither acknowledged nor set aside.
OPEN = """
    SELECT {} FROM topic_messages AS m WHERE m.topic_name = 'batch-topic' AND NOT EXISTS (
        SELECT 1 FROM topic_consumer_group AS c
        WHERE c.topic_name = m.topic_name AND c.message_id = m.message_id AND c.consumer_group = ?1
          AND (c.acknowledged_at IS NOT NULL OR c.set_aside_at IS NOT NULL))
"""
GROUP = f"""
    SELECT ({OPEN.format("count(*)")}),
           (SELECT count(*) FROM topic_consumer_group WHERE consumer_group = ?1 AND {CLAIMED}),
           (SELECT count(*) FROM topic_dead_letters WHERE consumer_group = ?1),
           ({OPEN.format("min(m.created_at)")})
"""


class Group(NamedTuple):
    """The figures of a group, by SQL; `since` is when its oldest open message was stored, in milliseconds."""

    lag: int
    claimed: int
    dead: int
    since: int

    @property
    def hours(self) -> int:
        return round((time.time() * 1000 - self.since) / HOUR_MS)


class Plain(PlainSql):
    """The file of a run."""

    def __init__(self, root: Path, run_id: str = STORY.run_id) -> None:
        super().__init__(PlainSql.of(root, run_id).file)

    def group(self, name: str) -> Group:
        (row,) = self.rows(GROUP, name)
        return Group(*row)


def announce(database: Database, run_id: str, files: list[TickRange]) -> None:
    with database.run(run_id).writer("batch-topic") as writer:
        for first, last in files:
            key = f"{run_id}/batch_{first:010d}_{last:010d}.pb"
            writer.send(BatchInfo(simulation_run_id=run_id, storage_key=key, tick_start=first, tick_end=last))


def fall_behind(database: Database, root: Path, opened: ExitStack) -> None:
    """Three groups, each behind in its own way, and another run with dead letters. The claims last as `opened` does."""
    run = database.run(STORY.run_id)
    with run.writer("run-topic") as writer:
        writer.send_many([RunCompleted(simulation_run_id=STORY.run_id, last_tick=at) for at in (69, 70)])
    _hold(database, opened)
    with run.reader("batch-topic", group="organism-indexer", max_delivery_attempts=1) as organisms:
        broken, later = organisms.poll_many(2, 5)
        assert organisms.fail(broken, ValueError("no such file"))
        assert all(organisms.release([later], delay=3600))
    with run.reader("batch-topic", group="audit", max_delivery_attempts=2) as audit:
        for reason in ("cannot be read", "cannot be read", "cannot be written", "cannot be written"):
            message = audit.poll(5)
            assert message is not None
            audit.fail(message, reason)
        fine = audit.poll(5)
        assert fine is not None and audit.ack(fine)
    announce(database, OTHER, LATER)
    with database.run(OTHER).reader("batch-topic", group="audit", max_delivery_attempts=1) as other:
        for message in other.poll_many(3, 5):
            other.fail(message, "nobody there")
    _age(root)


def _hold(database: Database, opened: ExitStack) -> None:
    """Claims that last for three hours, for ever, and that have expired."""
    run, topic = database.run(STORY.run_id), "batch-topic"
    for group, consumer, timeout, count in (
        ("environment-indexer", "leased", 3 * 3600, 2),
        ("environment-indexer", "unending", 0, 1),
        ("audit", "expired", 300, 2),
    ):
        reader = run.reader(topic, group=group, consumer=consumer, claim_timeout=timeout)
        opened.enter_context(reader)
        assert len(reader.poll_many(count, 5)) == count


def _age(root: Path) -> None:
    """Every message is an hour older than the next; some claims are old, and the dead letters of the runs alternate."""
    mine, other = Plain(root), Plain(root, OTHER)
    mine.rows("UPDATE topic_messages SET created_at = created_at - (20 - id) * ?", HOUR_MS)
    for consumer, minutes in (("leased", 10), ("unending", 20), ("expired", 40)):
        change = (
            "UPDATE topic_consumer_group SET claimed_at = claimed_at - ?1, since = since - ?1 WHERE claimed_by = ?2"
        )
        mine.rows(change, minutes * 60_000, consumer)
    mine.rows("UPDATE topic_consumer_group SET lease_until = claimed_at WHERE claimed_by = 'expired'")
    for plain, hours in ((mine, (9, 7, 5)), (other, (8, 6, 4))):
        letters = plain.rows("SELECT consumer_group, message_id FROM topic_dead_letters ORDER BY id, consumer_group")
        for (group, message), ago in zip(letters, hours, strict=True):
            change = "UPDATE topic_dead_letters SET dead_at = dead_at - ? WHERE consumer_group = ? AND message_id = ?"
            plain.rows(change, ago * HOUR_MS, group, message)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    """Files of seventy ticks; the tables have the first thirty."""
    root = tmp_path_factory.mktemp("backlog")
    with Database(stories.write(STORY, root)) as database, ExitStack() as opened:
        for ticks in LATER:
            stories.write_file(STORY, root, ticks)
        announce(database, STORY.run_id, LATER)
        fall_behind(database, root, opened)
        yield root, database


@pytest.fixture
def told(written: tuple[Path, Database], serve_site: Callable[..., httpx.Client]) -> Told:
    root, database = written
    site = Site(Storage(root / "storage"), root / "lake", [database])
    return Told(STORY, root, database.url, serve_site(site))


@pytest.fixture
def own(tmp_path: Path, serve_site: Callable[..., httpx.Client]) -> Iterator[Told]:
    """The same topics without files and tables, for those who change something."""
    with Database(f"sqlite:///{tmp_path / 'database'}") as database, ExitStack() as opened:
        announce(database, STORY.run_id, [*STORY.files, *LATER])
        for group in ("environment-indexer", "organism-indexer"):
            with database.run(STORY.run_id).reader("batch-topic", group=group) as reader:
                assert all(reader.ack_many(reader.poll_many(3, 5)))
        fall_behind(database, tmp_path, opened)
        yield Told(STORY, tmp_path, database.url, serve_site(Site(databases=[database])))


def check_age(shown: float, since: int, before: float) -> None:
    """An age lies between those at the beginning and at the end of a look."""
    assert before * 1000 - since - 1 <= shown * 1000 <= time.time() * 1000 - since + 1


def iso(ms: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000))}.{ms % 1000:03}Z"


def clock(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 1000))


def test_the_backlog_is_what_it_should_be(told: Told) -> None:
    """Else the tests below would compare nothing with nothing."""
    found = {name: Plain(told.root).group(name)[:3] for name in GROUPS}
    assert found == {"audit": (4, 2, 2), "environment-indexer": (4, 3, 0), "organism-indexer": (3, 0, 1)}


def test_topics_are_counted(told: Told) -> None:
    plain = Plain(told.root)
    status = "SELECT count(*), min(created_at), max(created_at) FROM topic_messages WHERE topic_name = ?"
    found = {one["topic"]: one for one in told.json("topics", "--run", STORY.run_id, places="d")}
    page, text = told.page("/topics"), shown_rows(told.command("topics", "--run", STORY.run_id, places="d"))
    assert list(found) == ["batch-topic", "run-topic"]
    for topic, groups in (("batch-topic", 3), ("run-topic", 0)):
        ((messages, first, last),) = plain.rows(status, topic)
        one = found[topic]
        assert (one["messages"], one["groups"]) == (messages, groups)
        assert (one["first_at"], one["last_at"]) == (iso(first), iso(last))
        assert [STORY.run_id, topic, str(messages), str(groups), clock(first), clock(last)] in text
        assert f"{topic} {messages} {groups} {clock(first)} {clock(last)}" in page
    states = [line["state"] for line in _tail(told, "--group", "audit", "-n", "9")]
    assert [states.count(state) for state in ("acknowledged", "set aside", "claimed", "new")] == [1, 2, 2, 2]
    ticks = [
        (int(one["payload"].get("tickStart", 0)), int(one["payload"]["tickEnd"])) for one in _tail(told, "-n", "9")
    ]
    assert ticks == [tuple(one) for one in (*STORY.files, *LATER)]


def _tail(told: Told, *options: str) -> list[dict[str, Any]]:
    text = told.command("topics", "tail", "batch-topic", "--run", STORY.run_id, "--json", *options, places="d")
    return [json.loads(line) for line in text.splitlines()]


def test_groups_are_counted_by_every_command(told: Told) -> None:
    plain, before = Plain(told.root), time.time()
    truth = {name: plain.group(name) for name in GROUPS}
    groups = told.json("groups", "--run", STORY.run_id, places="d")
    assert {one["group"]: (one["lag"], one["claimed"], one["dead_letters"]) for one in groups} == {
        name: one[:3] for name, one in truth.items()
    }
    for one in groups:
        check_age(one["oldest_seconds"], truth[one["group"]].since, before)
    reports = [told.json("status", STORY.run_id), told.json("top", STORY.run_id, "--once")]
    reports.append(told.json("verify", STORY.run_id, codes=(0, 1, 2, 3))["messages"])
    reports += [one for one in told.json("runs") if one["run_id"] == STORY.run_id]
    assert len(reports) == 4
    for report in reports:
        for one in report["groups"]:
            group = truth[one["group"]]
            assert (one["lag"], one["claimed"], one["dead_letters"]) == group[:3]
            check_age(one["oldest_seconds"], group.since, before)
    listed, status = told.command("groups", "--run", STORY.run_id, places="d"), told.command("status", STORY.run_id)
    top = told.command("top", STORY.run_id, "--once")
    for name, group in truth.items():
        lag, claimed, dead, hours = map(str, (*group[:3], f"{group.hours}.0 h"))
        assert [STORY.run_id, "batch-topic", name, lag, hours, claimed, dead] in shown_rows(listed)
        (row,) = [row for row in shown_rows(status) if row[:2] == ["batch-topic", name]]
        assert row[2:5] == [lag, claimed, dead] and round(float(row[5]) / 3600) == group.hours
        assert [name, "batch-topic", lag, hours, claimed, dead] in shown_rows(top)
    assert f"{sum(one.dead for one in truth.values())} dead letters" in top
    assert told.json("top", STORY.run_id, "--once")["dead_letters"] == sum(one.dead for one in truth.values())


def test_groups_are_counted_on_their_page_and_in_the_metrics(
    told: Told, serve: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    page, plain, before = told.page("/topics"), Plain(told.root), time.time()
    file = tmp_path / "node.conf"
    file.write_text(
        f"""
        resources {{
          index-database {{ class = Database, url = "{told.url}" }}
          batch-topic {{ class = Topic, database = index-database }}
          tick-storage {{ class = Storage, path = "{told.root / "storage"}" }}
          lake {{ class = Lake, path = "{told.root / "lake"}" }}
        }}
        services {{ environment-indexer {{
          resources {{ batch-in = "topic-read:batch-topic?consumerGroup=environment-indexer" }}
          options {{ run_id = {STORY.run_id} }}
        }} }}
        """
    )
    node = Node(load(file))
    families = text_string_to_metric_families(serve(node).get("/metrics").text)
    metrics = [sample for family in families for sample in family.samples]
    for name in GROUPS:
        group = plain.group(name)
        assert f"batch-topic {name} {group.lag} {group.hours} h {group.claimed} {group.dead} " in page
        labels = {"run": STORY.run_id, "topic": "batch-topic", "group": name}
        shown = {one.name.removeprefix("ticklake_group_"): one.value for one in metrics if one.labels == labels}
        assert [shown[one] for one in ("lag", "claimed", "dead_letters")] == list(group[:3])
        check_age(shown["oldest_age_seconds"], group.since, before)
    assert node.stop(60)


def test_claims_are_listed_with_their_ages(told: Told) -> None:
    plain, before = Plain(told.root), time.time()
    sql = f"""
        SELECT consumer_group, message_id, claimed_by, claim_version, attempts, claimed_at, lease_until
        FROM topic_consumer_group WHERE {CLAIMED} ORDER BY claimed_at, id
    """
    truth = plain.rows(sql)
    assert len(truth) == sum(plain.group(name).claimed for name in GROUPS) == 5
    found = told.json("claims", "--run", STORY.run_id, places="d")
    names = ("group", "message_id", "consumer", "version", "attempts")
    assert [tuple(one[name] for name in names) for one in found] == [row[:5] for row in truth]
    text, page = told.command("claims", "--run", STORY.run_id, places="d"), told.page("/topics")
    for one, (group, message, consumer, _, attempts, claimed_at, lease_until) in zip(found, truth, strict=True):
        check_age(one["age_seconds"], claimed_at, before)
        if lease_until is None:
            assert one["expires_in_seconds"] is None
        else:
            check_age(-one["expires_in_seconds"], lease_until, before)
        minutes = {"leased": 10, "unending": 20, "expired": 40}[consumer]
        left = {"leased": "3.0 h", "unending": "never", "expired": "expired"}[consumer]
        held = [f"{count} min" for count in range(minutes, minutes + 6)]  # the story was told a while ago
        rows = [[STORY.run_id, "batch-topic", group, message, consumer, one, left, str(attempts)] for one in held]
        assert any(row in shown_rows(text) for row in rows)
        shown = [f"{group} {message} {consumer} {one} {left.replace('.0', '')} {attempts} " for one in held]
        assert any(one in page for one in shown)
    stuck = told.json("claims", "--run", STORY.run_id, "--stuck", places="d")
    assert [one["consumer"] for one in stuck] == ["expired", "expired", "unending"]


def letters_of(told: Told, *run_ids: str) -> list[tuple[Any, ...]]:
    """Run, group, message, attempts, when and why, the oldest first."""
    sql = "SELECT consumer_group, message_id, attempts, dead_at, error FROM topic_dead_letters"
    found = [(run_id, *row) for run_id in run_ids for row in Plain(told.root, run_id).rows(sql)]
    return sorted(found, key=lambda row: int(row[4]))


NAMES = ("run", "group", "message_id", "attempts", "dead_at", "error")


def test_dead_letters_are_listed_and_counted(told: Told) -> None:
    mine, both = letters_of(told, STORY.run_id), letters_of(told, STORY.run_id, OTHER)
    assert (len(mine), len(both)) == (3, 6)
    for truth, options in ((mine, ("--run", STORY.run_id)), (both, ()), (both[:2], ("--limit", "2"))):
        found = told.json("dead-letters", "list", *options, places="d")
        assert [tuple(one[name] for name in NAMES) for one in found] == [
            (*row[:4], iso(row[4]), row[5]) for row in truth
        ]
        text = shown_rows(told.command("dead-letters", "list", *options, places="d"))
        shown = [
            [run, "batch-topic", group, message, str(attempts), clock(at), error]
            for run, group, message, attempts, at, error in truth
        ]
        assert [row for row in text if row[0] in (STORY.run_id, OTHER)] == shown
    _, group, message, attempts, at, error = mine[0]
    (one,) = told.json("dead-letters", "show", message, "--group", group, "--run", STORY.run_id, places="d")
    assert tuple(one[name] for name in NAMES[1:]) == (group, message, attempts, iso(at), error)
    shown_one = told.command("dead-letters", "show", message, "--group", group, "--run", STORY.run_id, places="d")
    assert f"attempts: {attempts}\n" in shown_one and f"dead_at: {iso(at)}\n" in shown_one


def test_dead_letters_have_a_page_with_their_reasons(told: Told) -> None:
    letters, page = letters_of(told, STORY.run_id), told.page("/dead-letters")
    assert f"Reasons of {len(letters)} " in page and f" {len(letters)} dead letters " in page
    reasons = [error for *_, error in letters]
    for reason in set(reasons):
        assert f" {reason} {reasons.count(reason)} " in page
    for _, group, message, attempts, at, error in letters:
        assert f"{clock(at)} batch-topic {group} {attempts} {error} Message {message} " in page
    answer = told.client.get("/dead-letters", params={"run": STORY.run_id, "group": "audit"})
    assert f"<h2>{sum(row[1] == 'audit' for row in letters)} dead letters</h2>" in answer.text


def test_dead_letters_are_counted_beyond_those_that_a_page_shows(
    tmp_path: Path, serve_site: Callable[..., httpx.Client]
) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        with database.run(STORY.run_id).writer("batch-topic") as writer:
            writer.send_many([BatchInfo(simulation_run_id=STORY.run_id, tick_start=at) for at in range(1200)])
        told = Told(STORY, tmp_path, database.url, serve_site(Site(databases=[database])))
        database.run(STORY.run_id).reader("batch-topic", group="audit").close()
        Plain(tmp_path).rows(
            "INSERT INTO topic_dead_letters SELECT topic_name, 'audit', message_id, id, envelope, 1,"
            " iif(id % 3, 'often', 'seldom'), '', id FROM topic_messages"
        )
        page = told.page("/dead-letters")
        assert "Reasons of 1,000 often 667 seldom 333 1,200 dead letters the first 50 " in page
        assert "1,200 dead letters, most of them in run" in told.command("doctor", places="d", codes=(0, 1))


def test_the_doctor_counts_runs_claims_and_dead_letters(told: Told) -> None:
    runs = [Plain(told.root, run_id) for run_id in (STORY.run_id, OTHER)]
    dead = [one.number("SELECT count(*) FROM topic_dead_letters") for one in runs]
    late = f"{CLAIMED} AND coalesce(lease_until, claimed_at + 300000) < ?"
    count = f"SELECT count(*) FROM topic_consumer_group WHERE {late}"
    stuck = [one.number(count, time.time() * 1000) for one in runs]
    assert (dead, stuck) == ([3, 3], [3, 0])
    findings = told.json("doctor", codes=(0, 1))
    messages = {one["check"]: one["message"] for one in findings}
    assert f"it has {len(runs)} runs" in messages["database"]
    assert f": {sum(dead)} dead letters, " in messages["dead letters"]
    assert f": {sum(stuck)} messages claimed by a consumer" in messages["stuck claims"]
    details = {one["check"]: one["details"] for one in findings}
    assert details["dead letters"] == [f"{STORY.run_id}: 3", f"{OTHER}: 3"]
    assert details["stuck claims"] == [f"{STORY.run_id}: 3"]
    text = told.command("doctor", codes=(0, 1))
    page = " ".join(re.sub(r"<[^>]*>", " ", told.client.get("/system/doctor").text).split())
    for check in ("database", "dead letters", "stuck claims"):
        assert f"{check:<15} {messages[check]}" in text and f"{check} {messages[check]}" in page
    levels = [one["level"] for one in findings]
    assert text.endswith(f"\n{levels.count('error')} errors, {levels.count('warning')} warnings.\n")


def test_the_doctor_counts_every_stuck_claim(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        run = database.run(STORY.run_id)
        with run.writer("batch-topic") as writer:
            writer.send_many([BatchInfo(simulation_run_id=STORY.run_id, tick_start=at) for at in range(1200)])
        with run.reader("batch-topic", group="audit", claim_timeout=0.001) as reader:
            assert len(reader.poll_many(1200, 5)) == 1200
            time.sleep(0.01)
            found = Told(STORY, tmp_path, database.url, httpx.Client()).json("doctor", places="d", codes=(0, 1))
            (stuck,) = [one for one in found if one["check"] == "stuck claims"]
            assert ": 1,200 messages claimed by a consumer" in stuck["message"]
            assert stuck["details"] == [f"{STORY.run_id}: 1200"]


def test_overview_of_a_backlog(told: Told) -> None:
    plain, shown = Plain(told.root), told.page("/")
    groups = {name: plain.group(name) for name in GROUPS}
    lag, dead = max(one.lag for one in groups.values()), sum(one.dead for one in groups.values())
    oldest = max(one.hours for one in groups.values())
    newest = max(int(file.stem.split("_")[2]) for file in (told.root / "storage" / STORY.run_id).glob("batch_*"))
    behind = newest - STORY.files[-1].end
    assert (newest, behind) == (69, 40)
    assert f"lag {lag} messages lag {behind} ticks lag {oldest} h oldest message dead letters {dead} show" in shown
    assert shown.count(f"batch-topic {lag} waiting {dead} dead letters") == 2, "drawn wide and tall"
    for name, group in groups.items():
        assert f"{name} {group.lag} behind, {group.hours} h old {group.claimed} claimed" in shown
    assert shown.count(f"{behind} ticks behind") == 4, "two tables, drawn twice"
    assert f"up to tick {newest}" in shown
    with told.client.stream("GET", "/live/overview", params={"run": STORY.run_id}) as answer:
        lines = answer.iter_lines()
        event = " ".join(line.removeprefix("data: ") for line in iter(lambda: next(lines), ""))
    live = " ".join(re.sub(r"<[^>]*>", " ", event).split())
    seconds = r"[\d.]+ s( ago)?\b"
    assert re.sub(seconds, "", live) in re.sub(seconds, "", shown)


def test_status_of_a_backlog(told: Told) -> None:
    files = list((told.root / "storage" / STORY.run_id).glob("batch_*"))
    size, report = sum(file.stat().st_size for file in files), told.json("status", STORY.run_id)
    assert report["storage"] == {
        "files": len(files),
        "bytes": size,
        "ticks": [0, 69],
        "completed": False,
        "error": None,
        "state": "running",
        "last_tick": None,
        "format": "TickLake",
    }
    assert {one["name"]: (one["ticks"], one["lag"], one["missing"]) for one in report["tables"]} == {
        "environment_data": ([0, 29], 40, 0),
        "organism_data": ([0, 29], 40, 0),
        "metadata": (None, None, None),
    }
    text = told.command("status", STORY.run_id)
    assert f"{len(files)} batch files of format TickLake, {stories.as_size(size)}, ticks 0–69, running" in text
    gaps = told.json("gaps", STORY.run_id)
    assert {tuple(map(tuple, one["coverage"]["missing"])) for one in gaps["tables"]} == {((30, 69),)}


def test_acts_on_groups_tell_how_many_messages_are_ahead(own: Told) -> None:
    plain = Plain(own.root)
    ids = [
        name
        for (name,) in plain.rows("SELECT message_id FROM topic_messages WHERE topic_name = 'batch-topic' ORDER BY id")
    ]
    for at, options in ((2, ("--dry-run",)), (2, ()), (5, ())):
        ahead = len(ids) - at
        found = own.json(
            "groups", "reset", "batch-topic", "audit", "--to", ids[at], "--run", STORY.run_id, *options, places="d"
        )
        assert found["messages_ahead"] == ahead
        if not options:
            (group,) = [one for one in own.json("groups", "--run", STORY.run_id, places="d") if one["group"] == "audit"]
            assert (group["lag"], group["claimed"]) == (ahead, 0)
    text = own.command("groups", "reset", "batch-topic", "audit", "--to", "earliest", "--run", STORY.run_id, places="d")
    assert text == f"audit has {len(ids)} messages of batch-topic ahead.\n"
    for dry_run, words in (("1", "would have"), ("", "has")):
        form = {"topic": "batch-topic", "group": "audit", "to": ids[4], "dry_run": dry_run}
        answer = own.client.post(f"/runs/{STORY.run_id}/groups/reset", data=form)
        assert f"audit {words} {len(ids) - 4} messages of batch-topic ahead." in answer.text


def test_acts_on_claims_tell_how_many_are_released(own: Told) -> None:
    count = f"SELECT count(*) FROM topic_consumer_group WHERE {CLAIMED}"
    plain, path = Plain(own.root), f"/runs/{STORY.run_id}/claims/release"
    release = ("claims", "release", "--run", STORY.run_id)
    assert own.command(*release, "--stuck", "--dry-run", places="d") == "Would release 3 claims.\n"
    assert own.json(*release, "--group", "audit", "--dry-run", places="d") == {"released": 2, "dry_run": True}
    assert plain.number(count) == 5
    assert own.json(*release, "--group", "audit", places="d") == {"released": 2, "dry_run": False}
    assert plain.number(count) == 3
    assert "1 claims released." in own.client.post(path, data={"stuck": "1"}).text
    assert plain.number(count) == 2
    assert own.command(*release, "--topic", "batch-topic", places="d") == "Released 2 claims.\n"
    assert plain.number(count) == 0


def test_acts_on_dead_letters_tell_how_many_there_were(own: Told) -> None:
    plain, count = Plain(own.root), "SELECT count(*) FROM topic_dead_letters"
    replay, discard = (("dead-letters", act, "--all", "--run", STORY.run_id) for act in ("replay", "discard"))
    assert own.json(*replay, "--group", "audit", "--dry-run", places="d") == {"replayed": 2, "dry_run": True}
    assert own.command(*discard, "--dry-run", places="d") == "3 dead letters would be discarded.\n"
    assert plain.number(count) == 3
    open_before = plain.group("audit").lag
    assert own.json(*replay, "--error", "written", places="d") == {"replayed": 1, "dry_run": False}
    assert (plain.number(count), plain.group("audit").lag) == (2, open_before + 1)
    path = f"/runs/{STORY.run_id}/dead-letters"
    dry = own.client.post(f"{path}/discard", data={"every": "1", "dry_run": "1"})
    assert "2 dead letters would be discarded." in dry.text and "2 dead letters</h2>" in dry.text
    replayed = own.client.post(f"{path}/replay", data={"every": "1", "group": "audit"})
    assert "1 dead letters replayed." in replayed.text
    assert (plain.number(count), plain.group("audit").lag) == (1, open_before + 2)
    assert "1 dead letters discarded." in own.client.post(f"{path}/discard", data={"every": "1"}).text
    assert plain.number(count) == 0


def test_acts_on_topics_tell_how_many_messages_are_removed(own: Told) -> None:
    """Never a dead letter's, a claimed one, or one that a group still needs."""
    plain, count = Plain(own.root), "SELECT count(*) FROM topic_messages WHERE topic_name = 'batch-topic'"
    before = plain.number(count)
    prune = ("topics", "prune", "batch-topic", "--max-count", "0", "--run", STORY.run_id)
    would = own.json(*prune, "--dry-run", places="d")
    assert (would["dry_run"], plain.number(count)) == (True, before)
    needed = {name for (name,) in plain.rows("SELECT message_id FROM topic_dead_letters")}
    needed |= {name for group in GROUPS for (name,) in plain.rows(OPEN.format("m.message_id"), group)}
    assert would["removed"] == before - len(needed)
    assert own.command(*prune, places="d") == f"Removed {would['removed']} messages.\n"
    assert plain.number(count) == len(needed)
