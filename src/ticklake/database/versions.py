"""The schema versions of a run, and upgrades to the versions of this TickLake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

from ticklake.database.schema import Schema
from ticklake.database.statements import Migration, migrations, statements

_OWN = "ticklake.database"
_BEGIN = {"sqlite": "BEGIN IMMEDIATE", "postgres": "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED"}
"""How `upgrade` begins. Not the server's default: a step that waited for a lock must see earlier changes."""

_VALUE = re.compile(r"%\((\w+)\)s|:(\w+)")


class PackageVersion(NamedTuple):
    """The version of a package's tables in a run. `wanted` is None if the package is not installed."""

    run_id: str
    package: str
    version: int
    wanted: int | None

    @property
    def state(self) -> str:
        if self.wanted is None:
            return "not installed"
        return "current" if self.version == self.wanted else "behind" if self.version < self.wanted else "too new"


def package_versions(schema: Schema) -> list[PackageVersion]:
    """Returns the packages that have tables in the run. Changes nothing."""
    with schema.reading() as transaction:
        found = transaction.sql(_OWN).package_versions()
    return [PackageVersion(schema.run_id, name, version, _wanted(name, schema.dialect)) for name, version in found]


def upgrade(schema: Schema) -> list[PackageVersion]:
    """Upgrades all outdated packages and returns them. Raises `SchemaTooNew` for a newer version."""
    changed = [one for one in package_versions(schema) if one.state in ("behind", "too new")]
    for one in changed:
        schema.prepare(one.package)
    return changed


def upgrade_script(schema: Schema) -> str:
    """Returns the SQL of `upgrade`; empty if there is nothing to do."""
    behind = [one for one in package_versions(schema) if one.state == "behind"]
    steps = [line for one in behind for line in _steps(schema.dialect, one.package, after=one.version)]
    return _script(schema, [], steps) if steps else ""


def creation_script(schema: Schema, packages: Iterable[str]) -> str:
    """Returns the SQL that creates a run."""
    steps = [line for package in packages for line in _steps(schema.dialect, package, after=0)]
    return _script(schema, _foundation(schema), steps)


def _wanted(package: str, dialect: str) -> int | None:
    if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
        return None
    steps = migrations(package, dialect)
    return steps[-1].number if steps else 0


def _steps(dialect: str, package: str, after: int) -> Iterator[str]:
    for step in migrations(package, dialect):
        if step.number > after:
            yield _titled(package, step)
            yield _filled("record_version", dialect, package=package, version=step.number)


def _titled(package: str, step: Migration) -> str:
    return f"-- {package}, version {step.number}\n{step.text.strip()}"


def _script(schema: Schema, foundation: list[str], steps: list[str]) -> str:
    postgres = schema.dialect == "postgres"
    enter = [f'SET LOCAL search_path TO "{schema.name}"'] if postgres else []
    head = f"-- run {schema.run_id}, {'schema' if postgres else 'file'} {schema.name}\n"
    make, rest = foundation[: 2 * postgres], foundation[2 * postgres :]
    lines = [_BEGIN[schema.dialect], *make, *enter, *rest, *steps, "COMMIT"]
    return head + "\n".join(line.removesuffix(";") + ";" for line in lines)


def _foundation(schema: Schema) -> list[str]:
    """Returns the SQL before any package: the run id of the schema, and the table of versions."""
    if schema.dialect == "sqlite":
        names = ("create_versions", "create_run", "record_run")
        return [_filled(name, "sqlite", run_id=schema.run_id) for name in names]
    comment = f'COMMENT ON SCHEMA "{schema.name}" IS {_literal(schema.run_id)}'
    rest = [_filled(name, "postgres") for name in ("create_versions", "clock", "clock_ms")]
    return [f'CREATE SCHEMA "{schema.name}"', comment, *rest]


def _filled(statement: str, dialect: str, **values: str | int) -> str:
    """Returns a statement with its values as literals, because a script cannot bind them."""
    text = statements(_OWN, dialect)[statement].strip()
    return _VALUE.sub(lambda found: _literal(values[found[1] or found[2]]) if values else found[0], text)


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
