"""The tables of a run: size, files, sources of each commit, and code to read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.insights import TableReport, tables_of
from ticklake.lake.errors import TableUnreadable
from ticklake.lake.read import Catalog
from ticklake.separate_reads import Attempts
from ticklake.web.rendering import chosen_run, explained, nothing, page, site_of

COMMITS = 15


@dataclass(frozen=True)
class CommitView:
    """A commit: what it did, and the sources of its rows."""

    at_ms: int | None
    operation: str
    sources: list[dict[str, Any]]


@dataclass(frozen=True)
class TableView:
    report: TableReport
    commits: list[CommitView]
    snippets: list[tuple[str, str]]
    problem: str = ""
    """Why its commits cannot be listed."""


@explained
def show_tables(request: Request) -> Response:
    run_id, catalog, attempts = chosen_run(request), site_of(request).catalog, Attempts()
    tables = []
    if run_id is not None and catalog is not None:
        tables = [_view(catalog, run_id, report) for report in tables_of(catalog, run_id, None)]
        tables += [TableView(gone, [], []) for gone in site_of(request).places.gone_tables(run_id, attempts)]
    if not tables:
        attempts.raise_first()
        hint = f"ticklake index {run_id or 'RUN'} --storage DIR --lake DIR"
        return nothing(request, "Tables", run_id, hint=hint)
    return page(request, "tables.html", run_id=run_id, tables=tables)


def _view(catalog: Catalog, run_id: str, report: TableReport) -> TableView:
    commits, problem = list[CommitView](), ""
    try:
        commits = [_commit(info) for info in catalog.history(run_id, report.name, COMMITS)]
    except TableUnreadable as error:
        problem = str(error)
    return TableView(report, commits, snippets(str(catalog.root.absolute()), run_id, report.name), problem)


def _commit(info: Mapping[str, Any]) -> CommitView:
    """Parses a commit. `ticklake.sources` is untrusted text."""
    try:
        sources = json.loads(info.get("ticklake.sources", "[]"))
    except (TypeError, ValueError, RecursionError):
        sources = []
    kept = [_source(one) for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    at_ms = info.get("timestamp")
    return CommitView(at_ms if isinstance(at_ms, int) else None, str(info.get("operation", "?")), kept)


def _source(told: dict[str, Any]) -> dict[str, Any]:
    """With ranges that are lists, as they should be."""
    ranges = {name: told[name] for name in ("ticks", "batch_numbers") if isinstance(told.get(name), list)}
    return {name: value for name, value in told.items() if name not in ("ticks", "batch_numbers")} | ranges


def snippets(lake: str, run_id: str, table: str) -> list[tuple[str, str]]:
    """Returns snippets that read the table, ready to copy."""
    path = json.dumps(f"{lake}/{run_id}/{table}")
    read = f'import ticklake\n\nrows = ticklake.read({json.dumps(f"{lake}/{run_id}")}, "{table}")\n'
    return [
        ("Spark", f'spark.read.format("delta").load({path}).show()'),
        ("DuckDB", f'{read}import duckdb\n\nduckdb.sql("FROM rows LIMIT 10").show()'),
        ("Polars", f"{read}rows.to_polars().head(10)"),
        ("Command line", f'ticklake sql --lake "{lake}" --run {run_id} "FROM {table} LIMIT 10"'),
    ]


ROUTES = [Route("/tables", show_tables)]
