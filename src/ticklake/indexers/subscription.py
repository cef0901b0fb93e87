"""An indexer's subscription to a topic of batch files: its consumer group, bound to the table that it fills."""

from __future__ import annotations

from collections.abc import Callable

from ticklake.coordination import NO_TABLE, Target, bind
from ticklake.defaults import BATCH_TOPIC
from ticklake.indexers.base import Indexer
from ticklake.indexers.batches import TopicBatches, id_at
from ticklake.indexers.errors import DatabaseNeeded
from ticklake.lake.ledger import Ledger
from ticklake.ticks import TickRange, on_grid


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
    reader = run.reader(
        topic,
        group=group,
        claim_timeout=options.claim_timeout,
        max_delivery_attempts=options.max_delivery_attempts,
    )
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
