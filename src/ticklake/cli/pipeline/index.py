"""`ticklake index`: indexes a finished run directly from its batch files."""

from __future__ import annotations

import logging
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from ticklake import defaults
from ticklake.cli.options.completeness import ranges_text
from ticklake.cli.options.numbers import TickRangeOption, count
from ticklake.cli.options.places import PlaceOption, lake_options, needed, opened_all, storage_option
from ticklake.cli.terminal.interrupt import StoppedEarly, graceful_stop
from ticklake.cli.terminal.output import echo, json_option, note, print_json, print_table
from ticklake.cli.terminal.progress import Bars

if TYPE_CHECKING:
    from ticklake.indexers.finished_run import Progress
    from ticklake.indexers.subscription import Acknowledged
    from ticklake.ticks import TickRange

log = logging.getLogger(__name__)

RESUMABLE = "Stopped before the end. The same command continues from here."
COLUMNS = ("table", "ticks", "skipped", "rows", "rows/s")


class SparkSetting(click.ParamType[tuple[str, str]]):
    """`spark.NAME=VALUE`."""

    name = "spark.NAME=VALUE"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, setting = value.partition("=")
        if not (name.startswith("spark.") and equals):
            self.fail(f"{value!r} is not a Spark setting; write for example spark.executor.memory=2g", param, ctx)
        return name, setting


