"""The processes of `post.py`: publishers of batches, in every form that the API has, and readers.

Each writes down what it is about to do, and what became of it, in a journal of its own (see `account.py`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from ticklake import BatchInfo, Database
from ticklake.database.names import schema_name
from ticklake.errors import DatabaseForked, TickLakeError
from ticklake.topics.envelope import client_clock_ms, wrap

TOPIC, LEASE = "t", 1.0
SIZES = (1, 3, 20, 200, 500)
PAUSE = 0.15


class Place(NamedTuple):
    folder: Path
    url: str
    run_id: str
    seed: int


class Journal:
    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)

    def write(self, *what: Any) -> None:
        os.write(self._file, json.dumps([time.monotonic(), *what]).encode() + b"\n")


class Undo(Exception):
    """The sender changes its mind."""


class Forks:
    """Forks the process in the middle of its work, once for each SIGUSR1.

    The child tries to use what its parent has opened, and then ends like any other process: what it leaves on its way
    out is closed and freed. What it did is in `folder/forks`.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / "forks")
        self._wanted = False
        signal.signal(signal.SIGUSR1, self._want)

    def fork_if_wanted(self, use: Callable[[], object]) -> None:
        if not self._wanted:
            return
        self._wanted = False
        if child := os.fork():
            os.waitpid(child, 0)
            return
        try:
            use()
            self._journal.write("used")
        except DatabaseForked:
            self._journal.write("refused")
        except BaseException as error:
            self._journal.write(f"{type(error).__name__}: {error}")
        sys.exit()

    def _want(self, *_: object) -> None:
        self._wanted = True


class Sender:
    """Another program with one transaction on a server. It inserts its rows one by one; its keys are those of `p0`.

    Plain SQL: `send_many` makes a savepoint, which takes a transaction number as well. Of two transactions with rows
    in turns, one could then never be younger than all of the other.
    """

    def __init__(self, place: Place, journal: Journal) -> None:
        self._journal, self._parts = journal, list[range]()
        self._connection = psycopg.connect(place.url)
        self._connection.execute("SELECT set_config('search_path', %s, false)", [f'"{schema_name(place.run_id)}"'])
        self._connection.commit()

    def send(self, keys: range) -> None:
        self._journal.write("try", keys.start, len(keys))
        self._parts.append(keys)
        insert = "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope) VALUES (%s, %s, %s, %s)"
        for number in keys:
            self._connection.execute(insert, [TOPIC, *wrap(_message("p0", number), client_clock_ms())])

    def commit(self) -> None:
        self._connection.commit()
        self._connection.close()
        for keys in self._parts:
            self._journal.write("sent", keys.start, len(keys))


