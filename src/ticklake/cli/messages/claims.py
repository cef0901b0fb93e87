"""`ticklake claims`: lists which consumer holds which message, and releases claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ticklake.cli.listing import ListingGroup
from ticklake.cli.messages.groups import age_text
from ticklake.cli.options.database import dry_run_option, from_runs, group_option, open_one, run_options, topic_option
from ticklake.cli.terminal.output import echo, end_with, json_fields, json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.topics import HeldClaim

COLUMNS = ("run", "topic", "group", "message", "consumer", "held for", "expires in", "attempts")


_stuck_option = click.option("--stuck", is_flag=True, help="Only expired claims, and old claims that never expire.")


@click.group(cls=ListingGroup, invoke_without_command=True)
@run_options
@topic_option
@group_option
@_stuck_option
@json_option
@click.pass_context
def claims(
    context: click.Context, database: tuple[str, ...], run_id: str | None, topic: str | None, group: str | None,
    stuck: bool, as_json: bool,
) -> None:  # fmt: skip
    """List which consumer holds which message, the oldest claim first; release claims."""
    if context.invoked_subcommand is None:
        found, failures = from_runs(
            database, run_id, lambda run: run.claims.list(topic=topic, group=group, stuck=stuck, limit=None)
        )
        _print(sorted(found, key=lambda one: -one[1].age_ms), as_json, is_whole=not failures)
        end_with(failures)


@claims.command()
@run_options
@topic_option
@group_option
@click.option("--message", "message_id", metavar="ID", help="Only this message.")
@_stuck_option
@dry_run_option
@json_option
def release(
    database: tuple[str, ...], run_id: str | None, topic: str | None, group: str | None, message_id: str | None,
    stuck: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Release claims, so that other consumers get the messages."""
    if not (topic or group or message_id or stuck):
        raise click.UsageError("Choose claims with --stuck, --topic, --group or --message.")
    with open_one(database, run_id) as runs:
        which = {"topic": topic, "group": group, "message_id": message_id}
        held = [(run, run.claims.named(**which, stuck=stuck)) for run in runs]
        released = sum(len(claims) if dry_run else run.claims.release(claims) for run, claims in held)
    if as_json:
        print_json({"released": released, "dry_run": dry_run})
    else:
        echo(f"{'Would release' if dry_run else 'Released'} {released:,} claims.")


def _print(found: list[tuple[str, HeldClaim]], as_json: bool, *, is_whole: bool) -> None:
    if as_json:
        print_json({"claims": [{"run": run, **json_fields(claim)} for run, claim in found]})
    elif found:
        rows = [
            (run, c.topic, c.group, c.message_id, c.consumer, age_text(c.age_ms), _expiry(c.expires_in_ms), c.attempts)
            for run, c in found
        ]
        print_table(COLUMNS, rows, numbers=("held for", "expires in", "attempts"))
    elif is_whole:
        echo("No claims.")


def _expiry(ms: int | None) -> str | None:
    if ms is None:
        return "never"
    return age_text(ms) if ms > 0 else "expired"