@click.command()
@click.argument("run", required=False)
@lake_options
@storage_option
@click.option(
    "--database",
    "shared",
    cls=PlaceOption,
    metavar="URL",
    envvar="TICKLAKE_DATABASE",
    help="Database through which several processes share the work. Not taken from a configuration.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    help="Only this table, or MODULE:CLASS for your own indexer; may be repeated.",
)
@click.option(
    "--cells",
    type=click.Choice(["all", "snapshots", "changes", "none"]),
    default="all",
    show_default=True,
    help="Cells to write: of all ticks, of those recorded completely, only changes (environment_changes), or none.",
)
@click.option("--ticks", type=TickRangeOption(), help="Only these ticks.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master, or sc://… for Connect.")
@click.option("--conf", "settings", type=SparkSetting(), multiple=True, help="A Spark setting; may be repeated.")
@click.option(
    "--insert-batch-size",
    type=count(1),
    default=defaults.INSERT_BATCH_SIZE,
    show_default=True,
    help="Ticks per flush.",
)
@click.option(
    "--replace", is_flag=True, help="Index again the ticks that the tables already have, if a readable file has them."
)
@click.option("--yes", is_flag=True, help="Do not ask, however many rows are expected.")
@json_option
def index(
    run: str | None, storage: str | None, lake: str | None, shared: str | None, tables: tuple[str, ...], cells: str,
    ticks: TickRange | None, master: str, settings: tuple[tuple[str, str], ...], insert_batch_size: int,
    replace: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Index RUN from its batch files. Default: the newest run.

    Skips ticks that a table already has, so it can be repeated at any time. If nothing is left, Spark is not started.
    """
    storage = needed("storage", storage, "it has the batch files")
    lake = needed("lake", lake, "the tables are written there")
    if cells in ("changes", "none") and "environment_data" in tables:
        raise click.UsageError(f"--cells {cells} does not fill environment_data. Leave --table environment_data out.")
    with graceful_stop() as stop:
        from ticklake.indexers.base import IndexerResources
        from ticklake.indexers.finished_run import FinishedRun
        from ticklake.indexers.registry import indexers_of
        from ticklake.insights import chosen_run
        from ticklake.lake.flush import warm_up
        from ticklake.lake.lake import Lake
        from ticklake.lake.session import open_session
        from ticklake.storage import Storage

        kinds = indexers_of(tables, cells)
        if stop.is_set():
            raise StoppedEarly(RESUMABLE)
        session = partial(open_session, master, dict(settings))
        with opened_all([shared] if shared else []) as databases, Bars(as_json) as bars:
            files, written = Storage(storage), Lake(lake)
            run = chosen_run(run, files.runs(), files.url)
            resources = IndexerResources(files, written, next(iter(databases), None), spark=session)
            work = FinishedRun(resources, run, kinds, ticks, insert_batch_size).prepare()
            left = work.ticks_left(replace)
            if any(left.values()):
                _announce(work.expected_rows(left), yes, as_json)
                bars.update("starting Spark", 0, 1)
                warm_up(session(), *(kind.rows for kind in kinds))
                bars.update("starting Spark", 1, 1)
            if replace and not stop.is_set():
                work.remove()
            started = time.monotonic()
            if not stop.is_set():  # a signal may have arrived while Spark was starting
                work.start()
                while not work.wait(0.2) and not stop.is_set():
                    _show(bars, work.progress(), work.under_way())
                work.stop()
            _show(bars, work.progress(), {})
            groups = [] if stop.is_set() else work.acknowledge()
    seconds = time.monotonic() - started
    if stop.is_set() and not as_json:
        done = [f"{one.ticks + one.present:,} of {one.total:,} ticks in {one.table}" for one in work.progress()]
        raise StoppedEarly(f"{RESUMABLE} So far: {', '.join(done)}.")
    failed = _report(work.progress(), groups, seconds, lake, run, as_json)
    if stop.is_set():
        raise StoppedEarly(RESUMABLE)
    if failed or not work.wait(0):
        raise click.exceptions.Exit(1)


def _announce(expected: dict[str, int], yes: bool, as_json: bool) -> None:
    """Says how many rows are expected. Asks if they are very many."""
    rows = " and ".join(f"{_rounded(count)} rows in {table}" for table, count in expected.items())
    if rows:
        note(f"Expected: about {rows}.")
    if yes or sum(expected.values()) <= defaults.MANY_ROWS:
        return
    if as_json or not sys.stdin.isatty():
        reason = f"About {_rounded(sum(expected.values()))} rows would be written"
        raise click.UsageError(f"{reason}. Add --yes to write them, or write fewer with --cells snapshots.")
    click.confirm("Write them? (--cells snapshots or --cells changes writes fewer.)", abort=True, err=True)


def _rounded(rows: int) -> str:
    """Formats an estimate with two digits that count."""
    return f"{round(rows, 2 - len(str(rows))):,}"


def _show(bars: Bars, tables: list[Progress], under_way: dict[str, int]) -> None:
    for table in tables:
        done = table.ticks + table.present + under_way.get(table.table, 0)
        bars.update(table.table, min(done, table.total), table.total, rows=table.rows)


def _report(
    tables: list[Progress], groups: list[Acknowledged], seconds: float, lake: str, run: str, as_json: bool
) -> bool:
    """Prints the result. Returns whether files failed or ticks were not replaced."""
    failed = {file: error for table in tables for file, error in table.failed.items()}
    if as_json:
        found = {"run": run, "lake": lake, "seconds": round(seconds, 3), "tables": tables, "groups": groups}
        print_json(found)
    else:
        rows = [(one.table, one.ticks, one.present, one.rows, round(one.rows / seconds)) for one in tables]
        print_table(COLUMNS, rows, numbers=COLUMNS[1:])
        for file, error in failed.items():
            echo(f"{file}: {error}", err=True)
        if failed:
            retry = "with a database, `ticklake reconcile RUN --retry-failed --apply` retries them"
            echo(f"{len(failed):,} files are not indexed. Repair or remove them; {retry}.", err=True)
        for one in tables:
            if one.kept:
                ranges = ranges_text(one.kept)
                echo(f"{one.table}: not replaced, because no readable file has them: ticks {ranges}", err=True)
        for group in groups:
            left = f", {group.left:,} are left" if group.left else ""
            echo(f"{group.group}: {group.acknowledged:,} messages of {group.topic} acknowledged{left}")
        echo(f'Now try: ticklake sql "SUMMARIZE {tables[0].table}" --lake {lake} --run {run}')
    return bool(failed) or any(one.kept for one in tables)
