"""A publisher as its own process: `publisher_child.py URL RUN SEED ROUNDS SIZE`.

Writes the ids of the messages it has committed to stdout. Every round publishes
SIZE messages in one of the ways that a program can.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count

from ticklake import BatchInfo, Database
from ticklake.topics import Run, TopicWriter
from ticklake.topics.envelope import Envelope, client_clock_ms, wrap_all

numbers = count()


class Undone(Exception):
    """Rolls back."""


def batch(size: int) -> list[Envelope]:
    return wrap_all([BatchInfo(tick_start=next(numbers)) for _ in range(size)], client_clock_ms())


def at_once(run: Run, writer: TopicWriter, size: int) -> list[Envelope]:
    writer.forward(sent := batch(size))
    return sent


def sent_again(run: Run, writer: TopicWriter, size: int) -> list[Envelope]:
    """Half of them are stored already: the insert fails and is done anew."""
    sent = batch(size)
    writer.forward(sent[: size // 2])
    writer.forward(sent)
    return sent


def rolled_back(run: Run, writer: TopicWriter, size: int) -> list[Envelope]:
    try:
        with run.transaction() as transaction:
            writer.forward(batch(size), connection=transaction)
            raise Undone
    except Undone:
        return []


def in_savepoints(run: Run, writer: TopicWriter, size: int) -> list[Envelope]:
    """Each part has a number of its own for PostgreSQL; every second one is undone."""
    kept: list[Envelope] = []
    with run.transaction() as transaction:
        for part in range(6):
            sent = batch(size // 6)
            try:
                with transaction.savepoint():
                    writer.forward(sent, connection=transaction)
                    if part % 2:
                        raise Undone
                kept += sent
            except Undone:
                pass
    return kept


def one_by_one(run: Run, writer: TopicWriter, size: int) -> list[Envelope]:
    """Ids of others come in between, and the transaction stays open the longer."""
    sent = batch(size // 20)
    with run.transaction(durable=False) as transaction:
        for envelope in sent:
            writer.forward([envelope], connection=transaction)
    return sent


WAYS: list[Callable[[Run, TopicWriter, int], list[Envelope]]] = [
    at_once, at_once, at_once, sent_again, rolled_back, in_savepoints, one_by_one,
]  # fmt: skip


def main(url: str, run_id: str, seed: int, rounds: int, size: int) -> None:
    rng = random.Random(seed)
    with Database(url, max_pool_size=2, min_idle=1) as database:
        run = database.run(run_id)
        with run.writer("t") as writer:
            for _ in range(rounds):
                sent = rng.choice(WAYS)(run, writer, size)
                sys.stdout.write("".join(f"{envelope.message_id}\n" for envelope in sent))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
