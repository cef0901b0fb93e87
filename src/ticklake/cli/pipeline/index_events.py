"""`ticklake index-events`: indexes an event queue into the table `events` of a run."""

from __future__ import annotations

from functools import partial

import click

from ticklake.cli.options.database import named_run
from ticklake.cli.options.places import lake_options, needed
from ticklake.cli.pipeline.index import RESUMABLE, SparkSetting
from ticklake.cli.terminal.interrupt import StoppedEarly, graceful_stop
from ticklake.cli.terminal.output import echo, json_option, print_json, print_table
from ticklake.defaults import NEWEST

COLUMNS = ("table", "batches", "failed", "rows")


@click.command()
@click.argument("run")
@click.option("--events", metavar="FILE", required=True, help="File of the event queue.")
@lake_options
@click.option("--master", default="local[*]", show_default=True, help="The Spark master, or sc://… for Connect.")
@click.option("--conf", "settings", type=SparkSetting(), multiple=True, help="A Spark setting; may be repeated.")
@json_option
def index_events(
    run: str, events: str, lake: str | None, master: str, settings: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Index an event queue into the table `events` of RUN. It can be repeated; each event is stored once."""
    lake = needed("lake", lake, "the table is written there")
    with graceful_stop() as stop:
        from ticklake.events import IndexerQueue
        from ticklake.events.records import check_queue
        from ticklake.indexers.events import TABLE, EventIndexer
        from ticklake.lake.lake import Lake
        from ticklake.lake.read import Catalog
        from ticklake.lake.session import open_session

        tables = Lake(lake)
        if run == NEWEST:
            run = named_run(run, [Catalog(lake)])
        queue = IndexerQueue(events)
        check_queue(queue.path)
        if stop.is_set():
            raise StoppedEarly(RESUMABLE)
        with queue:
            session = partial(open_session, master, dict(settings))
            indexer = EventIndexer(queue, tables, run, session, until_drained=True)
            indexer.start()
            while not indexer.join(0.2) and not stop.is_set():
                pass
            indexer.stop(timeout=120)
            dead, number = queue.dead_batches(limit=1), queue.count_dead_batches()
    if indexer.error is not None:
        raise indexer.error
    counts = {name: indexer.monitor.counter(name).value for name in ("batches_processed", "batches_failed")}
    rows = indexer.monitor.counter("events_written").value
    if stop.is_set() and not as_json:
        raise StoppedEarly(f"{RESUMABLE} So far: {rows:,} rows in {TABLE.name}.")
    if as_json:
        print_json({"run": run, "lake": lake, "table": TABLE.name, **counts, "rows": rows})
    else:
        print_table(COLUMNS, [(TABLE.name, *counts.values(), rows)], numbers=COLUMNS[1:])
    if stop.is_set():
        raise StoppedEarly(RESUMABLE)
    if dead:
        batches = "1 dead batch" if number == 1 else f"{number:,} dead batches"
        echo(f"{batches} in {queue.path}: {dead[0].error}. `IndexerQueue.replay` delivers a batch again.", err=True)
    if counts["batches_failed"] or dead:
        raise click.exceptions.Exit(1)
