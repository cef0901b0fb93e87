"""`ticklake analyze`: makes the tables of analytics of a finished run, or brings them up to date."""

from __future__ import annotations

from typing import Any

import click

from ticklake.cli.pipeline.index import index


@click.command(params=[option for option in index.params if option.name not in ("tables", "cells", "ticks")])
@click.option("--table", "tables", multiple=True, help="Only this table of analytics; may be repeated.")
@click.pass_context
def analyze(context: click.Context, /, tables: tuple[str, ...], **options: Any) -> None:
    """Make the tables of analytics of RUN from its batch files, or bring them up to date. Default: the newest run.

    Skips ticks that a table already has, so it can be repeated at any time. If nothing is left, Spark is not started.
    """
    from ticklake.indexers.registry import analytics_of

    # Tables that need more than one tick are folded from these, so they come after this line.
    context.invoke(index, tables=tuple(analytics_of(tables)), **options)
