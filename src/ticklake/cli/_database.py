"""The options of the commands around topics: which database, which run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ticklake.topics import Database, Run

Command = TypeVar("Command", bound=Callable[..., Any])

_database_option = click.option(
    "--database",
    metavar="URL",
    envvar="TICKLAKE_DATABASE",
    show_envvar=True,
    help="sqlite:///DIRECTORY or postgresql://…",
)
topic_option = click.option("--topic", metavar="TOPIC", help="Only this topic.")
group_option = click.option("--group", metavar="GROUP", help="Only this consumer group.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


def run_options(command: Command) -> Command:
    """Adds `--database` and `--run`."""
    return _database_option(click.option("--run", "run_id", metavar="RUN", help="Which run.")(command))


@contextmanager
def open_runs(database: str | None, run_id: str | None) -> Iterator[list[Run]]:
    """The run that was asked for, or all there are."""
    if not database:
        raise click.UsageError("Give --database URL: sqlite:///DIRECTORY or postgresql://…")
    with _opened(database) as opened:
        names = [run_id] if run_id else opened.runs()
        yield [opened.run(name, create=False) for name in names]


@contextmanager
def open_run(database: str | None, run_id: str | None) -> Iterator[Run]:
    """The run that was asked for, or the only one there is."""
    with open_runs(database, run_id) as runs:
        if len(runs) != 1:
            names = ", ".join(run.id for run in runs[:5]) or "none"
            raise click.UsageError(f"Say which run with --run RUN; the database has {names}.")
        yield runs[0]


def _opened(url: str) -> Database:
    from ticklake.topics import Database

    return Database(url)
