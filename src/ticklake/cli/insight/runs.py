"""`ticklake runs`: lists every run with its batch files and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.places import open_places, places_options
from ticklake.cli.terminal.output import end_with, json_option, print_json, print_table, size_text

if TYPE_CHECKING:
    from ticklake.insights import RunReport

COLUMNS = ("run", "started", "files", "size", "ticks", "state", "tables")


@click.command()
@places_options
@json_option
def runs(storage: str | None, lake: str | None, database: tuple[str, ...], as_json: bool) -> None:
    """List the runs in a storage, a lake or databases. Exit code 1 if one of them cannot be read."""
    with open_places(storage, lake, database) as places:
        reports = list(places.reports())
        unlisted = places.unlisted
    if as_json:
        print_json({"runs": reports})
    elif reports:
        print_table(COLUMNS, map(_row, reports), numbers=("files", "size", "ticks"))
    elif not unlisted:
        click.echo("No runs yet.")
    end_with([*unlisted, *(error for report in reports for error in report.errors)])


def state_text(completed: bool | None) -> str:
    return {True: "completed", False: "open", None: "unknown"}[completed]


def _row(run: RunReport) -> tuple[object, ...]:
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S}" if run.started_at else None
    tables = ", ".join(table.name for table in run.tables)
    if run.storage is None:
        return run.run_id, started, None, None, None, None, tables
    state = state_text(run.storage.completed)
    return run.run_id, started, run.storage.files, size_text(run.storage.bytes), run.storage.ticks, state, tables
