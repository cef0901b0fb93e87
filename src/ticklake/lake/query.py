"""SQL over the lake's tables with DuckDB: no JVM, and no way out of the tables into the file system."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ticklake.errors import BadQuery, TableUnreadable
from ticklake.lake.catalog import Catalog

log = logging.getLogger(__name__)

_PAGE = 10_000

# A query may come from anywhere: it sees the tables, and neither files, network, extensions nor Python variables.
_SANDBOX: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}


@dataclass(frozen=True)
class Result:
    """The columns of a query's result, and its rows as they are computed."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(catalog: Catalog, sql: str, run_id: str | None = None) -> Iterator[Result]:
    """Runs one statement over views named like the tables; each row says which run it is from in `run_id`."""
    with duckdb.connect(config=_SANDBOX) as connection:
        tables = _create_views(connection, catalog, catalog.chosen(run_id))
        connection.execute("SET lock_configuration = true")
        with _errors_in_one_line(tables):
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise BadQuery(reason=f"one statement is expected, not {len(statements)}", tables=", ".join(tables))
            cursor = connection.execute(statements[0])
            columns = [column[0] for column in cursor.description or []]
        yield Result(columns, _rows(cursor, tables))


def _create_views(connection: duckdb.DuckDBPyConnection, catalog: Catalog, runs: Sequence[str]) -> list[str]:
    """One view a table over all the runs that have it."""
    parts: dict[str, list[str]] = {}
    for run in runs:
        for table in catalog.tables(run):
            source = f"{run}/{table}"
            try:
                connection.register(source, catalog.dataset(run, table))
            except TableUnreadable as error:
                log.warning("Left out: %s", error)
                continue
            select = f"SELECT {_literal(run)} AS run_id, * FROM {_identifier(source)}"  # noqa: S608
            parts.setdefault(table, []).append(select)
    for table, selects in parts.items():
        connection.execute(f"CREATE VIEW {_identifier(table)} AS {' UNION ALL BY NAME '.join(selects)}")
    return sorted(parts)


def _rows(cursor: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    with _errors_in_one_line(tables):
        while page := cursor.fetchmany(_PAGE):
            yield from page


@contextmanager
def _errors_in_one_line(tables: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        # DuckDB adds a drawing of the place below its message.
        message = str(error).partition("\n\nLINE")[0]
        raise BadQuery(reason=message, tables=", ".join(tables) or "none") from error


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
