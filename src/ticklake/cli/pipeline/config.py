"""`ticklake config`: checks a configuration and shows it with all defaults."""

from __future__ import annotations

import click

from ticklake.cli.terminal.output import echo, json_option, print_json


@click.group()
def config() -> None:
    """Check and show configurations."""


@config.command()
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check that a node can start with FILE. Builds everything that `run` starts, but starts nothing."""
    from ticklake.cli.pipeline.run import build

    node = build(file)
    node.close()
    settings = node.settings
    if as_json:
        print_json({"file": file, "resources": list(settings.resources), "services": list(settings.services)})
    else:
        echo(f"{file}: valid, {len(settings.resources)} resources and {len(settings.services)} services.")


@config.command()
@click.argument("file", required=False)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option
def show(file: str | None, origin: bool, as_json: bool) -> None:
    """Print FILE with all defaults. Without FILE, print all options with their documentation."""
    from ticklake.config import load
    from ticklake.config import rendering as showing
    from ticklake.config.templates import REFERENCE

    if file is None and not as_json:
        echo(REFERENCE.read_text(encoding="utf-8"), nl=False)
        return
    settings = load(file or REFERENCE)
    if as_json:
        print_json(showing.as_dict(settings))
    else:
        echo(showing.show(settings, origin=origin))
