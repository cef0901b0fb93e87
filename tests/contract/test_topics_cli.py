"""The commands around topics, on every database."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from click.testing import CliRunner, Result
from printed import read_json

from ticklake import BatchInfo
from ticklake.cli import cli
from ticklake.cli.errors import DeadLetterNotFound, TopicNotFound
from ticklake.cli.messages.topics import _messages
from ticklake.errors import InvalidOption, TimeOutOfRange, UnknownMessage
from ticklake.topics import Run
from ticklake.topics.admin.browse import PAGE

Command = Callable[..., Result]


@pytest.fixture
def command(database_url: str, run: Run) -> Command:
    """Runs a command on this test's run."""

    def call(*words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(cli, [*words, "--database", database_url, "--run", run.id])
        assert done.exit_code == code, done.output
        return done

    return call


@pytest.fixture
def data(command: Command) -> Callable[..., Any]:
    return lambda *words: read_json(command(*words, "--json").output)


@pytest.fixture(autouse=True)
def five(run: Run) -> list[str]:
    """Five messages; of the group `g`, one is a dead letter, one acknowledged, one claimed for ever."""
    with run.writer("t") as writer:
        ids = writer.send_many(BatchInfo(tick_start=n) for n in range(5))
    reader = run.reader("t", group="g", claim_timeout=0, max_delivery_attempts=1, consumer="me")
    dead, done, _ = reader.poll_many(3, 0)
    reader.fail(dead, ValueError("boom"))
    reader.ack(done)
    return ids


pytestmark = pytest.mark.warns("DEAD_LETTER")


HOSTILE = "x\x1b]0;title\x07\x9b31m\u202ey\r"


def test_no_command_sends_controls_of_others_to_the_terminal(command: Command, run: Run) -> None:
    topic = group = "n\x9b2J\u202e"
    with run.writer(topic) as writer, run.reader(topic, group=group, consumer="c\x9bH") as reader:
        writer.send_many([BatchInfo(storage_key=HOSTILE)] * 2)
        dead, _ = reader.poll_many(2, 0)
        reader.fail(dead, f"{HOSTILE}\nsecond line", last=True)
        calls = [("topics",), ("topics", "tail", topic), ("groups",), ("claims",), ("dead-letters", "list")]
        calls += [("dead-letters", "show", dead.id), ("groups", "reset", topic, group, "--to", "end", "--dry-run")]
        for words in calls:
            printed = command(*words).output
            assert all(line.isprintable() for line in printed.split("\n")), words
    assert "\nsecond line\n" in command("dead-letters", "show", dead.id).output


def test_topics_are_listed(command: Command, data: Callable[..., Any], run: Run) -> None:
    (topic,) = data("topics")
    assert (topic["run"], topic["topic"], topic["messages"], topic["groups"]) == (run.id, "t", 5, 1)
    assert "messages" in command("topics").output


def test_a_topic_is_looked_into(command: Command, five: list[str]) -> None:
    lines = command("topics", "tail", "t", "-n", "2", "--group", "g").output.splitlines()
    assert [five[3] in lines[0], five[4] in lines[1]] == [True, True]
    objects = [
        json.loads(line) for line in command("topics", "tail", "t", "--json", "--group", "g").output.splitlines()
    ]
    assert [found["state"] for found in objects] == ["set aside", "acknowledged", "claimed", "new", "new"]
    assert objects[4]["payload"] == {"tickStart": "4"}


@pytest.mark.parametrize("count", [0, 2])
def test_following_shows_as_many_as_asked_for_and_what_comes(run: Run, five: list[str], count: int) -> None:
    following = _messages(run, "t", run.position_before_last("t", count), None, None)
    came = threading.Event()
    sent: list[str] = []

    def send() -> None:
        with run.writer("t") as writer:
            while not came.wait(0.05):
                sent.append(writer.send(BatchInfo(tick_start=5)))

    assert [next(following).message_id for _ in range(count)] == five[5 - count :]
    sending = threading.Thread(target=send)
    sending.start()
    try:
        first = next(following).message_id
    finally:
        came.set()
        sending.join()
    assert first in sent


def test_a_negative_count_is_wrong_usage(command: Command, run: Run) -> None:
    command("topics", "tail", "t", "-n", "-1", code=2)
    assert command("topics", "tail", "t", "-n", "0").output == ""
    with pytest.raises(InvalidOption):
        run.browse_last("t", -1)


def test_a_message_is_sent(command: Command, run: Run) -> None:
    sent = command("topics", "send", "other", "--json", '{"tickStart": 7, "storageKey": "k"}').output.strip()
    (message,) = run.browse("other")
    opened = message.opened()
    assert message.message_id == sent
    assert opened is not None and opened.payload == BatchInfo(tick_start=7, storage_key="k")


@pytest.mark.parametrize("wrong", [("--json", "{"), ("--json", '{"no": 1}'), ("--json", "{}", "--type", "Nonsense")])
def test_a_wrong_message_is_wrong_usage(command: Command, wrong: tuple[str, ...]) -> None:
    assert "Error" in command("topics", "send", "t", *wrong, code=2).output


def test_groups_are_listed_and_reset(command: Command, data: Callable[..., Any], five: list[str]) -> None:
    (group,) = data("groups")
    assert (group["lag"], group["claimed"], group["dead_letters"]) == (3, 1, 1)
    assert group["oldest_seconds"] >= 0
    assert "would have 5 messages" in command("groups", "reset", "t", "g", "--to", "earliest", "--dry-run").output
    assert data("groups", "reset", "t", "g", "--to", five[3])["messages_ahead"] == 2
    assert data("groups", "reset", "t", "g", "--to", "2001-01-01T00:00")["messages_ahead"] == 5
    assert data("groups", "reset", "t", "g", "--to", "end")["messages_ahead"] == 0
    assert data("groups", "--topic", "t")[0]["lag"] == 0


@pytest.fixture(params=["America/New_York", "Asia/Tokyo"])
def far_from_utc(request: pytest.FixtureRequest, in_zone: Callable[[str], None]) -> None:
    in_zone(request.param)


@pytest.mark.usefixtures("far_from_utc")
def test_a_group_is_reset_to_the_times_that_topics_show_wherever_one_is(command: Command, run: Run) -> None:
    listed, lines = command("topics").output, command("topics", "tail", "t").output.splitlines()
    assert "first (UTC)" in listed and "last (UTC)" in listed
    (first, *_) = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", listed)
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  ", line) for line in lines)
    for written in (first, f"{first} UTC", f"{first}Z", first.replace(" ", "T")):
        said = command("groups", "reset", "t", "g", "--to", written, "--dry-run").output
        assert said == f"g would have 5 messages of t ahead, from {first} UTC on.\n"
    east = datetime.fromisoformat(f"{first}Z").astimezone(timezone(timedelta(hours=9))).isoformat()
    assert f"from {first} UTC on" in command("groups", "reset", "t", "g", "--to", east, "--dry-run").output


@pytest.fixture
def stored_apart(run: Run, pass_time: Callable[[float], None]) -> list[str]:
    """Messages of a producer whose clock stands still, stored a second apart, just before the next millisecond."""
    ids = []
    for number in range(3):
        pass_time(1)
        with run.writer("slow") as writer:
            ids.append(writer.send(BatchInfo(tick_start=number)))
    with run.transaction() as transaction:
        transaction.execute("UPDATE topic_messages SET timestamp = 1000", {})
        if transaction.dialect == "postgres":
            late = "date_trunc('milliseconds', created_at) + interval '999 microseconds'"
            transaction.execute(f"UPDATE topic_messages SET created_at = {late}", {})
    run.reader("slow", group="g").close()
    return ids


def test_the_time_that_tail_shows_as_stored_is_the_one_that_reset_goes_by(
    command: Command, data: Callable[..., Any], stored_apart: list[str]
) -> None:
    lines = command("topics", "tail", "slow").output.splitlines()
    objects = [json.loads(line) for line in command("topics", "tail", "slow", "--json").output.splitlines()]
    assert [found["published_at"] for found in objects] == ["1970-01-01T00:00:01.000Z"] * 3
    for number, (line, found) in enumerate(zip(lines, objects, strict=True)):
        (shown,) = re.findall(r"  stored (\S+)  ", line)
        assert shown == found["stored_at"]
        assert data("groups", "reset", "slow", "g", "--to", shown, "--dry-run")["messages_ahead"] == 3 - number


@pytest.mark.usefixtures("stored_apart")
def test_the_times_of_a_topic_are_never_later_than_its_messages(data: Callable[..., Any]) -> None:
    (status,) = [one for one in data("topics") if one["topic"] == "slow"]
    for written, ahead in ((status["first_at"], 3), (status["last_at"], 1)):
        assert data("groups", "reset", "slow", "g", "--to", written, "--dry-run")["messages_ahead"] == ahead


@pytest.mark.usefixtures("far_from_utc")
def test_a_reset_to_a_time_that_utc_does_not_have_is_refused(command: Command) -> None:
    for time_ in ("9999-12-31T23:59:59", "0001-01-01"):
        command("groups", "reset", "t", "g", "--to", time_, "--dry-run")
    for time_ in ("9999-12-31T23:59:59-01:00", "0001-01-01T00:00+01:00"):
        refused = command("groups", "reset", "t", "g", "--to", time_, "--dry-run", code=1)
        assert isinstance(refused.exception, TimeOutOfRange)


def test_claims_are_listed_and_released(command: Command, data: Callable[..., Any], five: list[str]) -> None:
    (claim,) = data("claims")
    assert (claim["message_id"], claim["consumer"], claim["expires_in_seconds"]) == (five[2], "me", None)
    assert data("claims", "--stuck") == []
    assert "never" in command("claims").output
    command("claims", "release", code=2)
    assert data("claims", "release", "--message", five[2], "--dry-run") == {"released": 1, "dry_run": True}
    assert command("claims", "release", "--group", "g").output == "Released 1 claims.\n"
    assert data("claims") == []


def test_any_number_of_claims_is_released_and_a_single_one_is_found_among_them(
    data: Callable[..., Any], run: Run
) -> None:
    with run.writer("many") as writer:
        ids = writer.send_many(BatchInfo(tick_start=n) for n in range(1100))
    assert len(run.reader("many", group="g", claim_timeout=0.001).poll_many(2000, 0)) == 1100
    assert data("claims", "release", "--message", ids[-1], "--dry-run")["released"] == 1
    assert data("claims", "release", "--topic", "many", "--stuck", "--dry-run")["released"] == 1100
    assert data("claims", "release", "--topic", "many", "--stuck")["released"] == 1100
    assert data("claims", "--topic", "many") == []


def test_dead_letters_are_shown_replayed_and_discarded(
    command: Command, data: Callable[..., Any], five: list[str]
) -> None:
    (letter,) = data("dead-letters", "list", "--error", "boom")
    assert (letter["message_id"], letter["error"], letter["attempts"]) == (five[0], "ValueError: boom", 1)
    assert "ValueError: boom" in command("dead-letters", "show", five[0]).output
    assert data("dead-letters", "show", five[0])[0]["payload"] == {}
    command("dead-letters", "replay", code=2)
    command("dead-letters", "discard", five[0], "--all", code=2)
    assert data("dead-letters", "replay", "--all", "--dry-run") == {"replayed": 1, "dry_run": True}
    assert data("dead-letters", "discard", "--all", "--group", "nobody") == {"discarded": 0, "dry_run": False}
    assert command("dead-letters", "replay", five[0]).output == "1 dead letters replayed.\n"
    assert command("dead-letters", "list").output == "No dead letters.\n"
    assert data("groups")[0]["lag"] == 4


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("words", [["show"], ["replay"], ["discard"], ["replay", "--dry-run"]], ids=" ".join)
def test_a_dead_letter_that_does_not_exist_is_an_error(command: Command, words: list[str]) -> None:
    refused = command("dead-letters", *words, "nope", code=1)
    assert isinstance(refused.exception, DeadLetterNotFound)
    assert "has no dead letter 'nope'" in str(refused.exception)


def test_a_topic_that_does_not_exist_is_an_error(command: Command, five: list[str]) -> None:
    assert isinstance(command("topics", "tail", "nope", code=1).exception, TopicNotFound)
    assert isinstance(command("topics", "tail", "t", "--after", "nope", code=1).exception, UnknownMessage)


def test_a_topic_is_paged_through_and_what_is_left_is_counted(command: Command, five: list[str]) -> None:
    seen, after = [], "earliest"
    for left in (3, 1, 0):
        page = command("topics", "tail", "t", "-n", "2", "--after", after, "--json")
        seen += [json.loads(line)["id"] for line in page.stdout.splitlines()]
        after = seen[-1]
        assert page.stderr == (f"{left} more; continue with --after {after}.\n" if left else "")
    assert seen == five


def test_browse_stops_at_nothing(run: Run) -> None:
    with run.writer("many") as writer:
        ids = writer.send_many(BatchInfo(tick_start=n) for n in range(2 * PAGE + 1))
    assert [one.message_id for one in run.browse("many")] == ids
    page = run.browse("many", limit=PAGE + 1)
    assert [one.message_id for one in page] == ids[: PAGE + 1]
    assert [one.message_id for one in run.browse("many", after=page[-1].id)] == ids[PAGE + 1 :]


ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_json_says_its_version_and_has_one_unit_and_one_format_of_times(
    command: Command, run: Run, five: list[str]
) -> None:
    listings = {
        "topics": ["topics"],
        "groups": ["groups"],
        "claims": ["claims"],
        "dead_letters": ["dead-letters", "list"],
        "packages": ["db", "status"],
    }
    for name, words in listings.items():
        found = json.loads(command(*words, "--json").stdout)
        assert found["version"] == 1 and found[name]
        for one in found[name]:
            assert not [key for key in one if key.endswith("_ms")], "times are ISO 8601 and durations in seconds"
            assert all(ISO.fullmatch(value) for key, value in one.items() if key.endswith("_at") and value)
            assert all(isinstance(value, float | None) for key, value in one.items() if key.endswith("_seconds"))
    for line in command("topics", "tail", "t", "--json").stdout.splitlines():
        message = json.loads(line)
        assert message["version"] == 1
        assert ISO.fullmatch(message["published_at"]) and ISO.fullmatch(message["stored_at"])
    assert json.loads(command("dead-letters", "list", "--limit", "0", "--json").stdout)["more"] == 1
    reset = json.loads(command("groups", "reset", "t", "g", "--to", "2026-01-31T12:00", "--dry-run", "--json").stdout)
    assert reset["to"] == "2026-01-31T12:00:00.000Z"


def test_old_messages_are_pruned(command: Command, data: Callable[..., Any]) -> None:
    assert data("topics", "prune", "t", "--max-count", "0", "--dry-run")["removed"] == 1
    assert command("topics", "prune", "t", "--max-count", "0", "--force").output == "Removed 3 messages.\n"
    assert data("topics")[0]["messages"] == 2


def test_a_database_must_be_named() -> None:
    assert CliRunner(env={"TICKLAKE_DATABASE": ""}).invoke(cli, ["topics"]).exit_code == 2
