"""`ticklake db`: which version the tables of each run have, and bringing them up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from ticklake.cli._database import run_options
from ticklake.cli._output import json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.database import Backend, Schema
    from ticklake.database.versions import PackageVersion

PACKAGES = ("ticklake.topics", "ticklake.coordination", "ticklake.consumer")


@click.group()
def db() -> None:
    """Show and upgrade the versions of the tables in a database."""


@db.command()
@run_options
@json_option
def status(database: str | None, run_id: str | None, as_json: bool) -> None:
    """Say which version each run's tables have and which one this TickLake wants. Exit code 1 where they differ."""
    from ticklake.database.versions import package_versions

    with _opened(database) as backend:
        found = [one for schema in _schemas(backend, run_id) for one in package_versions(schema)]
    _print(found, as_json)
    if any(one.state in ("behind", "too new") for one in found):
        raise click.exceptions.Exit(1)


@db.command()
@run_options
@json_option
def upgrade(database: str | None, run_id: str | None, as_json: bool) -> None:
    """Bring the tables of every run, or of one, up to date. Whatever uses a run does the same for that run."""
    from ticklake.database.versions import upgrade as upgrade_schema

    with _opened(database) as backend:
        changed = [one for schema in _schemas(backend, run_id) for one in upgrade_schema(schema)]
    if as_json:
        print_json([_as_dict(one) for one in changed])
    for one in [] if as_json else changed:
        click.echo(f"{one.run_id}: {one.package} from version {one.version} to {one.wanted}")
    if not as_json and not changed:
        click.echo("Everything is up to date.")


@db.command()
@run_options
def sql(database: str | None, run_id: str | None) -> None:
    """Print the SQL that an upgrade would run, or, for a run that is not there yet, all the SQL that makes it."""
    from ticklake.database.versions import creation_script, upgrade_script

    with _opened(database) as backend:
        new = run_id is not None and run_id not in backend.runs()
        if new and run_id is not None:
            scripts = [creation_script(backend.schema(run_id), PACKAGES)]
        else:
            scripts = [upgrade_script(schema) for schema in _schemas(backend, run_id)]
    click.echo("\n\n".join(filter(None, scripts)) or "-- Everything is up to date.")


@contextmanager
def _opened(database: str | None) -> Iterator[Backend]:
    from ticklake.database import open_backend

    if not database:
        raise click.UsageError("Give --database URL: sqlite:///DIRECTORY or postgresql://…")
    with closing(open_backend(database)) as backend:
        yield backend


def _schemas(backend: Backend, run_id: str | None) -> list[Schema]:
    return [backend.schema(name, create=False) for name in ([run_id] if run_id else backend.runs())]


def _print(found: list[PackageVersion], as_json: bool) -> None:
    if as_json:
        print_json([_as_dict(one) for one in found])
    elif found:
        print_table(
            ("run", "package", "version", "wanted", "state"),
            [(one.run_id, one.package, one.version, one.wanted, one.state) for one in found],
            numbers=("version", "wanted"),
        )
    else:
        click.echo("No runs yet.")


def _as_dict(one: PackageVersion) -> dict[str, object]:
    return {"run": one.run_id, **{k: v for k, v in one._asdict().items() if k != "run_id"}, "state": one.state}
