"""`ticklake reconcile`: finds and repairs differences between storage, topic and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.options.completeness import SHOWN, open_run, ranges_text
from ticklake.cli.options.places import batch_topic_option, needed_databases, places_options
from ticklake.cli.terminal.output import echo, json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.completeness import Repair

COLUMNS = ("what", "where", "action")


@click.command()
@click.argument("run", required=False)
@places_options
@batch_topic_option
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated. Default: all tables.")
@click.option("--apply", is_flag=True, help="Apply the changes; without it they are only shown.")
@click.option("--create", is_flag=True, help="Create the run in the first database if none has it.")
@click.option("--retry-failed", is_flag=True, help="Also retry failed batch files.")
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
    """Compare the files, messages and tables of RUN and repair differences. Default: the newest run."""
    needed_databases(database)
    with open_run(run, storage, lake, database, topic=batch_topic) as completeness:
        repair = completeness.plan(tables, retry_failed=retry_failed, create=create)
        if apply:
            completeness.apply(repair)
    if as_json:
        print_json({"applied": apply, "repair": repair})
    else:
        show(repair, apply)
    if apply and (remaining := _remaining(repair)):
        echo(f"Not repaired: {'; '.join(remaining)}.", err=True)
        raise click.exceptions.Exit(1)


def _remaining(repair: Repair) -> list[str]:
    """Returns the differences that this command cannot repair."""
    vanished = [f"{len(repair.vanished):,} announced files do not exist"] if repair.vanished else []
    return vanished + [
        f"{table.table} lacks {ranges_text(table.missing)} and has no coordinator (use `ticklake index`)"
        for table in repair.tables
        if table.missing and not table.coordinated
    ]


def show(repair: Repair, applied: bool) -> None:
    rows = _rows(repair)
    if not rows:
        echo("Files, messages and tables agree.")
        return
    print_table(COLUMNS, rows)
    echo("Done." if applied else "Nothing was changed. --apply applies the actions.")


def _rows(repair: Repair) -> list[tuple[str, str, str]]:
    publish = f"publish to {repair.topic}"
    rows = [("file without a message", key, publish) for key in repair.unannounced[:SHOWN]]
    if len(repair.unannounced) > SHOWN:
        rows.append(("", f"and {len(repair.unannounced) - SHOWN:,} more", publish))
    rows += [("announced, but no file", key, "none: the file is gone") for key in repair.vanished[:SHOWN]]
    if len(repair.vanished) > SHOWN:
        rows.append(("", f"and {len(repair.vanished) - SHOWN:,} more", "none: the files are gone"))
    for table in repair.tables:
        action = "search and index again" if table.coordinated else "none: ticklake index or the topic fills it"
        if table.missing:
            rows.append((f"not in {table.table}", ranges_text(table.missing), action))
        rows += [(f"failed for {table.table}", name, "retry") for name in table.retried]
    return rows
