"""`ticklake run`: a node from a configuration, until it is stopped or all of its services have ended."""

from __future__ import annotations

import click

from ticklake.cli._interrupt import graceful_stop

LOOK_SECONDS = 0.5


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--stop-timeout", default=60.0, show_default=True, help="Seconds that services have for a clean stop.")
def run(config: str, stop_timeout: float) -> None:
    """Run the services that CONFIG describes. Ctrl-C stops them cleanly, twice at once; nothing is lost either way."""
    from ticklake.config import load
    from ticklake.node import Node

    node = Node(load(config))
    with graceful_stop() as stop:
        node.start()
        click.echo(f"Running {', '.join(node.services)}. Ctrl-C stops.", err=True)
        while not node.ended and not stop.wait(LOOK_SECONDS):
            pass
        clean = node.stop(stop_timeout)
    for service in node.failed:
        click.echo(f"{service.name} failed: {service.error}", err=True)
    if node.failed or not clean:
        raise click.exceptions.Exit(1)
    click.echo("Stopped; everything that was accepted is written.", err=True)
