"""`ticklake vacuum`: removes files that no recent version of a table needs."""

from __future__ import annotations

from typing import Any

import click

from ticklake.cli.options.database import named_run
from ticklake.cli.options.places import lake_options, needed
from ticklake.cli.terminal.output import echo, end_with, json_option, print_json, print_table, size_text
from ticklake.cli.terminal.progress import Bars

COLUMNS = ("run", "table", "files", "size")


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> Any:
    from ticklake.config.units import seconds

    try:
        return seconds(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from error


@click.command()
@click.argument("run", required=False)
@lake_options
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated. Default: all tables.")
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    callback=_seconds,
    metavar="TIME",
    help="Keep files that a version of the last TIME needs (7d, 36h).",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--force", is_flag=True, help="Allow an --older-than of less than a day.")
@json_option
def vacuum(
    run: str | None,
    lake: str | None,
    tables: tuple[str, ...],
    older_than: float,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove files of RUN's tables, or of all runs, that were replaced or never committed.

    A table that fails is named, and the others are worked on. Then the exit code is 1.
    """
    from ticklake.lake.read import Catalog
    from ticklake.lake.upkeep import Failed, vacuum_tables

    catalog = Catalog(needed("lake", lake, "it has the tables"))
    run = run and named_run(run, [catalog])
    failures: list[Failed] = []
    with Bars(quiet=as_json) as bars:
        done = vacuum_tables(catalog, run, tables, older_than, bars.update, failures, force=force, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "tables": done, "failed": failures})
    elif done:
        rows = [(one.run_id, one.table, one.files, size_text(one.bytes)) for one in done]
        print_table(COLUMNS, rows, numbers=COLUMNS[2:])
    if not as_json and dry_run:
        echo("Nothing was removed. Without --dry-run, these files are removed.")
    elif not (as_json or failures):
        echo("Done.")
    end_with(map(str, failures))
