"""A group's position, explored over all orders in which ids, numbers of transactions and commits can come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from frontier_model import Group, Server, Snapshot, Transaction, Unseen, remove_outdated, unseen, unseen_in_version_3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ticklake import BatchInfo, Database
from ticklake.database.names import schema_name
from ticklake.topics import Run, TopicReader
from ticklake.topics.envelope import client_clock_ms, wrap

Step = tuple[Any, ...]
SLOTS = 3
slots = st.integers(0, SLOTS - 1)
groups = st.sampled_from(["early", "late"])
steps = st.one_of(
    st.tuples(st.sampled_from(["take xid", "take id", "commit", "roll back"]), slots),
    st.tuples(st.just("insert"), slots, st.integers(1, 3)),
    st.tuples(st.just("claim"), groups, st.integers(1, 4)),
    st.tuples(st.just("reset"), groups, st.integers(0, 9)),
    st.tuples(st.sampled_from(["remove outdated", "another transaction"])),
)
interleavings = st.lists(steps, max_size=40)
FEW: list[Step] = [
    ("insert", 0, 1), ("insert", 1, 1), ("commit", 0), ("commit", 1), ("claim", "early", 4),
]  # fmt: skip


class Modelled:
    """What the model says to a list of steps."""

    def __init__(self, rule: Unseen = unseen) -> None:
        self.server = Server()
        self.rule = rule
        self.open = [Transaction() for _ in range(SLOTS)]
        self.groups: dict[str, Group] = {"early": Group.joined(self.server, at_end=False, rule=rule)}
        self.given: dict[str, set[int]] = {"early": set(), "late": set()}
        self.lost: set[tuple[str, int]] = set()

    def group(self, name: str) -> Group:
        """One group is there from the beginning; the other joins at the end of the topic when it is first named."""
        return self.groups.setdefault(name, Group.joined(self.server, at_end=True, rule=self.rule))

    def take(self, step: Step) -> object:  # noqa: PLR0911  one for each kind of step
        match step:
            case ("take xid", slot):
                return self.server.take_xid(self.open[slot])
            case ("take id", slot):
                return self.server.take_id(self.open[slot])
            case ("insert", slot, count):
                return [self.server.insert(self.open[slot]) for _ in range(count)]
            case ("commit" | "roll back" as how, slot):
                self.server.end(self.open[slot], commit=how == "commit")
                self.open[slot] = Transaction()
            case ("claim", name, limit):
                return self.claim(name, limit)
            case ("reset", name, place):
                return self.reset(name, place)
            case ("another transaction",):
                other = Transaction()
                self.server.take_xid(other)
                self.server.end(other, commit=True)
            case ("remove outdated",):
                removed = remove_outdated(self.server, self.groups.values())
                self.lost |= {(n, i) for n, g in self.groups.items() for i in removed - self.given[n] - g.passed}
                return removed
        return None

    def claim(self, name: str, limit: int) -> list[int]:
        ids = self.group(name).claim(self.server, limit)
        assert len(set(ids)) == len(ids)
        self.given[name] |= set(ids)
        return ids

    def reset(self, name: str, place: int) -> int:
        group, messages = self.group(name), sorted(self.server.messages())
        position = messages[place] - 1 if place < len(messages) else max(messages, default=0)
        group.reset(self.server, position)
        self.given[name] -= set(self.server.messages())
        return position

    def finish(self) -> None:
        """Everybody commits, and every group takes what there is."""
        for slot in range(SLOTS):
            self.take(("commit", slot))
        for name, group in self.groups.items():
            while self.claim(name, 3):
                pass
            missing = set(self.server.messages()) - self.given[name] - group.passed
            self.lost |= {(name, id_) for id_ in missing}


def lost(steps: list[Step], rule: Unseen) -> set[tuple[str, int]]:
    """What some group was never given, although it was committed and not passed over."""
    model = Modelled(rule)
    for step in steps:
        model.take(step)
    model.finish()
    return model.lost


@settings(max_examples=5 * settings().max_examples)
@given(interleavings)
def test_no_interleaving_loses_a_message(steps: list[Step]) -> None:
    assert lost(steps, unseen) == set()


def test_of_all_short_interleavings_version_3_lost_some_and_the_rule_none() -> None:
    """Every order of six steps of two publishers and a reader: the model is sharp enough to see what users lost."""
    every = list(itertools.product(FEW, repeat=6))
    assert not any(lost(list(steps), unseen) for steps in every)
    bad = {steps for steps in every if lost(list(steps), unseen_in_version_3)}
    insert, between, commit, last, claim = FEW
    assert (insert, between, insert, commit, claim, last) in bad
    assert lost([insert, between, insert, commit, claim, last, ("remove outdated",)], unseen_in_version_3)


INSERT = "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope) VALUES (%s, %s, %s, %s) RETURNING id"
PLACE = INSERT.replace("(topic_name", "(id, topic_name").replace("(%s", "(%s, %s")


class Replayed:
    """The same steps on a real server: every slot a connection, with plain SQL in a transaction of its own."""

    def __init__(self, run: Run, connections: list[psycopg.Connection[Any]]) -> None:
        self.run = run
        self.topic = f"t {uuid4().hex}"
        self.connections = connections
        self.ids: dict[int, int] = {}  # the model's -> the server's
        self.readers: dict[str, TopicReader] = {}
        self.reader("early")

    def reader(self, name: str) -> TopicReader:
        if name not in self.readers:
            start = "earliest" if name == "early" else "end"
            self.readers[name] = self.run.reader(self.topic, group=name, start=start)
        return self.readers[name]

    def take(self, step: Step, model: Modelled) -> object:
        """Does what the model does, and compares; what the model said."""
        said = model.take(step) if step[0] != "reset" else None
        match step:
            case ("take xid", slot):
                self.connections[slot].execute("SELECT pg_current_xact_id()")
            case ("take id", slot):
                self.ids[said] = self.one(slot, "SELECT nextval(pg_get_serial_sequence('topic_messages', 'id'))")  # type: ignore[index]
            case ("insert", slot, _):
                for id_ in said:  # type: ignore[attr-defined]
                    self.insert(slot, id_)
            case ("commit", slot):
                self.connections[slot].commit()
            case ("roll back", slot):
                self.connections[slot].rollback()
            case ("claim", name, limit):
                assert self.claim(name, limit) == said
            case ("reset", name, place):
                self.reader(name)
                stored = self.run.browse(self.topic)
                self.run.groups.reset(self.topic, name, stored[place].message_id if place < len(stored) else "end")
                model.take(step)
            case ("remove outdated",):
                assert self.run.remove_outdated(self.topic, max_count=0) == len(said)  # type: ignore[arg-type]
            case ("another transaction",):
                with self.run.transaction(durable=False) as transaction:
                    transaction.execute("SELECT pg_current_xact_id()", {})
        assert {g.group: g.lag for g in self.run.groups.list(self.topic)} == {
            name: sum(group.awaits(*message) for message in model.server.messages().items())
            for name, group in model.groups.items()
        }
        return said

    def one(self, slot: int, statement: str, *values: object) -> int:
        row = self.connections[slot].execute(statement.encode(), values).fetchone()
        assert row is not None
        return int(row[0])

    def claim(self, name: str, limit: int) -> list[int]:
        reader = self.reader(name)
        messages = reader.poll_many(limit, 0)
        assert all(reader.ack_many(messages))
        return [m.payload.tick_start for m in messages]  # type: ignore[attr-defined]

    def insert(self, slot: int, id_: int) -> None:
        values = (self.topic, *wrap(BatchInfo(tick_start=id_), client_clock_ms()))
        self.ids[id_] = (
            self.one(slot, INSERT, *values) if id_ not in self.ids else self.one(slot, PLACE, self.ids[id_], *values)
        )

    def close(self) -> None:
        for connection in self.connections:
            connection.rollback()
        for reader in self.readers.values():
            reader.close()


@pytest.fixture
def run(postgres_url: str) -> Iterator[Run]:
    with Database(postgres_url) as database:
        yield database.run(f"20251014-143025-{uuid4().hex[:8]}")


@pytest.fixture
def connections(run: Run, postgres_url: str) -> Iterator[list[psycopg.Connection[Any]]]:
    run.topics()
    with ExitStack() as stack:
        made = [stack.enter_context(psycopg.connect(postgres_url)) for _ in range(SLOTS)]
        for connection in made:
            connection.execute("SELECT set_config('search_path', %s, false)", (f'"{schema_name(run.id)}"',))
            connection.commit()
        yield made


@pytest.mark.hypothesis
def test_postgres_does_what_the_model_says(run: Run, connections: list[psycopg.Connection[Any]]) -> None:
    @settings(max_examples=2 * settings().max_examples // 5)
    @given(interleavings)
    @example([FEW[0], FEW[1], FEW[0], FEW[2], FEW[4], FEW[3]])
    @example([FEW[0], FEW[1], FEW[0], FEW[2], FEW[4], FEW[3], ("remove outdated",)])
    @example([FEW[0], FEW[1], FEW[0], FEW[2], ("claim", "late", 4), FEW[3], ("claim", "late", 4), ("reset", "late", 0)])
    def check(steps: list[Step]) -> None:
        model, real = Modelled(), Replayed(run, connections)
        try:
            for step in steps:
                real.take(step, model)
            for slot in range(SLOTS):
                real.take(("commit", slot), model)
            for name in list(model.groups):
                while real.take(("claim", name, 3), model):
                    pass
        finally:
            real.close()

    check()


@pytest.mark.hypothesis
def test_the_models_rule_is_the_one_in_the_database(connections: list[psycopg.Connection[Any]]) -> None:
    @settings(max_examples=3 * settings().max_examples)
    @given(st.integers(90, 110), st.integers(95, 110), st.sets(st.integers(90, 109)))
    def check(xid: int, xmax: int, running: set[int]) -> None:
        seen = Snapshot(xmax, frozenset(number for number in running if number < xmax))
        rows = (
            connections[0]
            .execute("SELECT topic_unseen(%s::text::xid8, %s::text::pg_snapshot)", (str(xid), str(seen)))
            .fetchall()
        )
        assert rows == [(unseen(xid, seen),)]

    check()
