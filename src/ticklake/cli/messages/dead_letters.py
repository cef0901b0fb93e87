"""`ticklake dead-letters`: shows, replays and discards messages that could not be processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from google.protobuf import json_format

from ticklake.cli.errors import DeadLetterNotFound
from ticklake.cli.messages.topics import clock_text
from ticklake.cli.options.database import dry_run_option, from_runs, group_option, open_one, run_options, topic_option
from ticklake.cli.options.numbers import count
from ticklake.cli.terminal.output import echo, end_with, json_fields, json_option, note, print_json, print_table

if TYPE_CHECKING:
    from ticklake.topics import DeadLetter, Run

Command = TypeVar("Command", bound=Callable[..., Any])
COLUMNS = ("run", "topic", "group", "message", "attempts", "since (UTC)", "error")


def _filter_options(command: Command) -> Command:
    error = click.option("--error", metavar="TEXT", help="Only dead letters whose error contains this text.")
    return topic_option(group_option(error(command)))


@click.group("dead-letters")
def dead_letters() -> None:
    """List, replay and discard dead letters: messages that could not be processed."""


@dead_letters.command("list")
@run_options
@_filter_options
@click.option("--limit", type=count(), default=100, show_default=True, help="Maximum number to list.")
@json_option
def list_letters(
    database: tuple[str, ...],
    run_id: str | None,
    topic: str | None,
    group: str | None,
    error: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List dead letters, the oldest first."""
    from ticklake.topics import DeadLetterFilter

    which = DeadLetterFilter(topic=topic, group=group, error=error)
    every, failures = from_runs(
        database, run_id, lambda run: [(run.dead_letters.list(which, limit), run.dead_letters.count(which))]
    )
    letters = [(run, letter) for run, (some, _) in every for letter in some]
    found = sorted(letters, key=lambda one: one[1].dead_at_ms)[:limit]
    left = sum(count for _, (_, count) in every) - len(found)
    if as_json:
        print_json({"dead_letters": [{"run": run, **_fields(letter)} for run, letter in found], "more": left})
    elif found:
        rows = [
            (run, x.topic, x.group, x.message_id, x.attempts, clock_text(x.dead_at_ms), x.error) for run, x in found
        ]
        print_table(COLUMNS, rows, numbers=("attempts",))
    elif not failures:
        echo("No dead letters.")
    if left > 0:
        note(f"{left:,} more; a higher --limit shows them.")
    end_with(failures)


@dead_letters.command()
@run_options
@click.argument("message_id")
@_filter_options
@json_option
def show(
    database: tuple[str, ...], run_id: str | None, message_id: str, topic: str | None, group: str | None,
    error: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show a dead letter with its content and its traceback."""
    from ticklake.topics import DeadLetterFilter

    with open_one(database, run_id) as runs:
        found = [
            one for run in runs for one in run.dead_letters.list(DeadLetterFilter(topic, group, message_id, error))
        ]
        if not found:
            raise DeadLetterNotFound(run_id=runs[0].id, message_id=message_id)
    if as_json:
        print_json({"dead_letters": [_fields(letter) for letter in found]})
        return
    for letter in found:
        for name, value in _fields(letter).items():
            echo(f"{name}: {value}")


@dead_letters.command()
@run_options
@click.argument("message_id", required=False)
@_filter_options
@click.option("--all", "every", is_flag=True, help="All that match.")
@dry_run_option
@json_option
def replay(
    database: tuple[str, ...], run_id: str | None, message_id: str | None, topic: str | None, group: str | None,
    error: str | None, every: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Deliver a dead letter again, or all that match. The position of the group does not change."""
    _check_choice(message_id, every)
    with _chosen(database, run_id, message_id) as runs:
        done = sum(_act(run, "replay", (topic, group, message_id, error), dry_run) for run in runs)
    _report("replayed", done, dry_run, as_json)


@dead_letters.command()
@run_options
@click.argument("message_id", required=False)
@_filter_options
@click.option("--all", "every", is_flag=True, help="All that match.")
@dry_run_option
@json_option
def discard(
    database: tuple[str, ...], run_id: str | None, message_id: str | None, topic: str | None, group: str | None,
    error: str | None, every: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Discard a dead letter, or all that match. They are never delivered to those groups again."""
    _check_choice(message_id, every)
    with _chosen(database, run_id, message_id) as runs:
        done = sum(_act(run, "discard", (topic, group, message_id, error), dry_run) for run in runs)
    _report("discarded", done, dry_run, as_json)


def _check_choice(message_id: str | None, every: bool) -> None:
    if bool(message_id) == every:
        raise click.UsageError("Give a message id, or --all (with or without filters).")


@contextmanager
def _chosen(database: tuple[str, ...], run_id: str | None, message_id: str | None) -> Iterator[list[Run]]:
    """Opens the run. Raises `DeadLetterNotFound` for an unknown message."""
    from ticklake.topics import DeadLetterFilter

    with open_one(database, run_id) as runs:
        which = DeadLetterFilter(message_id=message_id)
        if message_id and not any(run.dead_letters.count(which) for run in runs):
            raise DeadLetterNotFound(run_id=runs[0].id, message_id=message_id)
        yield runs


def _act(run: Run, act: str, which: tuple[str | None, str | None, str | None, str | None], dry_run: bool) -> int:
    from ticklake.topics import DeadLetterFilter

    letters, chosen = run.dead_letters, DeadLetterFilter(*which)
    if act == "replay":
        return letters.replay(chosen, dry_run=dry_run)
    return letters.count(chosen) if dry_run else letters.discard(chosen)


def _report(act: str, number: int, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({act: number, "dry_run": dry_run})
    else:
        echo(f"{number:,} dead letters {'would be ' if dry_run else ''}{act}.")


def _fields(letter: DeadLetter) -> dict[str, Any]:
    opened = letter.opened()
    payload = json_format.MessageToDict(opened.payload) if opened else None
    return {**json_fields(letter), "envelope": letter.envelope.hex(), "payload": payload}
