"""An indexer's subscription to a topic of batch files: its consumer group, bound to the table that it fills."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ticklake.coordination import NO_TABLE, Target, bind
from ticklake.defaults import BATCH_TOPIC
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches, id_at
from ticklake.indexers.errors import DatabaseNeeded
from ticklake.lake.ledger import Ledger
from ticklake.ticks import TickRange, on_grid
from ticklake.topics import Run, TopicReader, new_consumer_id

log = logging.getLogger(__name__)

MANY_CLAIMS = 100
"""A message that was claimed this often may end the process that indexes it."""


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
    bind(run, topic, group, kind, Target.at(ledger.id, ledger.directory) if ledger else NO_TABLE, id_at)
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
        _release_earlier(run, topic, group, life)
    return run.reader(
        topic,
        group=group,
        claim_timeout=options.claim_timeout,
        max_delivery_attempts=options.max_delivery_attempts,
        consumer=f"{life}:{new_consumer_id()}" if life else None,
    )


def _release_earlier(run: Run, topic: str, group: str, life: str) -> None:
    """Releases claims of ended processes of this node.

    A process that is killed or restarted says nothing about its messages, so these deliveries do not count as attempts.
    After very many of them they count: then the message may be what ends the process.
    """
    node = life.partition("/")[0]
    held = run.claims.list(topic=topic, group=group, limit=None)
    earlier = [one for one in held if one.consumer.startswith(f"{node}/") and not one.consumer.startswith(f"{life}:")]
    suspects = [one for one in earlier if one.version >= MANY_CLAIMS]
    released = run.claims.release([one for one in earlier if one.version < MANY_CLAIMS], forgiven=True)
    released += run.claims.release(suspects)
    if released:
        log.info("Run %s: released %d claims that this node held before it was restarted", run.id, released)
