"""`ticklake gaps`: how complete each table of a run is, drawn and in exact ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli._bar import bar
from ticklake.cli._completeness import open_run, ranges_text
from ticklake.cli._output import json_option, print_json
from ticklake.cli._places import places_options

if TYPE_CHECKING:
    from ticklake.completeness import RunVerdict, TableVerdict

WIDTH = 72
LEGEND = "█ in the table   ▒ has a file, not in the table yet   ? missing, looked for   x missing for good   ┃ frontier"


@click.command()
@click.argument("run", required=False)
@places_options
@click.option("--table", "tables", multiple=True, help="Only this table (may be given again); default: all.")
@json_option
def gaps(
    run: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    tables: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw how complete each table of RUN (or of the newest run) is, with the exact ranges below."""
    with open_run(run, storage, lake, database) as completeness:
        verdict = completeness.verify(tables, count_rows=False)
    if as_json:
        print_json(verdict)
    else:
        show(verdict)


def show(run: RunVerdict) -> None:
    click.echo(f"Run {run.run_id}: {run.verdict}")
    for table in run.tables:
        _show_table(table)
    if run.unjudged:
        click.echo(f"\nNot drawn, for they have no key that begins with a number: {', '.join(run.unjudged)}")
    if run.tables:
        click.echo(LEGEND)
    else:
        click.echo(f"No tables. Without a file: {ranges_text(run.storage.lost)}")


def _show_table(table: TableVerdict) -> None:
    from ticklake.coordination.gaps import PERMANENT

    coverage = table.coverage
    given_up = [gap.ticks for gap in table.gaps if gap.status == PERMANENT]
    pending = [ticks for ticks in coverage.lost if not any(ticks.overlaps(gone) for gone in given_up)]
    layers = [
        ("█", coverage.covered),
        ("▒", coverage.waiting),
        ("?", pending),
        ("x", sorted(given_up)),
    ]
    total = coverage.expected.count(table.step)
    click.echo(
        f"\n{table.table}: {coverage.verdict}, {coverage.ticks:,} of {total:,} {table.unit} in {coverage.expected}"
    )
    click.echo(f"  {bar(coverage.expected, layers, table.frontier, WIDTH)}")
    for label, ranges in (("waiting", coverage.waiting), ("missing", pending), ("missing for good", given_up)):
        if ranges:
            click.echo(f"  {label}: {ranges_text(ranges)}")
    for batch in table.failed:
        click.echo(f"  failed: {batch.name}: {batch.error}")