class Publisher:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._run = Database(place.url, max_pool_size=2, min_idle=0).run(place.run_id)
        self._writer = self._run.writer(TOPIC)
        self._rng = random.Random(f"{place.seed} {name}")
        self._journal = Journal(place.folder / f"{name}.sent")
        self._forks = Forks(place.folder)
        self._next = 0

    def work(self) -> None:
        forms: dict[Callable[[], None], int] = {
            self._send: 3, self._transact: 4, self._roll_back: 1, self._keep_a_part: 2,
        }  # fmt: skip
        while not (self._place.folder / "enough").exists():
            (form,) = self._rng.choices(list(forms), list(forms.values()))
            try:
                form()
            except TickLakeError as error:
                self._journal.write("failed", 0, 0)
                os.write(2, f"{self._name}: {type(error).__name__}: {error}\n".encode())
            time.sleep(self._rng.uniform(0, PAUSE))

    def _send(self) -> None:
        keys = self._taken()
        self._writer.send_many(self._messages(keys))
        self._journal.write("sent", keys.start, len(keys))

    def _transact(self) -> None:
        """Several batches in a transaction of the caller, with pauses: others commit in between."""
        parts = [self._taken() for _ in range(self._rng.randint(1, 3))]
        with self._run.transaction() as transaction:
            for keys in parts:
                self._writer.send_many(self._messages(keys), connection=transaction)
                self._forks.fork_if_wanted(lambda: self._writer.send(_message(self._name, -1)))
                time.sleep(self._rng.choice((0.0, 0.0, 0.02, PAUSE)))
        self._written("sent", parts)

    def _roll_back(self) -> None:
        keys = self._taken()
        try:
            with self._run.transaction() as transaction:
                self._writer.send_many(self._messages(keys), connection=transaction)
                raise Undo
        except Undo:
            self._journal.write("undone", keys.start, len(keys))

    def _keep_a_part(self) -> None:
        """Savepoints, some of them rolled back; each is a transaction of its own below the caller's."""
        kept, undone = [], []
        with self._run.transaction() as transaction:
            for _ in range(self._rng.randint(2, 4)):
                keys, keep = self._taken(), self._rng.random() < 0.6
                (kept if keep else undone).append(keys)
                try:
                    with transaction.savepoint():
                        self._writer.send_many(self._messages(keys), connection=transaction)
                        time.sleep(self._rng.choice((0.0, 0.02)))
                        if not keep:
                            raise Undo
                except Undo:
                    pass
        self._written("sent", kept)
        self._written("undone", undone)

    def _taken(self) -> range:
        count = self._rng.choice(SIZES)
        keys = range(self._next, self._next + count)
        self._next += count
        self._journal.write("try", keys.start, count)
        return keys

    def _written(self, outcome: str, parts: Iterable[range]) -> None:
        for keys in parts:
            self._journal.write(outcome, keys.start, len(keys))

    def _messages(self, keys: Sequence[int]) -> list[BatchInfo]:
        return [_message(self._name, number) for number in keys]


class Reader:
    """Acknowledges most of what it gets; some it gives back, and some it forgets until the lease is over."""

    def __init__(self, place: Place, name: str, group: str) -> None:
        self._rng = random.Random(f"{place.seed} {name}")
        self._journal = Journal(place.folder / f"{name}.{group}.read")
        self._forks = Forks(place.folder)
        self._reader = (
            Database(place.url, max_pool_size=2, min_idle=0)
            .run(place.run_id)
            .reader(TOPIC, group=group, claim_timeout=LEASE, max_delivery_attempts=1_000_000, consumer=name)
        )

    def work(self) -> None:
        while True:
            begun = time.monotonic()
            found = self._reader.poll_many(self._rng.choice((20, 1000, 1000, 1000)), 0.5)
            if not found:
                continue
            self._journal.write("got", begun, list(map(_claim, found)))
            self._forks.fork_if_wanted(lambda found=found: self._reader.ack_many(found))
            chance = self._rng.random()
            if chance < 0.03:
                self._reader.release(found, delay=self._rng.choice((0.0, LEASE)))
            elif chance > 0.06:
                begun = time.monotonic()
                done = self._reader.ack_many(found)
                self._journal.write("ack", begun, [_claim(one) for one, mine in zip(found, done, strict=True) if mine])

    def hold(self) -> None:
        """Claims what there is, and does nothing with it until it is killed."""
        found: list[Any] = []
        begun = time.monotonic()
        while not found:
            found = self._reader.poll_many(20, 0.5)
        self._journal.write("got", begun, list(map(_claim, found)))
        signal.pause()


def _message(publisher: str, number: int) -> BatchInfo:
    return BatchInfo(storage_key=f"{publisher}:{number}", tick_start=number)


def _claim(message: Any) -> tuple[str, int]:
    return message.payload.storage_key, message.claim_version


def publish(place: Place, name: str) -> None:
    Publisher(place, name).work()


def read(place: Place, name: str, group: str) -> None:
    Reader(place, name, group).work()


def claim(place: Place, name: str, group: str) -> None:
    Reader(place, name, group).hold()
