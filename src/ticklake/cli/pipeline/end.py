"""`ticklake end`: records the end of a run, for producers that do not record it themselves."""

from __future__ import annotations

import click

from ticklake.cli.options.numbers import Seconds, count
from ticklake.cli.options.places import config_option, database_option, needed, opened_all, storage_option
from ticklake.cli.terminal.output import json_option, print_json


@click.command()
@click.argument("run")
@config_option(expose=False)
@storage_option
@database_option
@click.option("--topic", "run_topic", metavar="TOPIC", help="Topic for ends of runs; default: detected.")
@click.option("--last-tick", type=count(), help="The last tick; default: the last tick of the last file.")
@click.option(
    "--silent-for",
    type=Seconds(),
    default=60,
    show_default=True,
    help="Refuse if the run has written anything within this many seconds; 0: do not check.",
)
@json_option
def end(
    run: str,
    storage: str | None,
    database: tuple[str, ...],
    run_topic: str | None,
    last_tick: int | None,
    silent_for: float,
    as_json: bool,
) -> None:
    """Record that RUN has ended, so that `verify` can find it complete.

    With a database, the end is also announced on the topic that the producer would have used.
    """
    storage = needed("storage", storage, "the end of a run is recorded beside its batch files")
    from ticklake.completeness import end_run
    from ticklake.insights import chosen_run
    from ticklake.storage import Storage

    place = Storage(storage)
    with opened_all(database) as opened:
        run = chosen_run(run, place.runs(), place.url)
        ended = end_run(place, run, opened, topic=run_topic, last_tick=last_tick, silent_for=silent_for)
    if as_json:
        print_json({"run": run, **ended._asdict()})
    else:
        click.echo(f"Run {run} {'has ended' if ended.recorded else 'had already ended'} at tick {ended.last_tick:,}.")
