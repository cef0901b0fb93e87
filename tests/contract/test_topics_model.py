"""Any order of publish, poll, ack, crash, lease expiry, late ack, release, failure, replay, reset, new group:
the store does what a few lines of plain Python say."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from ticklake import BatchInfo, Database
from ticklake.database.sqlite.backend import SqliteBackend
from ticklake.database.sqlite.run_file import wall_clock_ms
from ticklake.topics import DeadLetterFilter, Message, Run, TopicReader

LEASE = 60.0
ATTEMPTS = 2
GROUPS = ("a", "b")
_TOPICS = itertools.count()


@dataclass
class Entry:
    """What a group has done with a message."""

    state: str = "new"  # new, claimed, free, done, dead, passed
    version: int = 0
    attempts: int = 0
    since: float = 0.0
    expires: float = 0.0
    not_before: float = 0.0


@dataclass
class Model:
    """Topics in plain Python: one dictionary of entries a group."""

    now: float = 1e6
    sent: list[int] = field(default_factory=list)
    groups: dict[str, dict[int, Entry]] = field(default_factory=dict)

    def entry(self, group: str, number: int) -> Entry:
        return self.groups[group].setdefault(number, Entry())

    def free(self, entry: Entry) -> bool:
        if entry.state == "claimed":
            return entry.expires <= self.now
        return entry.state == "new" or (entry.state == "free" and entry.not_before <= self.now)

    def claim(self, group: str, limit: int) -> list[tuple[int, int, int]]:
        """The claims (number, version, attempts) that a poll must give; what is spent dies on the way."""
        self.notice_the_clock(group)
        free = [(n, e) for n in self.sent if self.free(e := self.entry(group, n))]
        again = [(n, e) for n, e in free if e.state != "new"][:limit]
        spent = [e for _, e in again if e.attempts >= ATTEMPTS]
        for entry in spent:
            entry.state, entry.version = "dead", entry.version + 1
        again = [(n, e) for n, e in again if e.state != "dead"]
        fresh = [(n, e) for n, e in free if e.state == "new"][: limit - len(again) - len(spent)]
        for _, entry in again + fresh:
            entry.attempts = 1 if entry.state == "new" else entry.attempts + 1
            entry.state, entry.version, entry.expires = "claimed", entry.version + 1, self.now + LEASE
            entry.since = self.now
        claims = [(n, e.version, e.attempts) for n, e in again + fresh]
        return claims if claims or not spent else self.claim(group, limit)

    def notice_the_clock(self, group: str) -> None:
        """What began before the clock was set back lasts from now on as long as it was meant to."""
        for entry in self.groups[group].values():
            until = {"claimed": entry.expires, "free": entry.not_before}.get(entry.state, 0.0)
            if until > self.now + LEASE and entry.since > self.now:
                ahead = entry.since - self.now
                entry.expires, entry.not_before = entry.expires - ahead, max(0.0, entry.not_before - ahead)
                entry.since = self.now

    def holds(self, group: str, number: int, version: int) -> bool:
        entry = self.entry(group, number)
        return entry.state == "claimed" and entry.version == version

    def reset(self, group: str, position: int) -> None:
        """Deliver again what comes at `position` and after it; the rest is passed over."""
        for place, number in enumerate(self.sent):
            entry = self.entry(group, number)
            if entry.state in ("claimed", "free"):
                entry.version += 1
                entry.state = "passed"
            if place >= position:
                entry.state = "new"
            elif entry.state == "new":
                entry.state = "passed"


class TopicMachine(RuleBasedStateMachine):
    """Drives a real database and the model side by side."""

    claims = Bundle("claims")
    database_run: Run
    pass_seconds: Callable[[float], None]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.run = self.database_run
        self.topic = f"topic {next(_TOPICS)}"
        self.writer = self.run.writer(self.topic)
        type(self).pass_seconds(self.model.now)
        self.readers: dict[str, TopicReader] = {}
        self.acked: dict[tuple[str, int], int] = {}
        self.numbers = itertools.count()
        self.ids: dict[int, str] = {}

    @initialize()
    def first_group(self) -> None:
        self.join("a")

    def join(self, group: str) -> None:
        if group not in self.readers:
            self.readers[group] = self.new_reader(group)
            self.model.groups.setdefault(group, {})

    def new_reader(self, group: str) -> TopicReader:
        return self.run.reader(self.topic, group=group, claim_timeout=LEASE, max_delivery_attempts=ATTEMPTS)

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        batch = [next(self.numbers) for _ in range(count)]
        ids = self.writer.send_many(BatchInfo(tick_start=number) for number in batch)
        self.ids |= dict(zip(batch, ids, strict=True))
        self.model.sent += batch

    @rule()
    def a_new_group(self) -> None:
        self.join("b")

    @rule(target=claims, group=st.sampled_from(GROUPS), limit=st.integers(1, 5))
    def poll(self, group: str, limit: int) -> object:
        self.join(group)
        expected = self.model.claim(group, limit)
        messages = self.readers[group].poll_many(limit, 0)
        assert [(_number(m), m.claim_version, m.attempts) for m in messages] == expected
        return multiple(*((group, self.readers[group], message) for message in messages))

    @rule(claim=consumes(claims))
    def ack(self, claim: tuple[str, TopicReader, Message]) -> None:
        group, reader, message = claim
        number = _number(message)
        expected = self.model.holds(group, number, message.claim_version)
        assert reader.ack(message) is expected
        if expected:
            assert (group, number) not in self.acked or self.acked[group, number] < message.claim_version
            self.acked[group, number] = message.claim_version
            self.model.entry(group, number).state = "done"

    @rule(claim=consumes(claims))
    def release(self, claim: tuple[str, TopicReader, Message]) -> None:
        group, reader, message = claim
        expected = self.model.holds(group, _number(message), message.claim_version)
        assert reader.release([message]) == [expected]
        if expected:
            entry = self.model.entry(group, _number(message))
            entry.state, entry.not_before, entry.attempts = "free", 0, entry.attempts - 1

    @rule(claim=claims)
    def extend(self, claim: tuple[str, TopicReader, Message]) -> None:
        group, reader, message = claim
        expected = self.model.holds(group, _number(message), message.claim_version)
        assert reader.extend([message]) == [expected]
        if expected:
            entry = self.model.entry(group, _number(message))
            entry.since, entry.expires = self.model.now, self.model.now + LEASE

    @rule(claim=consumes(claims), delay=st.sampled_from([0.0, 20.0]))
    def fail(self, claim: tuple[str, TopicReader, Message], delay: float) -> None:
        group, reader, message = claim
        held = self.model.holds(group, _number(message), message.claim_version)
        dead = reader.fail(message, "it failed", delay=delay)
        assert dead is (held and message.attempts >= ATTEMPTS)
        if held:
            entry = self.model.entry(group, _number(message))
            entry.state, entry.not_before = "dead" if dead else "free", self.model.now + delay if delay else 0
            entry.since = self.model.now
            entry.version += dead

    @rule(group=st.sampled_from(GROUPS))
    def crash(self, group: str) -> None:
        """The consumer is gone and gives nothing back; another one takes its place."""
        if group in self.readers:
            held = self.readers[group]._held
            held.forget(held.claims())
            self.readers[group].close()
            self.readers[group] = self.new_reader(group)

    @rule(seconds=st.sampled_from([15.0, LEASE + 1, -5.0, -1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds
        type(self).pass_seconds(self.model.now)

    @rule(group=st.sampled_from(GROUPS))
    def replay(self, group: str) -> None:
        entries = [e for e in self.model.groups.get(group, {}).values() if e.state == "dead"]
        assert self.run.dead_letters.replay(DeadLetterFilter(topic=self.topic, group=group)) >= len(entries)
        for entry in entries:
            entry.state, entry.attempts, entry.not_before = "free", 0, 0

    @rule(group=st.sampled_from(GROUPS), data=st.data())
    def reset(self, group: str, data: st.DataObject) -> None:
        if group in self.readers and self.model.sent:
            place = data.draw(st.integers(0, len(self.model.sent)))
            end = place == len(self.model.sent)
            to = "end" if end else self.ids[self.model.sent[place]]
            assert self.run.groups.reset(self.topic, group, to) == len(self.model.sent) - place
            self.model.reset(group, place)

    def teardown(self) -> None:
        for group, entries in self.model.groups.items():
            (status,) = [s for s in self.run.groups.list(self.topic) if s.group == group]
            for number in self.model.sent:
                self.model.entry(group, number)
            assert status.lag == sum(e.state in ("new", "claimed", "free") for e in entries.values())
        for reader in self.readers.values():
            reader.close()
        self.writer.close()


def _number(message: Message) -> int:
    return int(message.payload.tick_start)  # type: ignore[attr-defined]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Lost claims and dead letters are what this is about."""
    logging.getLogger("ticklake.topics").setLevel(logging.ERROR)
    yield
    logging.getLogger("ticklake.topics").setLevel(logging.NOTSET)


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("quiet")
def test_topics_do_what_the_model_says_on_sqlite(tmp_path: Path) -> None:
    ahead = {"seconds": 0.0}
    frozen = wall_clock_ms()
    backend = SqliteBackend(tmp_path, lambda: frozen + round(1000 * ahead["seconds"]))
    with Database(f"sqlite:///{tmp_path}", backend=backend) as database:

        class OnSqlite(TopicMachine):
            database_run = database.run("model")

            @staticmethod
            def pass_seconds(seconds: float) -> None:
                ahead["seconds"] = seconds

        _check(OnSqlite)


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("quiet")
def test_topics_do_what_the_model_says_on_postgres(postgres_url: str) -> None:
    with Database(postgres_url) as database:

        class OnPostgres(TopicMachine):
            database_run = database.run("model")

            @staticmethod
            def pass_seconds(seconds: float) -> None:
                with OnPostgres.database_run.transaction(durable=False) as transaction:
                    transaction.execute_script(
                        "CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS "
                        f"$$ BEGIN RETURN timestamptz '2030-01-01' + interval '{seconds} seconds'; END $$"
                    )

        _check(OnPostgres)


def _check(machine: type[TopicMachine]) -> None:
    examples = 2 * settings().max_examples
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=25))
