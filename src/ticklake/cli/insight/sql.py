"""`ticklake sql`: queries the tables of a lake without a JVM."""

from __future__ import annotations

import csv
import json
import sys
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import click

from ticklake.cli.options.database import named_run
from ticklake.cli.options.numbers import MAX_INTEGER, count
from ticklake.cli.options.places import lake_options, needed
from ticklake.cli.terminal.output import echo, note, plain, print_table

if TYPE_CHECKING:
    from ticklake.lake.read import Result


@click.command()
@click.argument("query")
@lake_options
@click.option(
    "--run",
    metavar="RUN",
    help="Only the tables of this run, or of the newest; default: all runs, distinguished by the column run_id.",
)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--limit", type=count(), default=100, show_default=True, help="Maximum number of rows to show; 0: all.")
def sql(query: str, lake: str | None, run: str | None, form: str, limit: int) -> None:
    """Query the tables of a lake with DuckDB's SQL.

    Every table has the column run_id. Example:

    ticklake sql "SELECT run_id, max(tick_number) FROM organism_data GROUP BY ALL" --lake lake
    """
    lake = needed("lake", lake, "it has the tables")
    from ticklake.lake.read import Catalog
    from ticklake.lake.read import query as ask

    catalog = Catalog(lake)
    with ask(catalog, query, run and named_run(run, [catalog])) as result:
        if form == "csv":
            write_csv(result)
        elif form == "json":
            write_json(result)
        else:
            show(result, limit)


def show(result: Result, limit: int) -> None:
    """Prints the first rows as a table, and a note if there are more."""
    rows = list(islice(result.rows, min(limit, MAX_INTEGER - 1) + 1 if limit else None))
    shown = rows[:limit] if limit else rows
    numbers = [name for name, value in zip(result.columns, shown[0], strict=True) if is_number(value)] if shown else []
    print_table(result.columns, shown, numbers=numbers)
    if len(rows) > len(shown):
        note(f"Only the first {limit:,} rows. --limit 0 shows all; --format csv writes all as CSV.")


def write_csv(result: Result) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows(result.rows)


def write_json(result: Result) -> None:
    """Streams a JSON array with one object per row."""
    echo("[", nl=False)
    for separator, row in zip(chain(["\n"], repeat(",\n")), result.rows, strict=False):
        record = dict(zip(result.columns, map(json_value, row), strict=True))
        echo(separator + json.dumps(record, default=plain), nl=False)
    echo("\n]")


def json_value(value: Any) -> Any:
    """Replaces what JSON cannot represent: NaN and infinity by null, other keys by strings."""
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): json_value(one) for key, one in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
