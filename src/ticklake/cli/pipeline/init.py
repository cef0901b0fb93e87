"""`ticklake init`: writes a configuration to start from."""

from __future__ import annotations

import click

from ticklake.cli.terminal.output import echo


@click.command()
@click.argument("directory", default=".")
def init(directory: str) -> None:
    """Write a commented configuration, ticklake.conf, to DIRECTORY. Default: the current directory."""
    from ticklake.config.templates import write_starter

    file = write_starter(directory)
    echo(f"Wrote {file}. Start it with: ticklake run {file}")
