"""SQL on the lake's tables with DuckDB: no JVM, and no access to other files."""

from __future__ import annotations

import glob
import itertools
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ticklake.lake.cells import CHANGES
from ticklake.lake.delta import added_columns
from ticklake.lake.errors import BadQuery, QueryTooSlow, ResultTooLarge, TableUnreadable
from ticklake.lake.read.catalog import Catalog

log = logging.getLogger(__name__)

RUN_ID = "run_id"
"""The additional column of views: the run of each row."""

_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_PAGE = 10_000
_BATCH = 256

Config = dict[str, str | bool | int | float | list[str]]


@dataclass(frozen=True)
class Limits:
    """Limits for queries from untrusted users: time, memory, and size of the result."""

    seconds: float = 10.0
    megabytes: int = 512
    rows: int = 10_000
    result_megabytes: int = 64


@dataclass(frozen=True)
class Result:
    """The columns of a query's result, and its rows as they are computed."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(catalog: Catalog, sql: str, run_id: str | None = None) -> Iterator[Result]:
    """Runs one SELECT on views named like the tables. The column `run_id` has the run of each row.

    If a table has its own column `run_id`, it is `run_id_1` in the view. Raises `BadQuery` if the query uses a table
    that cannot be read in one of the runs: its result would be incomplete.
    """
    with opened(catalog, run_id) as (connection, tables), _errors_in_one_line(tables):
        cursor = connection.execute(_only(connection, sql, tables))
        columns = unique([column[0] for column in cursor.description or []])
        yield Result(columns, _rows(cursor))


def limited_query(catalog: Catalog, sql: str, run_id: str, limits: Limits) -> tuple[pa.Table, bool]:
    """Returns the first rows of a SELECT on the tables of a run, and whether there are more."""
    # Without a directory for temporary files, a query that needs more memory fails.
    config: Config = {"memory_limit": f"{limits.megabytes}MB", "threads": 2, "temp_directory": ""}
    with opened(catalog, run_id, config) as (connection, tables), _errors_in_one_line(tables):
        _only(connection, sql, tables)
        alarm = threading.Timer(limits.seconds, connection.interrupt)
        alarm.start()
        try:
            found = _limited(connection.sql(sql).limit(limits.rows + 1), limits)
        except duckdb.InterruptException as error:
            raise QueryTooSlow(seconds=limits.seconds) from error
        finally:
            alarm.cancel()
        return found.slice(0, limits.rows), found.num_rows > limits.rows


def texts(column: pa.ChunkedArray) -> list[str | None]:
    """Returns the values of a column as DuckDB prints them. It supports dates that Python does not: infinity, 44 BC."""
    with duckdb.connect() as connection:
        connection.register("result", pa.table([column], names=["value"]))
        return [text for (text,) in connection.execute("SELECT value::VARCHAR FROM result").fetchall()]


def _limited(relation: duckdb.DuckDBPyRelation, limits: Limits) -> pa.Table:
    """Reads a result in small parts, because DuckDB's memory limit does not count what Arrow holds."""
    reader = relation.to_arrow_reader(_BATCH)
    parts, size, deadline = [], 0, time.monotonic() + limits.seconds
    for part in reader:
        size += part.nbytes
        if size > limits.result_megabytes * 1_000_000:
            raise ResultTooLarge(megabytes=limits.result_megabytes)
        if time.monotonic() > deadline:
            raise QueryTooSlow(seconds=limits.seconds)
        parts.append(part)
    return pa.Table.from_batches(parts, reader.schema)


@contextmanager
def opened(
    catalog: Catalog, run_id: str | None, config: Config | None = None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, _Views]]:
    """Opens DuckDB for untrusted queries: they can read the tables' files, but no other files and no network."""
    with duckdb.connect(config=config or {}) as connection:
        runs = catalog.chosen(run_id)
        parts = _parts(catalog, runs)
        files = [file for part in parts for file in part.files]
        # DuckDB checks a path as it is given, and again the file that it finds there.
        connection.execute(f"SET allowed_paths = {_list([*files, *map(glob.escape, files)])}")
        connection.execute("SET enable_external_access = false")
        views = {table: _view(connection, table, parts) for table in sorted({part.table for part in parts})}
        if views.get(CHANGES) == "":
            with suppress(duckdb.Error):  # another indexer may have made a table of this name
                connection.execute((package_files("ticklake.lake.read") / "cells_at.sql").read_text())
        connection.execute("SET lock_configuration = true")
        yield connection, _Views(views, len(runs))


