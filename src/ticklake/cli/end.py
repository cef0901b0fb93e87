"""`ticklake end`: records that a run has ended, for producers that do not say so themselves."""

from __future__ import annotations

import click

from ticklake.cli._output import json_option, print_json


@click.command()
@click.argument("run")
@click.option("--storage", metavar="DIR", envvar="TICKLAKE_STORAGE", required=True, help="Where the batch files are.")
@click.option("--database", metavar="URL", envvar="TICKLAKE_DATABASE", help="Also announce the end on the run's topic.")
@click.option("--last-tick", type=click.IntRange(min=0), help="The last tick; default: that of the last file.")
@click.option(
    "--silent-for",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="Refuse if anything came within so many seconds; 0 does not ask.",
)
@json_option
def end(run: str, storage: str, database: str | None, last_tick: int | None, silent_for: float, as_json: bool) -> None:
    """Record that RUN has ended, as a producer does itself: from then on `verify` can call it complete."""
    from contextlib import nullcontext

    from ticklake.errors import RunNotFound
    from ticklake.services.ending import end_run
    from ticklake.storage.files import Storage
    from ticklake.topics import Database

    place = Storage(storage)
    with Database(database) if database else nullcontext() as opened:
        if run not in (runs := place.runs()):
            raise RunNotFound(run_id=run, places=place.url, found=", ".join(runs[-5:]) or "none")
        topics = opened.run(run) if opened is not None else None
        ended = end_run(place, run, topics, last_tick=last_tick, silent_for=silent_for)
    if as_json:
        print_json({"run": run, **ended._asdict()})
    else:
        click.echo(f"Run {run} {'has ended' if ended.recorded else 'had ended already'} at tick {ended.last_tick:,}.")
