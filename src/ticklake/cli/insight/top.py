"""`ticklake top`: watches a run: services, lag, rows per second, gaps, dead letters, errors, and names other runs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from ticklake.cli.options.numbers import Seconds
from ticklake.cli.options.places import config_and_places_options, open_places
from ticklake.cli.terminal.frame import Frame, as_json, picture
from ticklake.cli.terminal.interrupt import handled_by
from ticklake.cli.terminal.output import echo
from ticklake.errors import TickLakeError

if TYPE_CHECKING:
    from ticklake.insights import Glance, Places

LOOK_SECONDS = 1.0
"""The longest time that a frame looks for other runs with work. The next frame continues from there."""


@click.command()
@click.argument("run", required=False)
@config_and_places_options
@click.option(
    "--node",
    metavar="URL",
    help="HTTP address of a node, to show its services. The token is read from TICKLAKE_TOKEN.",
)
@click.option("--interval", type=Seconds(0.1), default=2.0, show_default=True, help="Seconds between refreshes.")
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option("--json", "lines", is_flag=True, help="Print each frame as a JSON object on one line.")
def top(
    run: str | None, config: str | None, storage: str | None, lake: str | None, database: tuple[str, ...],
    node: str | None, interval: float, once: bool, lines: bool,
) -> None:  # fmt: skip
    """Watch RUN until Ctrl-C. Default: the newest run. Changes nothing; each refresh reads a bounded amount."""
    if node is not None:
        from ticklake.node.client import check_address

        check_address(node)
    elif config:
        from ticklake.config import load
        from ticklake.node.client import address_of

        node = address_of(load(config))
    with open_places(storage, lake, database) as places, _ended_by_signals():
        frames = _frames(places, run, node, interval)
        if once:
            frame = next(frames)
            _print(frame, lines)
            if frame.unread:
                raise click.exceptions.Exit(1)
        elif lines:
            for frame in frames:
                _print(frame, lines)
        else:
            _watch(frames)


def _frames(places: Places, run_id: str | None, node: str | None, interval: float) -> Iterator[Frame]:
    """Yields frames forever. An outage is shown in the frame and does not end it."""
    from ticklake.insights import Backlogs, rows_per_second
    from ticklake.node.client import services_of, token_of

    seen: Glance | None = None
    rates: dict[str, float] = {}
    looks = Backlogs(lambda: places.databases, storages=[places.storage] if places.storage else [])
    pause = threading.Event()
    while True:
        problem = None
        try:
            before, seen = seen, places.glance(run_id)
            rates = rows_per_second(before, seen)
        except (TickLakeError, OSError) as error:
            problem = " ".join(str(error).split())
        services, refusal = None, None
        try:
            services = services_of(node, token_of())
        except TickLakeError as error:
            refusal = str(error)
        shown = seen.run_id if seen else run_id
        found = looks.look_at_all(LOOK_SECONDS)
        counted = seen.with_files(found.coordinated_of(seen.run_id)) if seen else None
        others = found.without([shown] if shown else [])
        yield Frame(time.time(), counted, rates, services, problem, refusal, run_id, others)
        pause.wait(interval)


def _print(frame: Frame, lines: bool) -> None:
    from rich.console import Console

    if lines:
        echo(as_json(frame))
    else:
        Console(highlight=False).print(picture(frame))


def _watch(frames: Iterator[Frame]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        for frame in frames:
            console.print(picture(frame))
        return
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        for frame in frames:
            live.update(picture(frame), refresh=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leaves on Ctrl-C or SIGTERM. The terminal is restored and the exit code is 0."""
    with handled_by(signal.default_int_handler), suppress(KeyboardInterrupt):
        yield
