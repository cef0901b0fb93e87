"""`ticklake topics`: lists topics, shows and sends messages, and removes old ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from google.protobuf import json_format

from ticklake.cli.listing import ListingGroup
from ticklake.cli.options.database import check_topic, dry_run_option, from_runs, open_run, run_options
from ticklake.cli.options.numbers import Seconds, count
from ticklake.cli.terminal.output import (
    echo,
    end_with,
    json_fields,
    json_option,
    note,
    print_json,
    print_table,
    versioned,
)
from ticklake.text import utc_text

if TYPE_CHECKING:
    from ticklake.topics import Run, StoredMessage

_FOLLOW_LIMIT = 1000


@click.group(cls=ListingGroup, invoke_without_command=True)
@run_options
@json_option
@click.pass_context
def topics(context: click.Context, database: tuple[str, ...], run_id: str | None, as_json: bool) -> None:
    """List the topics of a run, or of all runs; show, send and remove messages."""
    if context.invoked_subcommand is None:
        _list(database, run_id, as_json)


@topics.command()
@run_options
@click.argument("topic")
@click.option(
    "-n", "--count", "number", type=count(), default=10, show_default=True, help="Number of messages to show."
)
@click.option(
    "--after", metavar="ID", help="Show the messages after this one instead of the last ones; earliest: from the start."
)
@click.option("-f", "--follow", is_flag=True, help="Keep showing new messages.")
@click.option("--group", metavar="GROUP", help="Show the state of each message for this consumer group.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object on one line.")
def tail(
    database: tuple[str, ...],
    run_id: str | None,
    topic: str,
    number: int,
    after: str | None,
    follow: bool,
    group: str | None,
    as_json: bool,
) -> None:
    """Show the last messages of a topic without claiming them, or page through it with --after.

    The first time is by the sender's clock. `groups reset --to` expects the time after "stored".

    On PostgreSQL, -f skips a message whose transaction commits after a later message was shown. Consumer groups
    still get it.
    """
    with open_run(database, run_id, topic) as run:
        if not follow:
            check_topic(run, topic)
        elif not any(one == topic for one in run.topic_names()):
            note(f"Run {run.id} has no topic {topic!r} yet. Waiting for its first message.")
        position = run.position_before_last(topic, number) if after is None else run.position_of(topic, after)
        last = None
        for last in _messages(run, topic, position, None if follow else number, group):
            echo(_json_line(last, group) if as_json else _line(last, group))
        if more := run.count_after(topic, last.id if last else position):
            note(f"{more:,} more; continue with --after {last.message_id if last else after}.")


@topics.command()
@run_options
@click.argument("topic")
@click.option("--type", "type_name", default="BatchInfo", show_default=True, help="Type of the message.")
@click.option("--json", "text", metavar="JSON", required=True, help='Fields of the message, such as {"tickStart": 0}.')
def send(database: tuple[str, ...], run_id: str | None, topic: str, type_name: str, text: str) -> None:
    """Publish one message."""
    from ticklake import contracts

    kinds = [name for name in contracts.__all__ if hasattr(getattr(contracts, name), "DESCRIPTOR")]
    if type_name not in kinds:
        raise click.BadParameter(f"Unknown type {type_name}; known types: {', '.join(kinds)}.", param_hint="--type")
    try:
        message = json_format.Parse(text, getattr(contracts, type_name)())
    except json_format.ParseError as error:
        raise click.BadParameter(" ".join(str(error).split()), param_hint="--json") from error
    with open_run(database, run_id, topic) as run, run.writer(topic) as writer:
        echo(writer.send(message))


@topics.command()
@run_options
@click.argument("topic")
@click.option("--max-age", type=Seconds(), metavar="SECONDS", help="Remove messages that are older.")
@click.option("--max-count", type=count(), metavar="COUNT", help="Remove all but the newest COUNT messages.")
@click.option("--force", is_flag=True, help="Also remove messages that a consumer group still needs.")
@dry_run_option
@json_option
def prune(
    database: tuple[str, ...], run_id: str | None, topic: str, max_age: float | None, max_count: int | None,
    force: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Remove old messages, except claimed messages and dead letters."""
    with open_run(database, run_id, topic) as run:
        check_topic(run, topic)
        removed = run.remove_outdated(topic, max_age=max_age, max_count=max_count, force=force, dry_run=dry_run)
    if as_json:
        print_json({"removed": removed, "dry_run": dry_run})
    else:
        echo(f"{'Would remove' if dry_run else 'Removed'} {removed:,} messages.")


def _list(database: tuple[str, ...], run_id: str | None, as_json: bool) -> None:
    found, failures = from_runs(database, run_id, lambda run: run.topics())
    if as_json:
        print_json({"topics": [{"run": run, **json_fields(status)} for run, status in found]})
    elif found:
        rows = [(run, s.topic, s.messages, s.groups, clock_text(s.first_ms), clock_text(s.last_ms)) for run, s in found]
        print_table(
            ("run", "topic", "messages", "groups", "first (UTC)", "last (UTC)"), rows, numbers=("messages", "groups")
        )
    elif not failures:
        echo("No topics yet.")
    end_with(failures)


def clock_text(ms: int | None) -> str | None:
    return None if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _messages(run: Run, topic: str, after: int, count: int | None, group: str | None) -> Iterator[StoredMessage]:
    """Yields the next `count` messages; without a count, all, and then new ones for ever."""
    if count is not None:
        yield from run.browse(topic, after=after, limit=count, group=group)
        return
    with closing(run.listen(topic)) as listener:
        while True:
            found = run.browse(topic, after=after, limit=_FOLLOW_LIMIT, group=group)
            yield from found
            after = found[-1].id if found else after
            if not found:
                listener.wait(None)


def _line(message: StoredMessage, group: str | None) -> str:
    opened = message.opened()
    text = " ".join(str(opened.payload).split()) if opened else "cannot be decoded"
    kind = opened.payload.DESCRIPTOR.name if opened else "?"
    state = f"  {message.state:<12}" if group else ""
    stored = f"  stored {utc_text(message.stored_at_ms / 1000)}"
    return f"{clock_text(message.published_at_ms)} UTC  {message.message_id}{stored}{state}  {kind} {text}"


def _json_line(message: StoredMessage, group: str | None) -> str:
    opened = message.opened()
    fields = {
        "id": message.message_id,
        "published_at": utc_text(message.published_at_ms / 1000),
        "stored_at": utc_text(message.stored_at_ms / 1000),
        "type": opened.payload.DESCRIPTOR.full_name if opened else None,
        "payload": json_format.MessageToDict(opened.payload) if opened else None,
    }
    return json.dumps(versioned(fields | ({"state": message.state} if group else {})))
