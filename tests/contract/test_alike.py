"""Both databases do the same at every step of random histories, and what a model in plain Python says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.contract.topic_model import Model

from ticklake import Database
from ticklake.database.sqlite.backend import SqliteBackend
from ticklake.topics import DeadLetterFilter, Run
from ticklake.topics.envelope import Envelope
from ticklake.topics.store import Claim, Consumer

START = 1_900_000_000_000
CLOCK = """
CREATE TABLE IF NOT EXISTS test_clock (ms bigint);
CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
    $$ BEGIN RETURN (SELECT timestamptz 'epoch' + ms * interval '1 millisecond' FROM test_clock); END $$;
INSERT INTO test_clock VALUES (0)
"""
LEASES = (1_000, 30_000, 60_000)
GROUPS = ("g", "h")
CONSUMERS = ("a", "b")


class Clock:
    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


class Side:
    """A topic on a database. Messages are named by their numbers."""

    def __init__(self, run: Run, topic: str) -> None:
        self.run = run
        self.topic = topic
        self.store = run._topics()[0]

    def publish(self, numbers: list[int]) -> int:
        with self.run.transaction(durable=False) as transaction:
            envelopes = [Envelope(f"{number:06}", 0, b"x") for number in numbers]
            return self.store.publish(self.topic, envelopes, transaction)

    def claim(self, consumer: Consumer, limit: int) -> tuple[list[tuple[int, int, int, str | None]], list[int]]:
        found = self.store.claim(consumer, limit)
        given = [(int(c.message_id), c.version, c.attempts, c.previous_holder) for c in found.claims]
        return given, [int(message_id) for message_id in found.dead]

    def figures(self, group: str) -> dict[str, Any]:
        """Everything that an operator sees of a group."""
        (status,) = [s for s in self.run.groups.list(self.topic) if s.group == group]
        which = DeadLetterFilter(topic=self.topic, group=group)
        letters = self.run.dead_letters.list(which)
        claims = {
            stuck: [
                (int(c.message_id), *c[3:]) for c in self.run.claims.list(topic=self.topic, group=group, stuck=stuck)
            ]
            for stuck in (False, True)
        }
        return {
            "status": tuple(status[2:]),
            "dead": [(int(letter.message_id), letter.attempts) for letter in letters],
            "claims": _sorted(claims[False]),
            "stuck": _sorted(claims[True]),
            "browse": [(int(m.message_id), m.state) for m in self.run.browse(self.topic, group=group)],
        }


class History:
    """Takes the same random steps on both databases and, unless consumers read `alone`, in the model."""

    def __init__(self, seed: int, sides: list[Side], model: Model | None, tell_time: Callable[[int], None]) -> None:
        self.random = random.Random(seed)
        self.sides = sides
        self.model = model
        self.alone = model is None
        self.tell_time = tell_time
        self.now = START
        # PostgreSQL leaves claims that never expire as they are if the clock is set back. So a history has one of both.
        self.leases = (*LEASES, 0) if seed % 2 else LEASES
        self.steps_of_clock = (1, 400, 1_000, 31_000, 61_000, 301_000 if seed % 2 else -1_000_000)
        self.published = 0
        self.joined: list[str] = []
        self.known: list[tuple[Consumer, Claim]] = []  # also lost ones
        self.steps: list[str] = []

    def run(self, steps: int) -> None:
        acts = [self.publish, self.claim, self.claim, self.claim, self.ack, self.ack, self.extend, self.release]
        acts += [self.fail, self.pass_time, self.pass_time, self.operate]
        acts += [self.publish, self.claim, self.claim, self.pass_time, self.pass_time] if self.alone else []
        self.join()
        for _ in range(steps):
            self.random.choice(acts)()
            for group in self.joined:
                expected = self.sides[0].figures(group)
                for side in self.sides[1:]:
                    assert side.figures(group) == expected, "\n".join(self.steps)
                if self.model is not None:
                    assert self.of_model(self.model, group) == expected, "\n".join(self.steps)

    def of_model(self, model: Model, group: str) -> dict[str, Any]:
        return {
            "status": model.figures(group),
            "dead": model.dead_letters(group),
            "claims": _sorted(model.claims(group)),
            "stuck": _sorted(model.claims(group, stuck=True)),
            "browse": model.browse(group),
        }

    def same(self, step: str, act: Callable[[Side], Any], expected: Callable[[Model], Any]) -> Any:
        """Takes a step everywhere. Returns its result, which must be the same."""
        self.steps.append(step)
        results = [act(side) for side in self.sides]
        if self.model is not None:
            results.append(expected(self.model))
        assert all(result == results[0] for result in results), "\n".join([*map(str, results), *self.steps])
        return results[0]

    def join(self) -> None:
        for group in GROUPS:
            if group not in self.joined and (group == "g" or self.random.random() < 0.3):
                at_end = self.random.random() < 0.3
                self.same(
                    f"join {group} {at_end}",
                    lambda side, group=group, at_end=at_end: side.store.join(side.topic, group, at_end=at_end),
                    lambda model, group=group, at_end=at_end: model.join(group, at_end=at_end),
                )
                self.joined.append(group)

    def publish(self) -> None:
        numbers = [*range(self.published + 1, self.published + 1 + self.random.choice((1, 1, 2, 5)))]
        self.published = numbers[-1]
        self.same(f"publish {numbers}", lambda side: side.publish(numbers), lambda model: model.publish(numbers))
        self.join()

    def claim(self) -> None:
        group, name = self.random.choice(self.joined), self.random.choice(CONSUMERS)
        lease, most, limit = (
            self.random.choice(self.leases),
            self.random.choice((1, 2, 3, 5)),
            self.random.choice((1, 2, 3, 9)),
        )
        alone = self.alone and self.random.random() < 0.8

        def claim(side: Side) -> object:
            return side.claim(Consumer(side.topic, group, name, lease, most, alone), limit)

        given, _ = self.same(
            f"claim {group} {name} lease {lease} most {most} limit {limit} alone {alone}",
            claim,
            lambda model: _plain(model.claim(group, name, lease, most, limit)),
        )
        consumer = Consumer("", group, name, lease, most, alone)
        self.known += [(consumer, Claim(f"{n:06}", version, attempts, b"")) for n, version, attempts, _ in given]

    def some(self) -> tuple[Consumer, list[Claim]]:
        """Some claims of a consumer, held or lost."""
        if not self.known:
            return Consumer("", self.joined[0], "nobody", 0, 1), []
        consumer, _ = self.random.choice(self.known[-8:])
        mine = [claim for other, claim in self.known[-12:] if other[1:3] == consumer[1:3]]
        claims = {claim.message_id: claim for claim in self.random.sample(mine, self.random.randint(1, len(mine)))}
        return consumer, list(claims.values())

    def ack(self) -> None:
        consumer, claims = self.some()
        done, new = self.same(
            f"ack {consumer[1:3]} {_names(claims)}",
            lambda side: tuple(side.store.ack(consumer._replace(topic=side.topic), claims)),
            lambda model: _acked(
                [model.ack(consumer.group, int(c.message_id), c.version, consumer.id) for c in claims]
            ),
        )
        assert new <= sum(done)

    def extend(self) -> None:
        consumer, claims = self.some()
        self.same(
            f"extend {consumer[1:4]} {_names(claims)}",
            lambda side: side.store.extend(consumer._replace(topic=side.topic), claims),
            lambda model: [
                model.extend(consumer.group, int(c.message_id), c.version, consumer.id, consumer.lease_ms)
                for c in claims
            ],
        )

    def release(self) -> None:
        consumer, claims = self.some()
        delay, forgiven = self.random.choice((0, 0, 500, 45_000)), self.random.random() < 0.6
        self.same(
            f"release {consumer[1:3]} {_names(claims)} delay {delay} forgiven {forgiven}",
            lambda side: side.store.release(consumer._replace(topic=side.topic), claims, delay, forgiven=forgiven),
            lambda model: [
                model.release(consumer.group, int(c.message_id), c.version, consumer.id, delay, int(forgiven))
                for c in claims
            ],
        )

    def fail(self) -> None:
        consumer, claims = self.some()
        for claim in claims[:1]:
            self.same(
                f"bury {consumer[1:3]} {_names([claim])}",
                lambda side, claim=claim: side.store.bury(consumer._replace(topic=side.topic), claim, "failed"),
                lambda model, claim=claim: model.bury(
                    consumer.group, int(claim.message_id), claim.version, consumer.id
                ),
            )

    def pass_time(self) -> None:
        """Sometimes the clock is set back, by more than any lease or delay."""
        self.now += self.random.choice(self.steps_of_clock)
        self.steps.append(f"clock {self.now - START}")
        self.tell_time(self.now)
        if self.model is not None:
            self.model.now = self.now

    def operate(self) -> None:
        self.random.choice((self.reset, self.replay, self.discard, self.force_release, self.retain))()

    def reset(self) -> None:
        group, stored = (
            self.random.choice(self.joined),
            [m.message_id for m in self.sides[0].run.browse(self.sides[0].topic)],
        )
        to = self.random.choice(["earliest", "end", *stored])
        places = {"earliest": 0, "end": max(map(int, stored), default=0)}
        frontier = places[to] if to in places else int(to) - 1
        self.same(
            f"reset {group} {to}",
            lambda side: side.run.groups.reset(side.topic, group, to),
            lambda model: model.reset(group, frontier),
        )

    def replay(self) -> None:
        group = self.random.choice(self.joined)
        self.same(
            f"replay {group}",
            lambda side: side.run.dead_letters.replay(DeadLetterFilter(topic=side.topic, group=group)),
            lambda model: model.replay(group),
        )

    def discard(self) -> None:
        group = self.random.choice(self.joined)
        self.same(
            f"discard {group}",
            lambda side: side.run.dead_letters.discard(DeadLetterFilter(topic=side.topic, group=group)),
            lambda model: model.discard(group),
        )

    def force_release(self) -> None:
        group, forgiven = self.random.choice(self.joined), self.random.random() < 0.5
        self.same(
            f"force release {group} {forgiven}",
            lambda side: side.run.claims.release(
                side.run.claims.list(topic=side.topic, group=group), forgiven=forgiven
            ),
            lambda model: model.force_release(group, int(forgiven)),
        )

    def retain(self) -> None:
        age, count = self.random.choice(((None, 3), (None, 0), (30_000, None), (1_000, 5)))
        force = self.random.random() < 0.3
        seconds = None if age is None else age / 1000
        self.same(
            f"retain {age} {count} {force}",
            lambda side: side.run.remove_outdated(side.topic, max_age=seconds, max_count=count, force=force),
            lambda model: model.retain(age, count, force=force),
        )


def _sorted(claims: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """By number, without the times of expired claims: if the clock was set back, only SQLite lets them begin again."""
    return sorted(
        (*claim, None, "expired") if left is not None and left < 0 else (*claim, age, left)
        for *claim, age, left in claims
    )


def _names(claims: list[Claim]) -> list[tuple[int, int]]:
    return [(int(claim.message_id), claim.version) for claim in claims]


def _plain(found: tuple[list[Any], list[int]]) -> tuple[list[tuple[Any, ...]], list[int]]:
    return [tuple(given) for given in found[0]], found[1]


def _acked(found: list[tuple[bool, bool]]) -> tuple[list[bool], int]:
    return [done for done, _ in found], sum(new for _, new in found)


@pytest.fixture
def runs(tmp_path: Path, postgres_url: str) -> Iterator[tuple[list[Run], Callable[[int], None]]]:
    clock, run_id = Clock(), f"20251014-143025-{uuid4().hex[:8]}"
    with (
        Database(f"sqlite:///{tmp_path}", backend=SqliteBackend(tmp_path, clock)) as sqlite,
        Database(postgres_url) as postgres,
    ):
        found = [sqlite.run(run_id), postgres.run(run_id)]
        for run in found:
            run.prepare("ticklake.topics")
        with found[1].transaction() as transaction:
            transaction.execute_script(CLOCK)

        def tell_time(now: int) -> None:
            clock.ms = now
            with found[1].transaction(durable=False) as transaction:
                transaction.execute("UPDATE test_clock SET ms = :now", {"now": now})

        yield found, tell_time
        postgres.drop(run_id)


QUICK = [("together", 8), ("together", 26), ("alone", 39)]
MORE = [(reading, seed) for reading in ("together", "alone") for seed in range(20) if (reading, seed) not in QUICK]


@pytest.mark.parametrize("histories", [QUICK, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "many"])
def test_both_databases_do_the_same_at_every_step(
    runs: tuple[list[Run], Callable[[int], None]], histories: list[tuple[str, int]]
) -> None:
    """What is delivered, lost, refused, buried, replayed and removed, and every figure. The seeds are fixed."""
    found, tell_time = runs
    for reading, seed in histories:
        tell_time(START)
        sides = [Side(run, f"{reading} {seed}") for run in found]
        model = Model(START) if reading == "together" else None
        History(seed, sides, model, tell_time).run(60)


def test_a_message_without_attempts_left_waits_behind_one_that_is_left(
    runs: tuple[list[Run], Callable[[int], None]],
) -> None:
    """The first one must come alone, so the second is left, and the third does not become a dead letter yet."""
    found, tell_time = runs
    for side in (Side(run, "t") for run in found):
        tell_time(START)
        side.store.join("t", "g", at_end=False)
        reader = Consumer("t", "g", "a", 1000, 5, alone=True)
        side.publish([1, 2, 3])
        side.claim(reader, 3)
        for seconds in (2, 4):
            tell_time(START + 1000 * seconds)
            assert side.claim(reader._replace(alone=False), 3)[1] == []
        tell_time(START + 6000)
        with side.run.transaction() as transaction:
            transaction.execute("UPDATE topic_consumer_group SET attempts = 5 WHERE message_id = :id", {"id": "000003"})
        assert side.claim(reader, 3) == ([(1, 4, 4, "a")], [])
        assert side.claim(reader, 3) == ([(2, 4, 4, "a")], [3])
