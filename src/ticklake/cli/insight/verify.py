"""`ticklake verify`: proves that every tick of a run is in its tables exactly once, or lists what is not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from ticklake.cli.options.completeness import keys_text, open_run, ranges_text
from ticklake.cli.options.places import batch_topic_option, places_options
from ticklake.cli.terminal.output import echo, json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.completeness import RunVerdict, TableVerdict

NOT_ENDED = 3
"""Exit code: nothing is missing so far, but the end of the run is not recorded."""

COLUMNS = ("table", "rows", "ticks", "missing", "duplicated", "verdict")


@click.command()
@click.argument("run", required=False)
@places_options
@batch_topic_option
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated. Default: all tables.")
@click.option("--ended", is_flag=True, help="Assume that the run ended with its last file.")
@click.option("--deep", is_flag=True, help="Decode every file again on Spark and compare the rows of each tick.")
@click.option("--events", metavar="FILE", help="File of the event queue that fills the table `events`.")
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
    """Prove that RUN is complete: every tick exactly once in every table. Default: the newest run.

    Exit codes: 0 complete; 1 rows are missing, duplicated or wrong; 3 nothing is missing so far, but the end of the
    run is not recorded (`--ended` assumes it, `ticklake end` or `ticklake runs close` records it).
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
    from ticklake.ticks import TickRange

    files = run.storage
    state = "has not ended" if files.last_tick is None else f"{'assumed to have ' if files.assumed else ''}{files.life}"
    silent = (
        f", silent since {files.silent_since:%Y-%m-%d %H:%M:%S} UTC" if files.silent_since and not files.ended else ""
    )
    doubts = f", but {'; '.join(run.doubts)}" if run.doubts else ""
    echo(f"Run {run.run_id}: {run.verdict}{doubts}")
    of = "" if files.format in ("", "TickLake") else f" of format {files.format} of the original"
    echo(f"{files.files:,} batch files{of}, {state}{silent}; ticks without a file: {ranges_text(files.lost)}")
    if files.stretches:
        parts = [f"{TickRange(one.start, one.end)} every {one.step:,}" for one in files.stretches[:5]]
        more = f" and {len(files.stretches) - 5:,} more" if len(files.stretches) > 5 else ""
        echo(f"Stretches with their own sampling interval: {'; '.join(parts)}{more}")
    if files.never_written:
        echo(f"Never written before the run was abandoned: {ranges_text(files.never_written)}")
    if files.overlapping:
        echo(f"{files.overlapping:,} files overlap others; each of their ticks is indexed once")
    if files.misfits:
        echo(f"Files that do not match the sampling interval or the end of the run: {keys_text(files.misfits)}")
    if files.passed_over:
        echo(
            "Links and folders with unsafe names that are passed over and may hold batch files: "
            f"{keys_text(files.passed_over)}"
        )
    _show_messages(run)
    rows = [_row(table) for table in run.tables]
    if rows:
        print_table(COLUMNS, rows, numbers=COLUMNS[1:-1])
    for table in run.tables:
        _show_flaws(table)
    if run.metadata:
        echo(f"metadata: {run.metadata}")
    if run.unjudged:
        echo(f"Not verified, because their key does not start with a number: {keys_text(run.unjudged)}")
    _show_sum(run)


def _row(table: TableVerdict) -> tuple[object, ...]:
    coverage = table.coverage
    return table.table, table.rows, coverage.ticks, coverage.missing_ticks, table.duplicated, table.verdict


def _show_messages(run: RunVerdict) -> None:
    if run.messages is None:
        return
    if run.messages.damaged:
        echo(run.messages.damaged)
        return
    removed = f", {run.messages.removed:,} removed by retention" if run.messages.removed else ""
    echo(
        f"{run.messages.messages:,} messages{removed}; files not announced: {keys_text(run.messages.unannounced)};"
        f" announced but not in the storage: {keys_text(run.messages.vanished)}"
    )
    for group in run.messages.groups:
        open_, dead = f"{group.lag:,} not acknowledged", f"{group.dead_letters:,} dead letters"
        echo(f"  {group.topic}, {group.group}: {open_}, {dead}")


def _show_flaws(table: TableVerdict) -> None:
    coverage, deep, by_ticks = table.coverage, table.deep, table.unit == "ticks"
    flaws = {
        "missing, no file" if by_ticks else "missing batches": coverage.lost,
        "missing, has a file" if by_ticks else "missing batches, still in the queue": coverage.waiting,
        "unexpected ticks": coverage.unexpected,
        "rows differ from the files": deep.different if deep else [],
        "files contradict each other": deep.disputed if deep else [],
        "rows without a file": deep.unproven if deep else [],
    }
    for flaw, ranges in flaws.items():
        if ranges:
            echo(f"{table.table}: {flaw}: {ranges_text(ranges)}")
    if table.unreadable:
        echo(f"{table.table}: {table.unreadable}")
    for key in table.duplicates:
        echo(f"{table.table}: duplicated: {', '.join(f'{name} {value}' for name, value in key.items())}")
    for key_, error in (deep.unreadable if deep else table.damaged).items():
        echo(f"{table.table}: {error if key_ in error else f'{key_}: {error}'}")
    for disagreement in table.disagreements:
        echo(f"{table.table}: {disagreement}")
    for batch in table.failed:
        echo(f"{table.table}: failed: {batch.name}: {batch.error}")


def _show_sum(run: RunVerdict) -> None:
    if run.unindexed or not (run.tables or run.metadata is not None or run.storage.life.is_empty):
        echo("This lake has no table of ticks. `ticklake index` writes them.")
    if not run.tables:
        return
    missing = sum(table.coverage.missing_ticks for table in run.tables)
    duplicated = sum(table.duplicated for table in run.tables)
    compared = sum(table.deep.ticks for table in run.tables if table.deep)
    echo(f"{missing:,} missing, {duplicated:,} duplicated" + (f", {compared:,} ticks compared" if compared else ""))
    if run.flawless and not run.storage.ended:
        echo(
            "The end of the run is not recorded. If it has ended, use `ticklake verify --ended`, or record it with "
            "`ticklake end`. If its producer will not come back, use `ticklake runs close`."
        )
