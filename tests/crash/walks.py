"""Walks past every write of a package. A walk that was ended by a crash is taken again from its beginning.

Each has steps, and a journal of those that are done; a step that was cut short must do no harm when it is done again.
What is there at the end is told by the `…_state` of the same name, and must not depend on where a walk was cut short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from consumer_child import GROUP, IN, OUT, open_consumer
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import BatchInfo, Database
from ticklake.consumer import Outbox, relay
from ticklake.consumer.processed import ProcessedMessages
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator, frontiers
from ticklake.coordination.gaps import MissingTicks
from ticklake.coordination.groups import bind, unbind
from ticklake.coordination.target import Target
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.lake.verify.coverage import covered
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import encode_ticks
from ticklake.storage.files import Storage
from ticklake.storage.objects import ObjectFolder
from ticklake.ticks import TickRange
from ticklake.topics import Run

LEASE = 0.03
MESSAGES = 4
Step = Callable[[], object]


def take(journal: Path, steps: list[Step]) -> None:
    """The steps that are not done yet, each until it says that nothing is left."""
    done = int(journal.read_text() or 0) if journal.exists() else 0
    for number in range(done, len(steps)):
        steps[number]()
        waiting = journal.with_suffix(".next")
        waiting.write_text(str(number + 1))
        waiting.replace(journal)


# Topics


def topics(url: str, run_id: str, journal: str) -> None:
    with Database(url) as database:
        run = database.run(run_id)
        take(
            Path(journal),
            [
                lambda: _send(run),
                lambda: _lose_a_claim(run),
                lambda: _consume(run, "g"),
                lambda: _bury(run, "h"),
                run.dead_letters.replay,
                lambda: _consume(run, "h"),
                lambda: _bury(run, "i"),
                run.dead_letters.discard,
                lambda: run.groups.reset("t", "g", "earliest"),
                lambda: _free_by_hand(run),
                lambda: _forget_what_was_claimed(run),
                lambda: _set_the_clock_back(run),
                lambda: _consume(run, "g"),
                lambda: _restore_into_another_server(url, run_id),
                lambda: _consume(run, "g"),
                lambda: _forget_how_far_it_came(url, run),
                lambda: _consume(run, "g"),
                lambda: run.processed("X").mark(["one"]),
                lambda: run.remove_outdated("t", max_count=2),
            ],
        )


def topics_state(url: str, run_id: str) -> object:
    with Database(url) as database:
        run = database.run(run_id)
        groups = sorted((status.group, status.lag, status.claimed, status.dead_letters) for status in run.groups.list())
        with run.reading() as view:
            ((acked,),) = view.execute(
                "SELECT count(*) FROM topic_consumer_group WHERE acknowledged_at IS NOT NULL AND consumer_group <> 'i'",
                {},
            )
        return _numbers(run, "t"), groups, acked, run.processed("X").contains("one")


def _numbers(run: Run, topic: str) -> list[int]:
    return [m.payload.tick_start for stored in run.browse(topic, limit=1000) if (m := stored.opened())]  # type: ignore[attr-defined]


def _send(run: Run) -> None:
    """A sender who looks what has arrived before it goes on."""
    with run.writer("t") as writer:
        for number in range(len(_numbers(run, "t")), MESSAGES):
            writer.send(BatchInfo(tick_start=number))


def _lose_a_claim(run: Run) -> None:
    """Somebody claims, and is never heard of again."""
    with run.reader("t", group="g", claim_timeout=LEASE, max_delivery_attempts=100) as slow:
        slow.poll(0)
        time.sleep(2 * LEASE)
        with run.reader("t", group="g", claim_timeout=10 * LEASE, max_delivery_attempts=100) as other:
            other.poll_many(MESSAGES, 0)


def _consume(run: Run, group: str) -> None:
    """Until all is acknowledged, but not each at the first try."""
    tried: set[str] = set()
    with run.reader("t", group=group, claim_timeout=4 * LEASE, max_delivery_attempts=100) as reader:
        while _lag(run, group):
            for message in reader.poll_many(MESSAGES, LEASE):
                number = message.payload.tick_start  # type: ignore[attr-defined]
                reader.extend([message])
                if number == 0 and message.id not in tried:
                    reader.fail(message, "not yet")
                elif number == 1 and message.id not in tried:
                    reader.release([message])
                else:
                    reader.ack(message)
                tried.add(message.id)


def _lag(run: Run, group: str) -> int:
    return next(status.lag for status in run.groups.list("t") if status.group == group)


def _bury(run: Run, group: str) -> None:
    with run.reader("t", group=group, claim_timeout=LEASE, max_delivery_attempts=1) as reader:
        while run.dead_letters.count() < MESSAGES:
            for message in reader.poll_many(MESSAGES, LEASE):
                # The last one is left to expire: who was delivered too often is buried by the next to look.
                if message.payload.tick_start < MESSAGES - 1:  # type: ignore[attr-defined]
                    reader.fail(message, "never")


def _free_by_hand(run: Run) -> None:
    with run.reader("t", group="g", claim_timeout=3600, max_delivery_attempts=100) as reader:
        reader.poll(LEASE)
        run.claims.release(run.claims.list())


def _forget_what_was_claimed(run: Run) -> None:
    """The connection broke, and with it the answer to the claim."""
    with run.reader("t", group="g", claim_timeout=10 * LEASE, max_delivery_attempts=100) as reader:
        reader.poll(LEASE)
        reader.monitor.healthy = False
        reader.poll(0)


def _set_the_clock_back(run: Run) -> None:
    """A claim that was made an hour from now: its lease begins again with the next claim."""
    with run.reader("t", group="g", claim_timeout=10 * LEASE, max_delivery_attempts=100) as reader:
        reader.poll(LEASE)
        with run.transaction() as transaction:
            transaction.execute(
                "UPDATE topic_consumer_group SET since = since + 3600000, lease_until = lease_until + 3600000 "
                "WHERE consumer_group = 'g' AND claimed_by IS NOT NULL AND acknowledged_at IS NULL",
                {},
            )
        reader.poll(0)


def _restore_into_another_server(url: str, run_id: str) -> None:
    """The run has transaction numbers that the server has not given yet, and is opened again."""
    if not url.startswith("postgres"):
        return
    with Database(url) as database, database.run(run_id).transaction() as transaction:
        transaction.execute("UPDATE topic_messages SET xid = (xid::text::bigint + 1000000000)::text::xid8", {})
        transaction.execute(
            """UPDATE topic_positions SET seen = concat(
                   pg_snapshot_xmin(seen)::text::bigint + 1000000000, ':',
                   pg_snapshot_xmax(seen)::text::bigint + 1000000000, ':',
                   (SELECT string_agg((one::text::bigint + 1000000000)::text, ',' ORDER BY one)
                    FROM pg_snapshot_xip(seen) AS one))::pg_snapshot""",
            {},
        )
    with Database(url) as database:
        database.run(run_id).groups.list()


def _forget_how_far_it_came(url: str, run: Run) -> None:
    """The group has claims that its position does not know of, as an older version could leave it."""
    if url.startswith("postgres"):
        with run.transaction() as transaction:
            transaction.execute("UPDATE topic_positions SET frontier = 0, reached = 0 WHERE consumer_group = 'g'", {})


# The idempotent consumer and its outbox

EVENTS = 20


def consumer(url: str, run_id: str, journal: str) -> None:
    with Database(url) as database:
        run = database.run(run_id)
        steps: list[Step] = [
            lambda: _make_books(run),
            lambda: _send_events(run),
            lambda: _work(run),
            lambda: _fail_to_relay(run),
            lambda: _relay(run),
            lambda: _forget(run),
        ]
        take(Path(journal), steps)


def consumer_state(url: str, run_id: str) -> object:
    with Database(url) as database:
        run = database.run(run_id)
        with run.reading() as view:
            booked = [row[0] for row in view.execute("SELECT number FROM booked ORDER BY number", {})]
        outgoing = [stored.opened() for stored in run.browse(OUT, limit=1000)]
        published = sorted(one.payload.written_at_ms for one in outgoing if one)  # type: ignore[attr-defined]
        (status,) = run.groups.list(IN)
        return booked, published, status.lag, status.dead_letters, Outbox(run, OUT).count_unsent()


def _make_books(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE IF NOT EXISTS booked (number integer)")


def _send_events(run: Run) -> None:
    with run.writer(IN) as writer:
        for number in range(len(_numbers(run, IN)), EVENTS):
            writer.send(BatchInfo(simulation_run_id=str(UUID(int=number)), tick_start=number))


def _work(run: Run) -> None:
    with open_consumer(run, 4 * LEASE) as worker:
        while not (groups := run.groups.list(IN)) or groups[0].lag:
            worker.process(LEASE)


def _fail_to_relay(run: Run) -> None:
    outbox = Outbox(run, OUT)
    with run.transaction() as transaction:
        rows = outbox.unsent(1, transaction)
    outbox.record_attempt([row.id for row in rows], ValueError("not yet"))


def _relay(run: Run) -> None:
    relay.LONGEST_RETRY = LEASE
    with open_consumer(run, 4 * LEASE) as worker:
        while Outbox(run, OUT).count_unsent():
            worker.run_until_caught_up()


def _forget(run: Run) -> None:
    ProcessedMessages(run, IN, GROUP).prune(0)
    Outbox(run, OUT).prune(0)


# The coordinator

TABLE = Target("1", "file:///lake", "here")
MADE_ANEW = TABLE._replace(table_id="2")


def coordinator(url: str, run_id: str, journal: str) -> None:
    with Database(url) as database:
        run = database.run(run_id)
        shared = Coordinator(run, "X", step=1, lease=LEASE)
        files = [FoundFile(f"{number:02d}", TickRange(number, number + 9)) for number in (0, 20, 40)]
        take(
            Path(journal),
            [
                lambda: _finish(shared, files, bad="20"),
                lambda: shared.make_permanent(0),
                lambda: _finish(shared, [FoundFile("13", TickRange(13, 15))]),
                shared.retry_failed,
                lambda: _finish(shared, files),
                lambda: shared.reopen_missing([TickRange(2, 4)]),
                lambda: _finish(shared, files),
                lambda: shared.record_end(70),
                lambda: _finish(Coordinator(run, "Y", step=1, lease=LEASE), files, bad="20"),
                lambda: _finish(Coordinator(run, "Z", step=1, lease=LEASE), files[:1], lacks=(TickRange(4, 5),)),
                lambda: _restart(run, files),
                lambda: Coordinator(run, "Y", step=1, table=TABLE).register(lambda *_: None),
                lambda: Coordinator(run, "Y", step=1, table=MADE_ANEW).register(lambda *_: None),
                lambda: bind(run, "t", "g", "X", TABLE, lambda *_: None),
                lambda: bind(run, "t", "g", "X", MADE_ANEW, lambda *_: None),
                lambda: unbind(run, "t", "g"),
            ],
        )


def coordinator_state(url: str, run_id: str) -> object:
    with Database(url) as database:
        shared = Coordinator(database.run(run_id), "X", step=1, lease=LEASE)
        gaps = sorted((gap.ticks, gap.status) for gap in shared.gaps())
        return shared.batches(), gaps, sorted(frontiers(database.run(run_id)).items())


def _restart(run: Run, files: list[FoundFile]) -> None:
    """A process of a node claims a file and ends; the next one of the same node releases the claim and goes on."""
    Coordinator(run, "W", step=1, lease=LEASE, instance="node/1:a").claim(files[:1], 1)
    again = Coordinator(run, "W", step=1, lease=LEASE, instance="node/2:a")
    again.release_earlier("node/2")
    _finish(again, files[:1])


def _finish(shared: Coordinator, files: list[FoundFile], bad: str = "", lacks: tuple[TickRange, ...] = ()) -> None:
    """Claim what is free, give the first back once, and do the rest; what a dead one has left is taken over."""
    names = {one.name for one in files}
    given_back = False
    shared.claim(files[:1], 1)
    shared.release_except([])  # the answer to that claim was lost
    while True:
        claims = shared.claim(files, 2) + shared.take_over(2)
        if claims and not given_back:
            shared.release(claims[:1])
            claims, given_back = claims[1:], True
        shared.renew(claims)
        for claim in claims:
            if claim.name == bad:
                shared.fail(claim, "unreadable")
            else:
                shared.complete([claim], {claim.name: MissingTicks(lacks)})
        known = {batch.name: batch.status for batch in shared.batches()}
        if names <= known.keys() and "claimed" not in known.values():
            return
        time.sleep(LEASE / 2)


# Storage and the lake

TICKS, BATCH = 12, 4


def lake(root: str, run_id: str, journal: str) -> None:
    storage, tables = Storage(Path(root) / "storage"), Lake(Path(root) / "lake")
    take(
        Path(journal),
        [
            lambda: _write_run(storage, run_id),
            lambda: _write_objects(root, run_id),
            lambda: MetadataIndexer("metadata-indexer", IndexerResources(storage, tables)).write(run_id),
            lambda: _index(storage, tables, run_id),
            lambda: _ledger(tables, run_id).remove(TickRange(2, 5)),
            lambda: _index(storage, tables, run_id),
            lambda: _compact(tables, run_id),
            lambda: _tear(tables, run_id),
            lambda: _index(storage, tables, run_id),
            lambda: _vacuum(tables, run_id),
        ],
    )


def lake_state(root: str, run_id: str) -> object:
    storage, tables = Storage(Path(root) / "storage"), Lake(Path(root) / "lake")
    location = tables.location(run_id, "organism_data")
    rows = DeltaTable(str(location)).to_pyarrow_table()
    keys = list(zip(rows["tick_number"].to_pylist(), rows["organism_id"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys), "a key is there twice"
    live = {Path(uri).name for uri in DeltaTable(str(location)).file_uris()}
    orphans = {path.name for path in Path(str(location)).glob("*.parquet")} - live
    files = [file[1:] for file in storage.every_batch(run_id)]
    metadata = DeltaTable(str(tables.location(run_id, "metadata"))).to_pyarrow_table().num_rows
    return sorted(keys), covered(location).ticks.tolist(), sorted(orphans), files, metadata


def _write_run(storage: Storage, run_id: str) -> None:
    world = Ecosystem(SimulationSettings(shape=(10, 10), organisms=3))
    storage.write_metadata(world.metadata(run_id, 0))
    for _ in range(0, TICKS, BATCH):
        ticks = []
        for _ in range(BATCH):
            ticks.append(world.columns(0))
            world.step()
        storage.write_batch(run_id, encode_ticks(run_id, ticks))


def _write_objects(root: str, run_id: str) -> None:
    """Through fsspec, as to an object store, into one that outlives the process."""
    (Path(root) / "objects" / run_id).mkdir(parents=True, exist_ok=True)
    storage = Storage(Path(root) / "objects")
    storage._folder = ObjectFolder(f"local://{root}/objects")
    _write_run(storage, run_id)


def _ledger(tables: Lake, run_id: str) -> Any:
    assert OrganismIndexer.table is not None
    return tables.ledger(run_id, OrganismIndexer.table)


def _index(storage: Storage, tables: Lake, run_id: str) -> None:
    spark: Any = InProcess()
    resources = IndexerResources(storage, tables, spark=lambda: spark)
    options = IndexerOptions(run_id, until_caught_up=True, insert_batch_size=BATCH)
    OrganismIndexer(
        "organism-indexer", resources, options, lambda run, monitor: StoredBatches(storage, run, monitor)
    ).run()


def _compact(tables: Lake, run_id: str) -> None:
    ledger = _ledger(tables, run_id)
    for _ in Compaction(ledger, BY_HAND).steps():
        pass
    ledger.checkpoint()


def _tear(tables: Lake, run_id: str) -> None:
    """A power cut has left another engine's newest commit empty, and a checkpoint torn, and that was long ago."""
    log = Path(str(tables.location(run_id, "organism_data"))) / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
    if (log / f"{newest:020d}.json").stat().st_size:
        (log / f"{newest + 1:020d}.json").touch()
    for checkpoint in log.glob("*.checkpoint.parquet"):
        os.truncate(checkpoint, 10)
    for path in log.iterdir():
        os.utime(path, (0, 0))


def _vacuum(tables: Lake, run_id: str) -> None:
    vacuum = Vacuum(tables.location(run_id, "organism_data"), run_id, 0, force=True)
    list(vacuum.remove(vacuum.find()))
