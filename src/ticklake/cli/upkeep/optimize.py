"""`ticklake optimize`: merges small files of tables. No row changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.database import named_run
from ticklake.cli.options.places import lake_options, needed
from ticklake.cli.terminal.output import echo, end_with, json_option, print_json, print_table, size_text
from ticklake.cli.terminal.progress import Bars

if TYPE_CHECKING:
    from ticklake.lake.upkeep import Optimized

COLUMNS = ("run", "table", "merged", "into", "before", "after", "files")


@click.command()
@click.argument("run", required=False)
@lake_options
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated. Default: all tables.")
@json_option
def optimize(run: str | None, lake: str | None, tables: tuple[str, ...], as_json: bool) -> None:
    """Merge the small files of RUN's tables, or of all runs. The tables may be indexed and read meanwhile.

    A table that fails is named, and the others are merged. Then the exit code is 1.
    """
    from ticklake.lake.read import Catalog
    from ticklake.lake.upkeep import Failed, optimize_tables

    catalog = Catalog(needed("lake", lake, "it has the tables"))
    failures: list[Failed] = []
    with Bars(quiet=as_json) as bars:
        done = optimize_tables(catalog, run and named_run(run, [catalog]), tables, bars.update, failures)
    if as_json:
        print_json({"tables": done, "failed": failures})
    elif done:
        print_table(COLUMNS, map(_row, done), numbers=COLUMNS[2:])
    elif not failures:
        echo("No tables to optimize.")
    end_with(map(str, failures))


def _row(one: Optimized) -> tuple[object, ...]:
    sizes = size_text(one.bytes_removed), size_text(one.bytes_added)
    return one.run_id, one.table, one.files_removed, one.files_added, *sizes, one.files
