"""The options that say where to look, the same for every command that reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ticklake.insights import Places

Command = TypeVar("Command", bound=Callable[..., Any])

storage_option = click.option(
    "--storage", metavar="DIR", envvar="TICKLAKE_STORAGE", show_envvar=True, help="Where the batch files are."
)
lake_option = click.option(
    "--lake", metavar="DIR", envvar="TICKLAKE_LAKE", show_envvar=True, help="Where the tables are."
)

database_option = click.option(
    "--database", metavar="URL", envvar="TICKLAKE_DATABASE", show_envvar=True, help="The database of the topics."
)


def lake_or_usage_error(lake: str | None) -> str:
    if not lake:
        raise click.UsageError("Give --lake DIR: it has the tables.")
    return lake


def places_options(command: Command) -> Command:
    return storage_option(lake_option(database_option(command)))


@contextmanager
def open_places(storage: str | None, lake: str | None, database: str | None) -> Iterator[Places]:
    """What the options name; at least one is needed."""
    if not (storage or lake or database):
        raise click.UsageError("Give --storage DIR, --lake DIR, --database URL or several of them.")
    from ticklake.insights import Places
    from ticklake.lake.catalog import Catalog
    from ticklake.storage.files import Storage
    from ticklake.topics import Database

    with Database(database) if database else nullcontext() as opened:
        yield Places(Storage(storage) if storage else None, Catalog(lake) if lake else None, opened)
