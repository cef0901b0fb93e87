"""What `end` and `runs close` share: both record how a run was closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from ticklake.cli.options.numbers import Seconds
from ticklake.cli.options.places import needed, opened_all
from ticklake.cli.terminal.output import echo, print_json

if TYPE_CHECKING:
    from ticklake.completeness import Ended

silent_for_option = click.option(
    "--silent-for",
    type=Seconds(),
    default=60,
    show_default=True,
    help="Refuse if anything has arrived for the run within this many seconds; 0: only warn.",
)
run_topic_option = click.option(
    "--topic", "run_topic", metavar="TOPIC", help="Topic for ends of runs; default: detected."
)


def close_by_hand(
    record: Callable[..., Ended],
    run: str,
    storage: str | None,
    databases: Sequence[str],
    topic: str | None,
    last_tick: int | None,
    silent_for: float,
    as_json: bool,
) -> None:
    """Records the end with `record` and prints it."""
    storage = needed("storage", storage, "the end of a run is recorded beside its batch files")
    from ticklake.insights import chosen_run
    from ticklake.storage import Storage

    place = Storage(storage)
    with opened_all(databases) as opened:
        run = chosen_run(run, place.runs(), place.url)
        ended = record(place, run, opened, topic=topic, last_tick=last_tick, silent_for=silent_for)
    if ended.may_be_alive:
        echo(
            f"Warning: a file or a message of run {run} arrived {ended.silent_seconds:.0f} seconds ago. If its "
            "producer is alive, its next write fails, and what it has in memory is lost. If it must go on, remove "
            "completed.pb from the folder of the run at once.",
            err=True,
        )
    if as_json:
        figures = {name: getattr(ended, name) for name in ("last_tick", "recorded", "announced", "silent_seconds")}
        print_json({"run": run, "state": ended.life.state, **figures})
    else:
        echo(f"Run {run} {_text(ended)}.")


def _text(ended: Ended) -> str:
    words = {"ended": ("has", "had already"), "abandoned": ("is", "was already")}
    return f"{words[ended.life.state][0 if ended.recorded else 1]} {ended.life}"
