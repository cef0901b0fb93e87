"""Options of the commands on topics: the database and the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from ticklake.cli.options.places import config_and_database_options, needed_databases, opened_all
from ticklake.defaults import NEWEST

if TYPE_CHECKING:
    from ticklake.topics import Database, Run

Item = TypeVar("Item")


class HasRuns(Protocol):
    """A place that lists its runs: a storage, a lake, a database."""

    def runs(self) -> Sequence[str]: ...


Command = TypeVar("Command", bound=Callable[..., Any])

topic_option = click.option("--topic", metavar="TOPIC", help="Only this topic.")
group_option = click.option("--group", metavar="GROUP", help="Only this consumer group.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


def run_options(command: Command) -> Command:
    """Adds `--config`, `--database` and `--run`."""
    return config_and_database_options(
        click.option("--run", "run_id", metavar="RUN", help="The run, or newest; default: the only one, or all.")(
            command
        )
    )


@contextmanager
def open_databases(urls: Sequence[str]) -> Iterator[list[Database]]:
    with opened_all(needed_databases(urls)) as opened:
        yield opened


def _given(databases: Sequence[Database], run_id: str) -> list[Run]:
    """Opens a run in each of the databases that has it."""
    from ticklake.topics import runs_in

    wanted = named_run(run_id, databases)
    # If no database has the run, the first one raises the error.
    return runs_in(databases, wanted) or [databases[0].run(wanted, create=False)]


def named_run(run_id: str, places: Sequence[HasRuns]) -> str:
    """Returns the given run; of `newest`, the newest run of these places."""
    if run_id != NEWEST:
        return run_id
    from ticklake.insights import chosen_run

    return chosen_run(run_id, sorted({name for place in places for name in place.runs()}), places[0])


def from_runs(
    databases: Sequence[str], run_id: str | None, read: Callable[[Run], Iterable[Item]]
) -> tuple[list[tuple[str, Item]], list[str]]:
    """Returns what `read` returns for the given run, or for all runs, each with its run.

    A run or a database that cannot be read hides no other: the second list has the reasons. If the run was given, its
    error is raised.
    """
    if run_id is not None:
        with open_databases(databases) as opened:
            return [(run.id, one) for run in _given(opened, run_id) for one in read(run)], []
    from ticklake.separate_reads import Attempts

    found: list[tuple[str, Item]] = []
    failures: list[str] = []
    with open_databases(databases) as opened:
        places = Attempts()
        listed = [(database, places.read(database, database.runs)) for database in opened]
        if all(names is None for _, names in listed):
            places.raise_first()
        for database, names in listed:
            for name in names or []:
                attempt = Attempts()
                rows = attempt.read(name, lambda: list(read(database.run(name, create=False))))  # noqa: B023  called here
                found += [(name, one) for one in rows or []]
                failures += attempt.errors
            failures += database.damaged
        failures += places.errors
    return found, failures


@contextmanager
def open_one(databases: Sequence[str], run_id: str | None) -> Iterator[list[Run]]:
    """Opens the given run, or the only one, in each database that has it. A file that cannot be read may be another."""
    from ticklake.topics import runs_in

    with open_databases(databases) as opened:
        if run_id is not None:
            yield _given(opened, run_id)
            return
        names = sorted({name for database in opened for name in database.runs()})
        unlisted = [reason for database in opened for reason in database.damaged]
        if len(names) != 1 or unlisted:
            found = ", ".join(names[:5]) or "none"
            raise click.UsageError(" ".join([f"Choose a run with --run RUN; known runs: {found}.", *unlisted]))
        yield runs_in(opened, names[0])


@contextmanager
def open_run(databases: Sequence[str], run_id: str | None, topic: str) -> Iterator[Run]:
    """Opens the run in the one database that has the topic."""
    with open_one(databases, run_id) as runs:
        known = [run for run in runs if len(runs) == 1 or any(one.topic == topic for one in run.topics())]
        if len(known) != 1:
            which = "None" if not known else "More than one"
            raise click.UsageError(f"{which} of the databases has the topic {topic}: choose one with --database URL.")
        yield known[0]


def check_topic(run: Run, topic: str) -> None:
    """Raises `TopicNotFound` for an unknown name, which would otherwise look like a topic without messages."""
    from ticklake.cli.errors import TopicNotFound

    names = [one.topic for one in run.topics()]
    if topic not in names:
        raise TopicNotFound(run_id=run.id, topic=topic, topics=", ".join(names) or "none")
