"""An indexer's subscription to a topic of batch files: its consumer group, bound to the table that it fills.

Messages of a group can also be acknowledged for it, if the table already has the ticks of their files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ticklake.contracts import BatchInfo
from ticklake.coordination import NO_TABLE, Batch, BoundGroup, Coordinator, Target, bind, groups_of_table
from ticklake.defaults import BATCH_TOPIC
from ticklake.errors import TickLakeError
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches, check_run_of_key, id_at
from ticklake.indexers.errors import DatabaseNeeded
from ticklake.lake.empty import Ticks
from ticklake.lake.ledger import Ledger
from ticklake.storage import Storage, parse_batch_name, read_ticks, stretches_of
from ticklake.ticks import TickRange, merged, on_grid
from ticklake.topics import Message, Run, TopicReader, new_consumer_id

log = logging.getLogger(__name__)

_ALONE = 2
"""A message that has this many attempts left is delivered alone (see `Run.reader`, `redeliver_alone`)."""

_PAGE = 500
_MAX_KEPT = 2_000
"""Stops after this many messages whose ticks are not in the table: then there is work for an indexer."""
_MANY_ATTEMPTS = 1_000_000_000
"""Looking at a message never makes it a dead letter."""


def subscribe(
    indexer: Indexer,
    run_id: str,
    ledger: Ledger | None,
    open_ledger: Callable[[], Ledger] | None,
    step: int,
    *,
    mark: bool,
) -> TopicBatches:
    """Joins the indexer's group. With `mark`, batches are marked as processed, so that they are not read again.

    An indexer without a table has no ledger. `open_ledger` opens a second one, because the flusher uses the first.
    """
    resources, options = indexer.resources, indexer.options
    topic = resources.topic or BATCH_TOPIC
    if resources.database is None:
        raise DatabaseNeeded(name=indexer.name, topic=topic)
    run, group = resources.database.run(run_id), resources.group or indexer.name
    kind = type(indexer).__name__
    bind(run, topic, group, kind, Target.at(ledger.id, ledger.location.url) if ledger else NO_TABLE, id_at)
    reader = open_reader(resources, run, topic, group, options)
    # A mark is for one group and one table. A new table has no marks.
    processed = run.processed(f"{kind}/{reader.group}/{ledger.id if ledger else ''}") if mark else None
    has_ticks = _has_ticks(open_ledger(), step) if mark and open_ledger else None
    return TopicBatches(run, reader, options.claim_timeout, resources.storage, indexer.monitor, processed, has_ticks)


def _has_ticks(ledger: Ledger, step: int) -> Callable[[TickRange], bool]:
    """Returns a function that returns whether the table has all of these ticks."""

    def has_ticks(ticks: TickRange) -> bool:
        ledger.refresh()
        found, wanted = ledger.present([ticks]), on_grid(ticks, step)
        return int((found % step == 0).sum()) == wanted.count(step)

    return has_ticks


def open_reader(resources: IndexerResources, run: Run, topic: str, group: str, options: IndexerOptions) -> TopicReader:
    """Opens a reader. First releases what earlier lives of this node have claimed, so that nobody waits for them."""
    life = resources.consumer() if resources.consumer is not None else ""
    if life:
        _release_earlier(run, topic, group, life, options.max_delivery_attempts, resources.is_over)
    return run.reader(
        topic,
        group=group,
        claim_timeout=options.claim_timeout,
        max_delivery_attempts=options.max_delivery_attempts,
        consumer=f"{life}:{new_consumer_id()}" if life else None,
        redeliver_alone=True,
    )


def _release_earlier(
    run: Run, topic: str, group: str, life: str, max_attempts: int, is_over: Callable[[str], bool] | None = None
) -> None:
    """Releases claims of ended processes of this node.

    A process that is killed or restarted says little about its messages. So these deliveries count as attempts only
    until the message is delivered alone. Then it can harm no other.
    """
    node = life.partition("/")[0]
    held = run.claims.list(topic=topic, group=group, limit=None)
    earlier = [one for one in held if one.consumer.startswith(f"{node}/") and not one.consumer.startswith(f"{life}:")]
    if is_over is not None:
        others = {_life_in(one.consumer) for one in earlier}
        over = {other for other in others if is_over(other)}
        earlier = [one for one in earlier if _life_in(one.consumer) in over]
    forgiven = [one for one in earlier if max_attempts - one.attempts < _ALONE]
    released = run.claims.release(forgiven, forgiven=True)
    released += run.claims.release([one for one in earlier if one not in forgiven])
    if released:
        log.info("Run %s: released %d claims that this node held before it was restarted", run.id, released)


def _life_in(consumer: str) -> str:
    """Returns LIFE of a consumer that is named NODE/LIFE:ID."""
    return consumer.partition("/")[2].partition(":")[0]


@dataclass(frozen=True)
class Acknowledged:
    """The messages of a group that were acknowledged, because its table has their ticks. `left`: all that are open."""

    table: str
    topic: str
    group: str
    acknowledged: int
    left: int


def acknowledge_present(indexer: Indexer, run_id: str, ledger: Ledger, step: int) -> list[Acknowledged]:
    """Acknowledges the messages of all groups that fill this table, if all ticks of the announced file are in it.

    Messages are claimed as every consumer claims them, so those of another consumer are left alone. If this fails, the
    table has the ticks all the same.
    """
    if indexer.resources.database is None:
        return []
    try:
        return _acknowledge_present(indexer, indexer.resources.database.run(run_id), ledger, step)
    except (TickLakeError, OSError) as error:
        indexer.monitor.errors.record("NOT_ACKNOWLEDGED", error, run_id)
        log.warning("The messages of files in %s are not acknowledged: %s", ledger.location, error)
        return []


def _acknowledge_present(indexer: Indexer, run: Run, ledger: Ledger, step: int) -> list[Acknowledged]:
    table = Target.at(ledger.id, ledger.location.url)
    groups = [one for one in groups_of_table(run, table, id_at) if run.groups.lag(one.topic, one.group)]
    if not groups:
        return []
    coordinator = Coordinator(run, type(indexer).__name__, step=step, table=table)
    completed = {f"{run.id}/{one.name}": one for one in coordinator.batches() if one.status == "completed"}
    present = _Present(run.id, indexer.resources.storage, ledger, step, completed)
    found = []
    for one in groups:
        done = _acknowledge(run, one, present)
        left = run.groups.lag(one.topic, one.group)
        found.append(Acknowledged(ledger.table.name, one.topic, one.group, done, left))
    return found


def _acknowledge(run: Run, bound: BoundGroup, present: _Present) -> int:
    done, kept = 0, dict[str, Message]()
    with run.reader(bound.topic, group=bound.group, max_delivery_attempts=_MANY_ATTEMPTS) as reader:
        try:
            while len(kept) < _MAX_KEPT and (messages := reader.poll_many(_PAGE, 0)):
                again = kept.keys() & {message.id for message in messages}
                kept |= {message.id: message for message in messages}
                if again:  # the claims have expired: this takes too long
                    break
                ready = present.of(messages)
                with run.transaction() as transaction:
                    if not bound.is_bound(transaction):
                        break
                    done += sum(reader.ack_many(ready, connection=transaction))
                for message in ready:
                    del kept[message.id]
        finally:
            reader.release(kept.values())
    return done


class _Present:
    """Finds the messages whose files are completely in a table."""

    def __init__(self, run_id: str, storage: Storage, ledger: Ledger, step: int, completed: dict[str, Batch]) -> None:
        """`completed`: the files that an indexer of this table has completed, by key."""
        self._run_id, self._storage, self._ledger, self._step = run_id, storage, ledger, step
        self._completed = completed

    def of(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages of files whose ticks are all in the table."""
        wanted = {message.id: self._wanted(message) for message in messages}
        asked = merged((one for ranges in wanted.values() for one in ranges), self._step)
        self._ledger.refresh()
        found = self._ledger.present(asked)
        sampled = found[found % self._step == 0]
        there = {one.id for one in messages if wanted[one.id] and self._covers(sampled, wanted[one.id])}
        known = [one for one in messages if one.id in there and _key_of(one) in self._completed]
        other = [one for one in messages if wanted[one.id] and one not in known]
        return [*known, *(one for one in other if (one.id in there or self._is_coarse(one)) and self._has(one, found))]

    def _is_coarse(self, message: Message) -> bool:
        """Returns whether a file was sampled more coarsely than its run. Then it lacks nothing for that."""
        try:
            chunks = stretches_of(self._storage, self._storage.batch(_key_of(message)), self._step)
        except (TickLakeError, OSError):
            return False
        return any(one.step > self._step for one in chunks)

    def _wanted(self, message: Message) -> list[TickRange]:
        """Returns the ticks of the announced file; nothing if it is not known which ticks it has."""
        info = message.payload
        if not isinstance(info, BatchInfo) or info.simulation_run_id != self._run_id:
            return []
        try:
            check_run_of_key(message, info.storage_key, self._run_id)
            ticks, batch = parse_batch_name(info.storage_key.rpartition("/")[2]), self._completed.get(info.storage_key)
            if batch is not None and batch.missing.ranges:
                is_same = self._storage.stamp(info.storage_key) == batch.missing.stamp
                return batch.present_ticks(self._step) if is_same else []
            return [] if ticks is None else [on_grid(ticks, self._step)]
        except (TickLakeError, OSError) as error:
            log.debug("Message %s is not acknowledged: %s", message.id, error)
            return []

    def _covers(self, sampled: Ticks, wanted: Sequence[TickRange]) -> bool:
        counts = [np.searchsorted(sampled, one.end, "right") - np.searchsorted(sampled, one.start) for one in wanted]
        return all(count == one.count(self._step) for count, one in zip(counts, wanted, strict=True))

    def _has(self, message: Message, found: Ticks) -> bool:
        """Returns whether these ticks are all of a file. Reads it: no record says that an indexer has done so."""
        try:
            file = self._storage.batch(_key_of(message))
            chunks = read_ticks(self._storage, file, fields=())
            return all(np.isin(chunk.column("tick_number").to_numpy(), found).all() for chunk in chunks)
        except (TickLakeError, OSError) as error:
            log.debug("Message %s is not acknowledged: %s", message.id, error)
            return False


def _key_of(message: Message) -> str:
    return message.payload.storage_key if isinstance(message.payload, BatchInfo) else ""