class _Views(NamedTuple):
    """The tables of a query, each with the reason why it cannot be read; an empty text if it can."""

    flaws: dict[str, str]
    runs: int

    def __str__(self) -> str:
        return ", ".join(f"{table} (cannot be read)" if flaw else table for table, flaw in self.flaws.items()) or "none"

    def flaw_of(self, error: duckdb.Error) -> str:
        """Returns why a table that DuckDB does not find has no view; an empty text for any other error."""
        found = _NO_TABLE.search(str(error))
        known = {table.lower(): flaw for table, flaw in self.flaws.items()}
        flaw = known.get(found[1].lower(), "") if found else ""
        return f"{flaw} `--run RUN` queries another run alone." if flaw and self.runs > 1 else flaw


def _view(connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[_Part]) -> str:
    """Creates the view of a table from all runs. Creates none and returns the reason if one of them cannot be read."""
    own = [part for part in parts if part.table == table]
    if flaws := [part.flaw for part in own if part.flaw]:
        return flaws[0]
    try:
        select = " UNION ALL BY NAME ".join(part.select(connection) for part in own)
        connection.execute(f"CREATE VIEW {_identifier(table)} AS {select}")
    except duckdb.Error as error:
        reason = f"Table {table} cannot be read: {_in_one_line(error)}"
        log.warning("Skipped: %s", reason)
        return reason
    return ""


@dataclass(frozen=True)
class _Part:
    """The part of a view from one run. DuckDB reads the Parquet files itself, and only what a query needs."""

    run_id: str
    table: str
    files: Sequence[str] = ()
    schema: pa.Schema = None
    has_grown: bool = False
    flaw: str = ""

    def select(self, connection: duckdb.DuckDBPyConnection) -> str:
        files = _list([glob.escape(file) for file in self.files])
        source = f"read_parquet({files}, union_by_name = true, hive_partitioning = false)"
        if not self.files or self.has_grown:
            # Files that were written before a column was added lack it.
            empty = _identifier(f"{self.run_id}/{self.table}")
            connection.register(f"{self.run_id}/{self.table}", self.schema.empty_table())
            source = f"(FROM {source} UNION ALL BY NAME FROM {empty})" if self.files else empty
        own = next((name for name in self.schema.names if name.lower() == RUN_ID), None)
        if own is None:
            return f"SELECT {_literal(self.run_id)} AS run_id, * FROM {source}"  # noqa: S608
        free = _numbered(RUN_ID, self.schema.names)
        return (
            f"SELECT {_literal(self.run_id)} AS run_id, "  # noqa: S608
            f"* RENAME ({_identifier(own)} AS {_identifier(free)}) FROM {source}"
        )


def _numbered(name: str, taken: Sequence[str]) -> str:
    """Returns the first unused name of name_1, name_2, …. Names in a view are not case-sensitive."""
    known = {one.lower() for one in taken}
    return next(one for number in itertools.count(1) if (one := f"{name}_{number}") not in known)


def _parts(catalog: Catalog, runs: Sequence[str]) -> list[_Part]:
    """Returns the tables of these runs, including those that cannot be read."""
    return [_part(catalog, run, table) for run in runs for table in catalog.tables(run)]


def _part(catalog: Catalog, run: str, table: str) -> _Part:
    try:
        files = catalog.files(run, table)
        has_grown = bool(added_columns(catalog.open(run, table).metadata().configuration))
        part = _Part(run, table, list(map(str, files)), catalog.dataset(run, table).schema, has_grown)
        if lost := next((file for file in files if not file.exists()), None):
            raise TableUnreadable(table=f"{run}/{table}", reason=f"its file {lost} is missing")
    except TableUnreadable as error:
        log.warning("Skipped: %s", error)
        return _Part(run, table, flaw=str(error))
    return part


def _only(connection: duckdb.DuckDBPyConnection, sql: str, tables: _Views) -> duckdb.Statement:
    """Returns the only statement. It must be a SELECT, because other statements could write to files."""
    statements = connection.extract_statements(sql.encode().decode())  # an unpaired surrogate fails here, not in DuckDB
    if len(statements) != 1:
        raise BadQuery(reason=f"Give one statement, not {len(statements)}.", tables=str(tables))
    if statements[0].type is not duckdb.StatementType.SELECT:
        raise BadQuery(reason="Only a SELECT is allowed.", tables=str(tables))
    return statements[0]


def unique(names: Sequence[str]) -> list[str]:
    """Adds numbers to repeated column names, as DuckDB does in a subquery: a, a_1, a_2."""
    found: list[str] = []
    for name in names:
        taken = {*names, *found}
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        found.append(name if name not in found else next(one for one in numbered if one not in taken))
    return found


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while page := cursor.fetchmany(_PAGE):
        yield from page


@contextmanager
def _errors_in_one_line(tables: _Views) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise BadQuery(reason=tables.flaw_of(error) or _in_one_line(error), tables=str(tables)) from error


def _in_one_line(error: duckdb.Error) -> str:
    """Returns the message without the excerpt of the query that DuckDB adds below it."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_literal, texts))}]"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
