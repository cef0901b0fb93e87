"""`ticklake verify`: the proof that a run is in its tables, once and whole; or exactly what is not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from ticklake.cli.options.completeness import keys_text, open_run, ranges_text
from ticklake.cli.options.places import batch_topic_option, places_options
from ticklake.cli.terminal.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.completeness import RunVerdict, TableVerdict

NOT_ENDED = 3
"""The exit code where nothing is missing so far, and nobody has said that the run has ended."""

COLUMNS = ("table", "rows", "ticks", "missing", "duplicated", "verdict")


@click.command()
@click.argument("run", required=False)
@places_options
@batch_topic_option
@click.option("--table", "tables", multiple=True, help="Only this table (may be given again); default: all.")
@click.option("--ended", is_flag=True, help="The run has ended with its last file, though no producer has said so.")
@click.option("--deep", is_flag=True, help="Decode every file again on Spark and compare each tick's rows.")
@click.option("--events", metavar="FILE", help="The event queue that the table `events` is filled from.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master for --deep.")
@json_option
def verify(
    run: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    batch_topic: str | None,
    tables: tuple[str, ...],
    ended: bool,
    deep: bool,
    events: str | None,
    master: str,
    as_json: bool,
) -> None:
    """Prove that RUN (or the newest run) is complete: every tick once in every table.

    Exit codes: 0 complete; 1 something is missing, double or wrong; 3 nothing is missing so far, but nobody has said
    that the run has ended (`--ended` says so here, `ticklake end` for good).
    """
    if not lake:
        raise click.UsageError("Give --lake DIR: it has the tables to verify.")
    from ticklake.completeness import Verdict
    from ticklake.lake.session import open_session

    with (
        open_run(run, storage, lake, database, ended=ended, events=events, topic=batch_topic) as completeness,
        open_session(master) if deep else nullcontext() as spark,
    ):
        verdict = completeness.verify(tables, spark=spark)
    if as_json:
        print_json(verdict)
    else:
        show(verdict)
    if verdict.verdict is not Verdict.COMPLETE:
        running = verdict.verdict is Verdict.RUNNING and verdict.flawless
        raise click.exceptions.Exit(NOT_ENDED if running else 1)


def show(run: RunVerdict) -> None:
    files = run.storage
    ended = "taken to have ended" if files.assumed else "ended"
    state = f"{ended} at tick {files.last_tick:,}" if files.last_tick is not None else "has not ended"
    silent = (
        f", silent since {files.silent_since:%Y-%m-%d %H:%M:%S} UTC" if files.silent_since and not files.ended else ""
    )
    doubts = f", but {'; '.join(run.doubts)}" if run.doubts else ""
    click.echo(f"Run {run.run_id}: {run.verdict}{doubts}")
    click.echo(f"{files.files:,} batch files, {state}{silent}; ticks without a file: {ranges_text(files.lost)}")
    if files.overlapping:
        click.echo(f"{files.overlapping:,} files overlap others; each of their ticks is indexed once")
    if files.misfits:
        click.echo(f"Files that do not fit the sampling interval or the end of the run: {keys_text(files.misfits)}")
    if files.passed_over:
        click.echo(
            f"Batch files that are passed over, in links or folders of unsafe names: {keys_text(files.passed_over)}"
        )
    _show_messages(run)
    rows = [_row(table) for table in run.tables]
    if rows:
        print_table(COLUMNS, rows, numbers=COLUMNS[1:-1])
    for table in run.tables:
        _show_flaws(table)
    if run.metadata:
        click.echo(f"metadata: {run.metadata}")
    if run.unjudged:
        click.echo(f"Not verified, for they have no key that begins with a number: {keys_text(run.unjudged)}")
    _show_sum(run)


def _row(table: TableVerdict) -> tuple[object, ...]:
    from ticklake.ticks import count

    missing = count(table.coverage.missing, table.step)
    return table.table, table.rows, table.coverage.ticks, missing, table.duplicated, table.verdict


def _show_messages(run: RunVerdict) -> None:
    if run.messages is None:
        return
    if run.messages.damaged:
        click.echo(run.messages.damaged)
        return
    removed = f", {run.messages.removed:,} removed by retention" if run.messages.removed else ""
    click.echo(
        f"{run.messages.messages:,} messages{removed}; files not announced: {keys_text(run.messages.unannounced)};"
        f" announced and not there: {keys_text(run.messages.vanished)}"
    )
    for group in run.messages.groups:
        open_, dead = f"{group.lag:,} not acknowledged", f"{group.dead_letters:,} dead letters"
        click.echo(f"  {group.topic}, {group.group}: {open_}, {dead}")


def _show_flaws(table: TableVerdict) -> None:
    coverage, deep, by_ticks = table.coverage, table.deep, table.unit == "ticks"
    flaws = {
        "missing, no file" if by_ticks else "missing batches": coverage.lost,
        "missing, has a file" if by_ticks else "missing batches, still in the queue": coverage.waiting,
        "unexpected ticks": coverage.unexpected,
        "rows differ from the files'": deep.different if deep else [],
        "files disagree about": deep.disputed if deep else [],
        "rows and no file": deep.unproven if deep else [],
    }
    for flaw, ranges in flaws.items():
        if ranges:
            click.echo(f"{table.table}: {flaw}: {ranges_text(ranges)}")
    if table.unreadable:
        click.echo(f"{table.table}: {table.unreadable}")
    for key in table.duplicates:
        click.echo(f"{table.table}: twice: {', '.join(f'{name} {value}' for name, value in key.items())}")
    for key_, error in (deep.unreadable if deep else table.damaged).items():
        click.echo(f"{table.table}: {error if key_ in error else f'{key_}: {error}'}")
    for disagreement in table.disagreements:
        click.echo(f"{table.table}: {disagreement}")
    for batch in table.failed:
        click.echo(f"{table.table}: failed: {batch.name}: {batch.error}")


def _show_sum(run: RunVerdict) -> None:
    from ticklake.ticks import count

    if run.unindexed or not (run.tables or run.metadata is not None):
        click.echo("No table of ticks in this lake: ticklake index writes them.")
    if not run.tables:
        return
    missing = sum(count(table.coverage.missing, table.step) for table in run.tables)
    duplicated = sum(table.duplicated for table in run.tables)
    compared = sum(table.deep.ticks for table in run.tables if table.deep)
    click.echo(
        f"{missing:,} missing, {duplicated:,} duplicated" + (f", {compared:,} ticks compared" if compared else "")
    )
    if run.flawless and not run.storage.ended:
        click.echo(
            "Nobody has said that the run has ended. If it has: `ticklake verify --ended`, or `ticklake end` for good."
        )
