"""`ticklake run`: a node from a configuration, until it is stopped or all of its services have ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ticklake.cli._interrupt import end_now, graceful_stop
from ticklake.cli._logs import set_up_logs
from ticklake.errors import WebMissing

if TYPE_CHECKING:
    from ticklake.node import Node

LOOK_SECONDS = 0.2
FAILED, LATE = 1, 3


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--stop-timeout", type=click.FloatRange(min=0), help="Seconds that services have for a clean stop.")
@click.option("--http", "port", type=click.IntRange(0, 65535), help="Serve metrics and control on this port; 0: any.")
@click.pass_context
def run(context: click.Context, config: str, stop_timeout: float | None, port: int | None) -> None:
    """Run the services that CONFIG describes. Ctrl-C stops them cleanly, twice at once; nothing is lost either way."""
    from ticklake.config import load
    from ticklake.node import Node

    settings = load(config)
    set_up_logs(context, settings.node.log)
    node = Node(settings)
    with graceful_stop() as stop, _http(node, settings.node.http.port if port is None else port):
        click.echo(f"Running {', '.join(node.services)}. Ctrl-C stops.", err=True)
        while not node.ended and not stop.wait(LOOK_SECONDS):
            pass
        clean = node.stop(stop_timeout)
    for service in node.failed:
        click.echo(f"{service.name} failed: {service.error}", err=True)
    if not clean:
        end_now(LATE)  # threads that did not stop would keep the process
    if node.failed:
        raise click.exceptions.Exit(FAILED)
    click.echo("Stopped; everything that was accepted is written.", err=True)


@contextmanager
def _http(node: Node, port: int | None) -> Iterator[None]:
    """Starts the node, and with a port its HTTP side: the address is taken before anything else is."""
    if port is None:
        node.start()
        yield
        return
    try:
        from ticklake.web.server import open_server
    except ModuleNotFoundError as error:
        raise WebMissing(module=error.name) from error
    server = open_server(node, node.settings.node.http.model_copy(update={"port": port}))
    try:
        node.start()
        node.instance.tell(url=server.url)
        server.start()
        click.echo(f"Listening on {server.url}", err=True)
        yield
    finally:
        server.stop()
