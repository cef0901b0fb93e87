"""SQL over the lake's tables with DuckDB: no JVM, and no way out of the tables' files into the file system."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ticklake.lake.errors import BadQuery, QueryTooSlow, ResultTooLarge, TableUnreadable
from ticklake.lake.read.catalog import Catalog

log = logging.getLogger(__name__)

RUN_ID = "run_id"
"""The column that views have besides those of their tables: the run of each row."""

_PAGE = 10_000
_BATCH = 256

Config = dict[str, str | bool | int | float | list[str]]


@dataclass(frozen=True)
class Limits:
    """For queries of strangers: it only reads, and ends when it takes too long, too much memory, or too many rows."""

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
    """Runs one SELECT over views named like the tables; each row says which run it is from in `run_id`.

    A column of that name that a table has itself is `run_id_1` in its view.
    """
    with opened(catalog, run_id) as (connection, tables), _errors_in_one_line(tables):
        cursor = connection.execute(_only(connection, sql, tables))
        columns = unique([column[0] for column in cursor.description or []])
        yield Result(columns, _rows(cursor))


def limited_query(catalog: Catalog, sql: str, run_id: str, limits: Limits) -> tuple[pa.Table, bool]:
    """The first rows of a SELECT over a run's tables, and whether there are more."""
    # Without a directory to spill to, what needs more memory fails.
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
    """The values of a result's column as DuckDB writes them. It knows days that Python does not: infinity, 44 BC."""
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
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[str]]]:
    """A query may come from anywhere: it sees the tables' files, and no others, no network, extensions or variables."""
    with duckdb.connect(config=config or {}) as connection:
        parts = _parts(catalog, catalog.chosen(run_id))
        files = [file for part in parts for file in part.files]
        connection.execute(f"SET allowed_paths = {_list(files)}")
        connection.execute("SET enable_external_access = false")
        views = {table: _view(connection, table, parts) for table in sorted({part.table for part in parts})}
        connection.execute("SET lock_configuration = true")
        yield connection, [table if is_whole else f"{table} (cannot be read)" for table, is_whole in views.items()]


def _view(connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[_Part]) -> bool:
    """Creates the view of a table from the runs whose files can be read, and says whether that is all of them."""
    own = [part for part in parts if part.table == table]
    selects = [part.select(connection) for part in own if part.is_readable]
    try:
        if selects:
            select = " UNION ALL BY NAME ".join(selects)
            connection.execute(f"CREATE VIEW {_identifier(table)} AS {select}")
    except duckdb.Error as error:
        log.warning("Left out: Table %s cannot be read: %s", table, _in_one_line(error))
        return False
    return len(selects) == len(own)


@dataclass(frozen=True)
class _Part:
    """A run's share of a view: DuckDB reads the files of the table itself, and so only what a query needs of them."""

    run_id: str
    table: str
    files: Sequence[str] = ()
    schema: pa.Schema = None
    is_readable: bool = True

    def select(self, connection: duckdb.DuckDBPyConnection) -> str:
        source = f"read_parquet({_list(self.files)}, union_by_name = true, hive_partitioning = false)"
        if not self.files:
            source = _identifier(f"{self.run_id}/{self.table}")
            connection.register(f"{self.run_id}/{self.table}", self.schema.empty_table())
        own = next((name for name in self.schema.names if name.lower() == RUN_ID), None)
        if own is None:
            return f"SELECT {_literal(self.run_id)} AS run_id, * FROM {source}"  # noqa: S608
        free = _numbered(RUN_ID, self.schema.names)
        return (
            f"SELECT {_literal(self.run_id)} AS run_id, "  # noqa: S608
            f"* RENAME ({_identifier(own)} AS {_identifier(free)}) FROM {source}"
        )


def _numbered(name: str, taken: Sequence[str]) -> str:
    """The first of name_1, name_2, … that is free: a view has each name once, in large or small letters."""
    known = {one.lower() for one in taken}
    return next(one for number in itertools.count(1) if (one := f"{name}_{number}") not in known)


def _parts(catalog: Catalog, runs: Sequence[str]) -> list[_Part]:
    """The tables of these runs, also those that cannot be read."""
    return [_part(catalog, run, table) for run in runs for table in catalog.tables(run)]


def _part(catalog: Catalog, run: str, table: str) -> _Part:
    try:
        part = _Part(run, table, catalog.files(run, table), catalog.dataset(run, table).schema)
        if lost := next((file for file in part.files if not Path(file).exists()), None):
            raise TableUnreadable(table=f"{run}/{table}", reason=f"its file {lost} is missing")
    except TableUnreadable as error:
        log.warning("Left out: %s", error)
        return _Part(run, table, is_readable=False)
    return part


def _only(connection: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[str]) -> duckdb.Statement:
    """The one statement there is. What may read a file may also write it, so only a SELECT will do."""
    statements = connection.extract_statements(sql.encode().decode())  # half a character fails here, not in DuckDB
    if len(statements) != 1:
        raise BadQuery(reason=f"one statement is expected, not {len(statements)}", tables=", ".join(tables))
    if statements[0].type is not duckdb.StatementType.SELECT:
        raise BadQuery(reason="only a SELECT can be asked", tables=", ".join(tables))
    return statements[0]


def unique(names: Sequence[str]) -> list[str]:
    """Columns of the same name get a number, as DuckDB itself gives one in a subquery: a, a_1, a_2."""
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
def _errors_in_one_line(tables: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise BadQuery(reason=_in_one_line(error), tables=", ".join(tables) or "none") from error


def _in_one_line(error: duckdb.Error) -> str:
    """Without the picture of the position that DuckDB adds below its message."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_literal, texts))}]"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
