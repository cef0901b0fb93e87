"""`ticklake db`: shows and upgrades the schema versions of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from ticklake.cli.options.database import named_run, run_options
from ticklake.cli.options.places import needed_databases
from ticklake.cli.terminal.output import echo, end_with, json_option, print_json, print_table

if TYPE_CHECKING:
    from ticklake.database import Backend, Schema
    from ticklake.database.versions import PackageVersion

Item = TypeVar("Item")
PACKAGES = ("ticklake.topics", "ticklake.topics.removed", "ticklake.coordination", "ticklake.consumer")


@click.group()
def db() -> None:
    """Show and upgrade the schema versions of a database."""


@db.command()
@run_options
@json_option
def status(database: tuple[str, ...], run_id: str | None, as_json: bool) -> None:
    """Show the schema version of each run and the one that this TickLake needs. Exit code 1 if they differ."""
    from ticklake.database.versions import package_versions

    with _opened(database) as backends:
        every, failures = _of_each(backends, run_id, package_versions)
    found = [one for versions in every for one in versions]
    if found or not failures:
        _print(found, as_json)
    end_with(failures)
    if any(one.state in ("behind", "too new") for one in found):
        raise click.exceptions.Exit(1)


@db.command()
@run_options
@json_option
def upgrade(database: tuple[str, ...], run_id: str | None, as_json: bool) -> None:
    """Upgrade the schema of every run, or of one. A node and `index` upgrade the runs that they use.

    After a restore to another PostgreSQL server, this also replaces the transaction numbers of the original server.
    """
    with _opened(database) as backends:
        done, failures = _of_each(backends, run_id, lambda schema: (schema.run_id, *_upgraded(schema)))
    changed = [one for _, versions, _ in done for one in versions]
    restored = {name: messages for name, _, messages in done if messages is not None}
    if as_json:
        print_json({"packages": [_as_dict(one) for one in changed]})
    for one in [] if as_json else changed:
        echo(f"{one.run_id}: {one.package} from version {one.version} to {one.wanted}")
    for name, messages in [] if as_json else restored.items():
        echo(f"{name}: replaced the transaction numbers of another server in {messages:,} messages")
    if not as_json and not changed and not restored and not failures:
        echo("Everything is up to date.")
    end_with(failures)


def _upgraded(schema: Schema) -> tuple[list[PackageVersion], int | None]:
    """Upgrades a run. Returns the changed packages, and the messages that got new numbers; None if none was needed."""
    from ticklake.database.versions import upgrade as upgrade_schema
    from ticklake.topics.runs import open_store
    from ticklake.topics.store import has_foreign_numbers

    changed = list(upgrade_schema(schema))
    return changed, (open_store(schema).renumber() or 0) if has_foreign_numbers(schema) else None


@db.command()
@run_options
def sql(database: tuple[str, ...], run_id: str | None) -> None:
    """Print the SQL of an upgrade or, for a run that does not exist yet, the SQL that creates it."""
    from ticklake.database.versions import creation_script, upgrade_script

    with _opened(database) as backends:
        run_id = run_id and named_run(run_id, backends)
        if run_id is not None and not any(run_id in backend.runs() for backend in backends):
            scripts = [creation_script(backend.schema(run_id), PACKAGES) for backend in backends]
        else:
            scripts = [upgrade_script(schema) for schema in _schemas(backends, run_id)]
    echo("\n\n".join(filter(None, scripts)) or "-- Everything is up to date.")


@contextmanager
def _opened(databases: Sequence[str]) -> Iterator[list[Backend]]:
    from ticklake.database import open_backend

    with ExitStack() as stack:
        yield [stack.enter_context(closing(open_backend(url))) for url in needed_databases(databases)]


def _schemas(backends: Sequence[Backend], run_id: str | None) -> list[Schema]:
    """Returns the given run, or all, of each database that has it. If none has it, the first one raises the error."""
    run_id = run_id and named_run(run_id, backends)
    runs = [(backend, backend.runs()) for backend in backends]
    found = [(backend, name) for backend, names in runs for name in names if run_id in (None, name)]
    if run_id is not None and not found:
        found = [(backends[0], run_id)]
    return [backend.schema(name, create=False) for backend, name in found]


def _of_each(
    backends: Sequence[Backend], run_id: str | None, act: Callable[[Schema], Item]
) -> tuple[list[Item], list[str]]:
    """Does the same for each run. One that fails hides no other: the second list has the reasons."""
    from ticklake.separate_reads import Attempts

    if run_id is not None:
        return [act(schema) for schema in _schemas(backends, run_id)], []
    attempts, done = Attempts(), []
    listed = [attempts.read(backend, partial(_schemas, [backend], None)) for backend in backends]
    if all(schemas is None for schemas in listed):
        attempts.raise_first()
    for schema in [one for schemas in listed for one in schemas or []]:
        made = attempts.read(schema, partial(act, schema))
        done += [made] if made is not None else []
    return done, [*attempts.errors, *(reason for backend in backends for reason in backend.damaged)]


def _print(found: list[PackageVersion], as_json: bool) -> None:
    if as_json:
        print_json({"packages": [_as_dict(one) for one in found]})
    elif found:
        print_table(
            ("run", "package", "version", "wanted", "state"),
            [(one.run_id, one.package, one.version, one.wanted, one.state) for one in found],
            numbers=("version", "wanted"),
        )
    else:
        echo("No runs yet.")


def _as_dict(one: PackageVersion) -> dict[str, object]:
    return {"run": one.run_id, **{k: v for k, v in one._asdict().items() if k != "run_id"}, "state": one.state}
