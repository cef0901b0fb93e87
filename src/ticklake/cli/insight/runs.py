"""`ticklake runs`: lists every run with its state, batch files and tables; closes, deletes and archives runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticklake.cli.listing import ListingGroup
from ticklake.cli.options.database import dry_run_option
from ticklake.cli.options.numbers import count
from ticklake.cli.options.places import (
    config_option,
    database_option,
    needed,
    open_places,
    opened_all,
    places_options,
    storage_option,
)
from ticklake.cli.options.silence import close_by_hand, run_topic_option, silent_for_option
from ticklake.cli.terminal.output import echo, end_with, json_option, print_json, print_table, size_text

if TYPE_CHECKING:
    from ticklake.insights import RunReport
    from ticklake.removal import RunContents, RunPlaces

COLUMNS = ("run", "started", "files", "size", "ticks", "format", "state", "tables")

_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
_force_option = click.option("--force", is_flag=True, help="Also if the run is running or in use.")


@click.group(cls=ListingGroup, invoke_without_command=True)
@places_options
@json_option
@click.pass_context
def runs(
    context: click.Context, storage: str | None, lake: str | None, database: tuple[str, ...], as_json: bool
) -> None:
    """List the runs in a storage, a lake or databases; close, delete and archive runs.

    Exit code 1 if one of the places or a table cannot be read.
    """
    if context.invoked_subcommand is not None:
        return
    with open_places(storage, lake, database) as places:
        reports = list(places.reports())
        unlisted = places.unlisted
    if as_json:
        print_json({"runs": reports})
    elif reports:
        print_table(COLUMNS, map(_row, reports), numbers=("files", "size", "ticks"))
    elif not unlisted:
        echo("No runs yet.")
    unreadable = [table.error for report in reports for table in report.tables if table.error]
    end_with([*unlisted, *(error for report in reports for error in report.errors), *unreadable])


@runs.command()
@click.argument("run")
@config_option(expose=False)
@storage_option
@database_option
@run_topic_option
@click.option("--at", "last_tick", type=count(), help="The last tick; default: the last tick of the last file.")
@silent_for_option
@json_option
def close(
    run: str, storage: str | None, database: tuple[str, ...], run_topic: str | None, last_tick: int | None,
    silent_for: float, as_json: bool,
) -> None:  # fmt: skip
    """Close RUN as abandoned: its producer will not come back. Ticks that were never written are not missing then."""
    from ticklake.completeness import close_run

    close_by_hand(close_run, run, storage, database, run_topic, last_tick, silent_for, as_json)


@runs.command()
@click.argument("run")
@places_options
@_yes_option
@dry_run_option
@_force_option
@json_option
def delete(
    run: str, storage: str | None, lake: str | None, database: tuple[str, ...], yes: bool, dry_run: bool, force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Delete RUN from the given places: batch files, tables, and its schema or file in the databases.

    If a deletion was cut off, the same command finishes it.
    """
    from ticklake.removal import check_removable, contents_of, delete_run

    with _opened(run, storage, lake, database) as places:
        contents = contents_of(places)
        if not force:
            check_removable(places, contents)
        if not dry_run:
            _confirm(contents, yes, as_json, "Delete all of this?")
            delete_run(places, force=force)
    _report(contents, dry_run, as_json, "deleted", {})


@runs.command()
@click.argument("run")
@click.argument("destination")
@places_options
@click.option("--tables", metavar="DIR", help="Also copy the tables, to this lake; default: they are only deleted.")
@_yes_option
@dry_run_option
@json_option
def archive(
    run: str, destination: str, storage: str | None, lake: str | None, database: tuple[str, ...], tables: str | None,
    yes: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Copy the files of RUN to the storage DESTINATION, compare the copy, and delete RUN.

    If it was cut off, the same command finishes it. Nothing is deleted before all of it is copied.
    """
    from ticklake.checks.places import lake_path
    from ticklake.removal import archive_run, check_destination, check_removable, contents_of
    from ticklake.storage import Storage

    with _opened(run, storage, lake, database) as places:
        contents, to = contents_of(places), Storage(destination)
        tables_to = lake_path(tables).absolute() if tables else None
        check_destination(places, to, tables_to)
        check_removable(places, contents, to.url)
        figures: dict[str, object] = {"destination": to.url}
        if not dry_run:
            _confirm(contents, yes, as_json, f"Copy the files to {to.url} and delete all of this?")
            done = archive_run(places, to, tables_to)
            figures |= {"copied_files": done.files, "copied_table_files": done.table_files}
    _report(contents, dry_run, as_json, f"archived to {to.url}", figures)


@contextmanager
def _opened(run: str, storage: str | None, lake: str | None, database: Sequence[str]) -> Iterator[RunPlaces]:
    storage = needed("storage", storage, "a run is deleted with its batch files")
    from ticklake.checks.places import lake_path
    from ticklake.removal import RunPlaces
    from ticklake.storage import Storage, check_run_id

    with opened_all(database) as opened:
        root: Path | None = lake_path(lake).absolute() if lake else None
        yield RunPlaces(check_run_id(run), Storage(storage), root, opened)


def _confirm(contents: RunContents, yes: bool, as_json: bool, question: str) -> None:
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes to go on without a question, or --dry-run to see what would go.")
    _show(contents)
    click.confirm(question, abort=True)


def _report(contents: RunContents, dry_run: bool, as_json: bool, done: str, figures: dict[str, object]) -> None:
    if as_json:
        print_json({**asdict(contents), **figures, "dry_run": dry_run})
        return
    if dry_run:
        _show(contents)
    echo(f"Run {contents.run_id} {'would be' if dry_run else 'was'} {done}.")


def _show(contents: RunContents) -> None:
    size = size_text(contents.bytes)
    echo(f"Run {contents.run_id}, {'deletion begun' if contents.deleting else contents.state}")
    echo(f"{contents.files:,} batch files and {contents.other_files:,} other files, {size}")
    if contents.tables:
        columns = ("table", "rows", "files", "size")
        rows = [(one.name, one.rows, one.files, size_text(one.bytes)) for one in contents.tables]
        print_table(columns, rows, numbers=columns[1:])
    for one in contents.databases:
        echo(f"Database {one}")


def _row(run: RunReport) -> tuple[object, ...]:
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S}" if run.started_at else None
    tables = ", ".join(table.name for table in run.tables)
    files = run.storage
    if files is None:
        return run.run_id, started, None, None, None, None, None, tables
    known = files.format or None
    return run.run_id, started, files.files, size_text(files.bytes), files.ticks, known, files.state, tables
