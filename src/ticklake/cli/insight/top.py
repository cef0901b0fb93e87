"""`ticklake top`: a run while it runs: services, lag, rows a second, gaps, dead letters, errors."""

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
from ticklake.errors import TickLakeError

if TYPE_CHECKING:
    from ticklake.insights import Glance, Places


@click.command()
@click.argument("run", required=False)
@config_and_places_options
@click.option(
    "--node",
    metavar="URL",
    help="The HTTP address of a running node, to see its services; its token is in TICKLAKE_TOKEN.",
)
@click.option("--interval", type=Seconds(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option("--json", "lines", is_flag=True, help="Print one JSON object a frame, each on a line.")
def top(
    run: str | None, config: str | None, storage: str | None, lake: str | None, database: tuple[str, ...],
    node: str | None, interval: float, once: bool, lines: bool,
) -> None:  # fmt: skip
    """Watch a run, the given one or the newest, until Ctrl-C. It reads bounded figures and changes nothing."""
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
            _print(next(frames), lines)
        elif lines:
            for frame in frames:
                _print(frame, lines)
        else:
            _watch(frames)


def _frames(places: Places, run_id: str | None, node: str | None, interval: float) -> Iterator[Frame]:
    """For ever. A database that is away for a while is a line in the picture, not the end of it."""
    from ticklake.insights import rows_per_second
    from ticklake.node.client import services_of, token_of

    seen: Glance | None = None
    rates: dict[str, float] = {}
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
        yield Frame(time.time(), seen, rates, services, problem, refusal)
        pause.wait(interval)


def _print(frame: Frame, lines: bool) -> None:
    from rich.console import Console

    if lines:
        click.echo(as_json(frame))
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
    """Ctrl-C, and SIGTERM alike, is how one leaves: the terminal is put back and all is well."""
    with handled_by(signal.default_int_handler), suppress(KeyboardInterrupt):
        yield
