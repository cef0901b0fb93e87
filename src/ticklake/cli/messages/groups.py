"""`ticklake groups`: lists the consumer groups with their lag, and resets or releases one."""

from __future__ import annotations

import click

from ticklake import text
from ticklake.cli.listing import ListingGroup
from ticklake.cli.options.database import dry_run_option, from_runs, open_run, run_options, topic_option
from ticklake.cli.terminal.output import echo, end_with, json_fields, json_option, print_json, print_table

COLUMNS = ("run", "topic", "group", "lag", "oldest", "claimed", "dead letters")


@click.group(cls=ListingGroup, invoke_without_command=True)
@run_options
@topic_option
@json_option
@click.pass_context
def groups(
    context: click.Context, database: tuple[str, ...], run_id: str | None, topic: str | None, as_json: bool
) -> None:
    """List the consumer groups with their lag; reset or release one."""
    if context.invoked_subcommand is None:
        _list(database, run_id, topic, as_json)


@groups.command()
@run_options
@click.argument("topic")
@click.argument("group")
@click.option(
    "--to", "target", required=True, metavar="WHERE", help="earliest, end, a message id, or an ISO time, in UTC."
)
@dry_run_option
@json_option
def reset(
    database: tuple[str, ...], run_id: str | None, topic: str, group: str, target: str, dry_run: bool, as_json: bool
) -> None:
    """Set a group to another position. The group loses its current claims."""
    from ticklake.topics.admin import parse_position, reset_text

    to = parse_position(target)
    with open_run(database, run_id, topic) as run:
        ahead = run.groups.reset(topic, group, to, dry_run=dry_run)
    if as_json:
        print_json({"topic": topic, "group": group, "to": to, "messages_ahead": ahead, "dry_run": dry_run})
    else:
        echo(reset_text(topic, group, to, ahead, dry_run=dry_run))


@groups.command()
@run_options
@click.argument("topic")
@click.argument("group")
@json_option
def release(database: tuple[str, ...], run_id: str | None, topic: str, group: str, as_json: bool) -> None:
    """Forget which table a group fills, so that its next indexer may fill another one.

    Stop its indexers first. Use `groups reset --to earliest` to fill the new table from the start.
    """
    from ticklake.cli.errors import GroupFillsNothing
    from ticklake.coordination import unbind

    with open_run(database, run_id, topic) as run:
        table = unbind(run, topic, group)
        if table is None:
            raise GroupFillsNothing(topic=topic, group=group, run_id=run.id)
    if as_json:
        print_json({"topic": topic, "group": group, "table": table})
    else:
        echo(f"{group} may now fill another table. It filled {table.location or 'none'}.")


def _list(database: tuple[str, ...], run_id: str | None, topic: str | None, as_json: bool) -> None:
    found, failures = from_runs(database, run_id, lambda run: run.groups.list(topic))
    if as_json:
        print_json({"groups": [{"run": run, **json_fields(status)} for run, status in found]})
    elif found:
        rows = [(run, s.topic, s.group, s.lag, age_text(s.oldest_ms), s.claimed, s.dead_letters) for run, s in found]
        print_table(COLUMNS, rows, numbers=("lag", "oldest", "claimed", "dead letters"))
    elif not failures:
        echo("No consumer groups yet.")
    end_with(failures)


def age_text(ms: int | None) -> str | None:
    """Formats an age: 0.3 s, 12 s, 5 min, 3.1 h, 2.0 d."""
    return None if ms is None else text.age_text(ms / 1000)
