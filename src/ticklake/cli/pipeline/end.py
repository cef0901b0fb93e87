"""`ticklake end`: records the end of a run, for producers that do not record it themselves."""

from __future__ import annotations

import click

from ticklake.cli.options.numbers import count
from ticklake.cli.options.places import config_option, database_option, storage_option
from ticklake.cli.options.silence import close_by_hand, run_topic_option, silent_for_option
from ticklake.cli.terminal.output import json_option


@click.command()
@click.argument("run")
@config_option(expose=False)
@storage_option
@database_option
@run_topic_option
@click.option("--last-tick", type=count(), help="The last tick; default: the last tick of the last file.")
@silent_for_option
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

    With a database, the end is also announced on the topic that the producer would have used. If its producer has not
    written all ticks and will not come back, use `ticklake runs close`.
    """
    from ticklake.completeness import end_run

    close_by_hand(end_run, run, storage, database, run_topic, last_tick, silent_for, as_json)
