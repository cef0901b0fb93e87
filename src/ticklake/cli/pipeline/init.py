"""`ticklake init`: writes a configuration to start from."""

from __future__ import annotations

import click


@click.command()
@click.argument("directory", default=".")
def init(directory: str) -> None:
    """Write a commented configuration, ticklake.conf, to DIRECTORY. Default: the current directory."""
    from ticklake.config.templates import write_starter

    file = write_starter(directory)
    click.echo(f"Wrote {file}. Start it with: ticklake run {file}")
