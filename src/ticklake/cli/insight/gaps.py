"""`ticklake gaps`: draws how complete each table of a run is and lists the exact ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.completeness import open_run, ranges_text
from ticklake.cli.options.places import batch_topic_option, places_options
from ticklake.cli.terminal.bar import bar
from ticklake.cli.terminal.output import echo, json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ticklake.completeness import RunVerdict, TableVerdict
    from ticklake.ticks import Stretch

WIDTH = 72
LEGEND = "█ in the table   ▒ has a file, not in the table yet   ? missing, no file   x missing permanently   ┃ frontier"


@click.command()
@click.argument("run", required=False)
@places_options
@batch_topic_option
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated. Default: all tables.")
@json_option
def gaps(
    run: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    batch_topic: str | None,
    tables: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw how complete each table of RUN is, and list the exact ranges. Default: the newest run."""
    with open_run(run, storage, lake, database, topic=batch_topic) as completeness:
        verdict = completeness.verify(tables, count_rows=False)
    if as_json:
        print_json(verdict)
    else:
        show(verdict)


def show(run: RunVerdict) -> None:
    echo(f"Run {run.run_id}: {run.verdict}")
    for table in run.tables:
        _show_table(table, run.storage.stretches)
    if run.storage.misfits:
        names = ", ".join(key.rpartition("/")[2] for key in run.storage.misfits[:5])
        more = f" and {len(run.storage.misfits) - 5:,} more" if len(run.storage.misfits) > 5 else ""
        echo(f"\nFiles that do not match the sampling interval or the end of the run: {names}{more}")
    if run.unjudged:
        echo(f"\nNot drawn, because their key does not start with a number: {', '.join(run.unjudged)}")
    if run.tables:
        echo(LEGEND)
    else:
        echo(f"No tables. Ticks without a file: {ranges_text(run.storage.lost)}")


def _show_table(table: TableVerdict, stretches: Sequence[Stretch]) -> None:
    from ticklake.coordination import PERMANENT
    from ticklake.ticks import Grid

    coverage, grid = table.coverage, Grid(table.step, stretches)
    # A permanent gap may have been filled since, or its file may have arrived.
    given_up = [gap.ticks for gap in table.gaps if gap.status == PERMANENT]
    permanent = grid.common(coverage.lost, given_up)
    pending = grid.subtract(coverage.lost, permanent)
    layers = [
        ("█", coverage.covered),
        ("▒", coverage.waiting),
        ("?", pending),
        ("x", permanent),
    ]
    found = f"{coverage.ticks:,} of {coverage.expected_ticks:,} {table.unit} in {coverage.expected}"
    echo(f"\n{table.table}: {coverage.verdict}, {found}")
    if table.unreadable:
        echo(f"  {table.unreadable}")
    echo(f"  {bar(coverage.expected, layers, table.frontier, WIDTH, table.step)}")
    for label, ranges in (
        ("waiting", coverage.waiting),
        ("missing", pending),
        ("missing permanently", permanent),
        ("not expected", coverage.unexpected),
    ):
        if ranges:
            echo(f"  {label}: {ranges_text(ranges)}")
    for batch in table.failed:
        echo(f"  failed: {batch.name}: {batch.error}")
