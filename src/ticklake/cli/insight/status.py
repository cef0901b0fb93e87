"""`ticklake status`: shows the batch files of a run and the progress of each table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.places import open_places, places_options
from ticklake.cli.terminal.output import echo, end_with, json_option, print_json, print_table, size_text

if TYPE_CHECKING:
    from ticklake.insights import RunReport, TableReport

COLUMNS = ("table", "rows", "files", "size", "ticks", "lag", "missing")
GROUP_COLUMNS = ("topic", "group", "lag", "claimed", "dead letters", "oldest (s)")
COORDINATED_COLUMNS = ("coordinated", "table", "files left", "ticks left", "in work", "oldest (s)")


@click.command()
@click.argument("run", required=False)
@places_options
@json_option
def status(run: str | None, storage: str | None, lake: str | None, database: tuple[str, ...], as_json: bool) -> None:
    """Show the progress of RUN. Default: the newest run. Exit code 1 if a part of it cannot be read."""
    with open_places(storage, lake, database) as places:
        report = places.report(run)
    if as_json:
        print_json(report)
    else:
        show(report)
    end_with([*report.errors, *(table.error for table in report.tables if table.error)])


def missing_text(table: TableReport) -> str | None:
    """Describes the missing ticks before a table's newest tick: `400 in 4 ranges`."""
    if not table.missing:
        return None if table.missing is None else "0"
    return f"{table.missing_ticks:,} in {table.missing:,} range{'' if table.missing == 1 else 's'}"


def show(report: RunReport) -> None:
    echo(f"Run {report.run_id}")
    if files := report.storage:
        of = f" of format {files.format}" if files.format else ""
        echo(f"{files.files:,} batch files{of}, {size_text(files.bytes)}, ticks {files.ticks}, {files.life}")
    if report.tables:
        rows = [(t.name, t.rows, t.files, size_text(t.bytes), t.ticks, t.lag, missing_text(t)) for t in report.tables]
        print_table(COLUMNS, rows, numbers=COLUMNS[1:])
    if report.groups:
        groups = [(g.topic, g.group, g.lag, g.claimed, g.dead_letters, g.oldest_seconds) for g in report.groups]
        print_table(GROUP_COLUMNS, groups, numbers=GROUP_COLUMNS[2:])
    if report.coordinated:
        left = [(c.indexer_class, c.table, c.files, c.ticks, c.in_work, c.oldest_seconds) for c in report.coordinated]
        print_table(COORDINATED_COLUMNS, left, numbers=COORDINATED_COLUMNS[2:])
