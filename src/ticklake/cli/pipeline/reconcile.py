"""`ticklake reconcile`: what storage, topic and tables do not agree on, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.completeness import SHOWN, open_run, ranges_text
from ticklake.cli.options.places import batch_topic_option, places_options
from ticklake.cli.terminal.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.completeness import Repair

COLUMNS = ("what", "where", "action")


@click.command()
@click.argument("run", required=False)
@places_options
@batch_topic_option
@click.option("--table", "tables", multiple=True, help="Only this table (may be given again); default: all.")
@click.option("--apply", is_flag=True, help="Do it; without this it is only shown.")
@click.option("--create", is_flag=True, help="Create the run in the first database if none has it.")
@click.option("--retry-failed", is_flag=True, help="Also give failed batches another try.")
@json_option
def reconcile(
    run: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    batch_topic: str | None,
    tables: tuple[str, ...],
    apply: bool,
    create: bool,
    retry_failed: bool,
    as_json: bool,
) -> None:
    """Compare the files, messages and tables of RUN (or of the newest run), and make good what can be."""
    if not database:
        raise click.UsageError("Give --database URL: it has the topic and the coordinator.")
    with open_run(run, storage, lake, database, topic=batch_topic) as completeness:
        repair = completeness.plan(tables, retry_failed=retry_failed, create=create)
        if apply:
            completeness.apply(repair)
    if as_json:
        print_json({"applied": apply, "repair": repair})
    else:
        show(repair, apply)
    if apply and (left := _left(repair)):
        click.echo(f"Not made good: {'; '.join(left)}.", err=True)
        raise click.exceptions.Exit(1)


def _left(repair: Repair) -> list[str]:
    """What nothing here can do anything about."""
    left = [f"{len(repair.vanished):,} announced files are not there"] if repair.vanished else []
    return left + [
        f"{table.table} lacks {ranges_text(table.missing)}, and no coordinator is at work on it (`ticklake index` is)"
        for table in repair.tables
        if table.missing and not table.coordinated
    ]


def show(repair: Repair, applied: bool) -> None:
    rows = _rows(repair)
    if not rows:
        click.echo("Files, messages and tables agree.")
        return
    print_table(COLUMNS, rows)
    click.echo("Done." if applied else "Nothing was changed; --apply does it.")


def _rows(repair: Repair) -> list[tuple[str, str, str]]:
    publish = f"publish to {repair.topic}"
    rows = [("file that no message tells of", key, publish) for key in repair.unannounced[:SHOWN]]
    if len(repair.unannounced) > SHOWN:
        rows.append(("", f"and {len(repair.unannounced) - SHOWN:,} more", publish))
    rows += [("announced and not there", key, "none: its file is gone") for key in repair.vanished[:SHOWN]]
    if len(repair.vanished) > SHOWN:
        rows.append(("", f"and {len(repair.vanished) - SHOWN:,} more", "none: their files are gone"))
    for table in repair.tables:
        action = "search and index again" if table.coordinated else "none: ticklake index, or its topic, does it"
        if table.missing:
            rows.append((f"not in {table.table}", ranges_text(table.missing), action))
        rows += [(f"failed for {table.table}", name, "try again") for name in table.retried]
    return rows
