"""Options for the places that commands read: storage, lake, databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from ticklake.cli.terminal.output import note

if TYPE_CHECKING:
    from ticklake.insights import Places
    from ticklake.topics import Database

Command = TypeVar("Command", bound=Callable[..., Any])

_CONFIGURED = "ticklake.cli.configured"


class _Configured(NamedTuple):
    """The given configuration and the places that it names."""

    file: str
    places: dict[str, tuple[str, ...]]


class PlaceOption(click.Option):
    """An option whose environment variable is ignored if a configuration is given."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return None if ctx.meta.get(_CONFIGURED) else super().resolve_envvar_value(ctx)


storage_option = click.option(
    "--storage",
    cls=PlaceOption,
    metavar="DIR",
    envvar="TICKLAKE_STORAGE",
    show_envvar=True,
    help="Directory of the batch files.",
)
lake_option = click.option(
    "--lake", cls=PlaceOption, metavar="DIR", envvar="TICKLAKE_LAKE", show_envvar=True, help="Directory of the tables."
)


batch_topic_option = click.option(
    "--topic",
    "batch_topic",
    metavar="TOPIC",
    help="Topic of the batch files; default: the one in the configuration, or the one with such messages.",
)


class _Url(click.types.StringParamType):
    """Reads one URL from the environment variable. It is not split at spaces, which a path may contain."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [rv] if rv else []


_SQLITE = "sqlite:///"


def _check_databases(context: click.Context, _: click.Parameter, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Checks that given SQLite directories exist: a mistyped one would look empty. Only what writes creates one.

    One that a configuration names may be created later; `reconcile --create` creates it.
    """
    from ticklake.cli.errors import DatabaseNotFound

    named = (
        context.meta.get(_CONFIGURED) and context.get_parameter_source("database") is not ParameterSource.COMMANDLINE
    )
    for url in () if named or context.info_name == "reconcile" else urls:
        if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists():
            raise DatabaseNotFound(url=url)
    return urls


database_option = click.option(
    "--database",
    cls=PlaceOption,
    callback=_check_databases,
    metavar="URL",
    type=_Url(),
    multiple=True,
    envvar="TICKLAKE_DATABASE",
    show_envvar=True,
    help="Database of the topics, sqlite:///DIRECTORY or postgresql://…; may be repeated.",
)


def _defaults(context: click.Context, _: click.Parameter, file: str | None) -> str | None:
    """Takes the defaults of options from the configuration."""
    if file:
        from ticklake.config import load

        found = load(file).places()
        context.meta[_CONFIGURED] = _Configured(file, {"storage": found.storages, "lake": found.lakes})
        context.default_map = {
            "storage": found.storage,
            "lake": found.lake,
            "database": found.databases,
            "batch_topic": found.batch_topic,
            "run_topic": found.run_topic,
        }
    return file


def config_option(*, expose: bool) -> Callable[[Command], Command]:
    return click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=expose,
        callback=_defaults,
        help="Use the storage, the lake and all databases of this configuration.",
    )


def needed(kind: str, value: str | None, why: str) -> str:
    """Returns the storage or the lake. Raises a usage error if it is not given or if a configuration names several."""
    names = _configured(kind)
    if names is not None and len(names) != 1:
        has = f"names several {kind}s ({', '.join(names)})" if names else f"names no {kind}"
        raise click.UsageError(f"{_file()} {has}. Choose one with --{kind} DIR: {why}.")
    if not value:
        raise click.UsageError(f"Give --{kind} DIR or --config FILE: {why}.")
    return value


def needed_databases(urls: Sequence[str]) -> Sequence[str]:
    """Returns the databases. Raises a usage error if there is none."""
    if not urls and _file():
        raise click.UsageError(f"{_file()} names no database. Give --database URL.")
    if not urls:
        raise click.UsageError("Give --database URL (sqlite:///DIRECTORY or postgresql://…) or --config FILE.")
    return urls


def _configured(kind: str) -> tuple[str, ...] | None:
    """Returns the places that the configuration names; None without one, or if the place was given as an option."""
    context = click.get_current_context()
    found: _Configured | None = context.meta.get(_CONFIGURED)
    typed = context.get_parameter_source(kind) is ParameterSource.COMMANDLINE
    return None if found is None or typed else found.places[kind]


def _file() -> str | None:
    found: _Configured | None = click.get_current_context().meta.get(_CONFIGURED)
    return found.file if found else None


def places_options(command: Command) -> Command:
    """Adds `--storage`, `--lake` and `--database`, and `--config`, which can replace all of them."""
    return config_option(expose=False)(storage_option(lake_option(database_option(command))))


def config_and_places_options(command: Command) -> Command:
    """Adds the same options for a command that also reads the configuration itself."""
    return config_option(expose=True)(storage_option(lake_option(database_option(command))))


def lake_options(command: Command) -> Command:
    """Adds `--lake`, and `--config`, which can replace it."""
    return config_option(expose=False)(lake_option(command))


def config_and_database_options(command: Command) -> Command:
    return config_option(expose=False)(database_option(command))


@contextmanager
def open_places(storage: str | None, lake: str | None, databases: Sequence[str]) -> Iterator[Places]:
    """Opens the places that the options name. At least one is required."""
    if not (storage or lake or databases):
        raise click.UsageError("Give --config FILE, or at least one of --storage DIR, --lake DIR and --database URL.")
    from ticklake.insights import Places
    from ticklake.lake.read import Catalog, Presence
    from ticklake.storage import Storage

    _check_storage(storage)
    if left_out := [name for kind in ("storage", "lake") for name in (_configured(kind) or ())[1:]]:
        note(f"Not shown, because only one storage and one lake are shown at a time: {', '.join(left_out)}")
    with opened_all(databases) as opened:
        catalog = Catalog(lake) if lake else None
        yield Places(Storage(storage) if storage else None, catalog, opened, Presence())


def _check_storage(storage: str | None) -> None:
    """Checks that the storage exists. One named by a configuration may be created later."""
    from ticklake.checks.places import storage_place
    from ticklake.cli.errors import StorageNotFound

    place = storage_place(storage) if storage else None
    if isinstance(place, Path) and not place.is_dir():
        context = click.get_current_context(silent=True)
        if place.exists() or not (context and context.meta.get(_CONFIGURED)):
            raise StorageNotFound(storage=place)


@contextmanager
def opened_all(urls: Sequence[str]) -> Iterator[list[Database]]:
    from ticklake.topics import Database

    with ExitStack() as stack:
        yield [stack.enter_context(Database(url)) for url in urls]
