"""Charts of a run: its figures over the ticks, and results of user queries."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ticklake.checks.numbers import InvalidOption
from ticklake.lake.read import MOST_POINTS, Charted, Series
from ticklake.ticks import TickRange, on_grid
from ticklake.web.rendering import (
    asked_ticks,
    chosen_run,
    explained,
    not_in_lake,
    nothing,
    page,
    site_of,
    whole_number,
)

POINTS = 240
NO_TICK = TickRange(0, -1)
QUERIES = threading.BoundedSemaphore(2)
"""Limits concurrent queries of all viewers, so that the server can still serve pages. Others must retry."""

MAX_QUERY_LENGTH = 8_000
EXAMPLE = "SELECT tick_number, avg(age) AS age, max(age) AS oldest\nFROM organism_data GROUP BY tick_number ORDER BY 1"
BIRTHS_AND_DEATHS = {
    True: "per tick; founders, which have no parent, do not count as births",
    False: "at least, since the previous sampled tick: organisms that were born and died in between are not recorded",
}
"""By whether the counts are exact, that is, whether every tick was recorded."""

MAX_EXACT_INTEGER = 2**53
"""Numbers are exact in a browser up to this value. Larger ones are sent as text."""

MAX_TEXT_LENGTH = 200


@explained
def show_charts(request: Request) -> Response:
    run_id, frames = chosen_run(request), site_of(request).frames
    whole = Series(frames).ticks(run_id) if run_id is not None and frames is not None else None
    if run_id is None or whole is None or frames is None:
        hint = "ticklake demo" if run_id is None else f"ticklake index {run_id} --storage DIR --lake DIR"
        return nothing(request, "Charts", run_id, hint=hint)
    step = Series(frames).step(run_id)
    shown = _asked(request, whole, step)
    return page(
        request,
        "charts.html",
        run_id=run_id,
        panels=panels(step),
        whole=whole,
        shown=shown,
        step=step,
        query=request.query_params.get("sql", ""),
        example=EXAMPLE,
    )


def show_series(request: Request) -> Response:
    """Answers with the series of `from`, `to` and `points` as JSON, CSV or Parquet."""
    frames, run_id = site_of(request).frames, request.path_params["run"]
    series = Series(frames) if frames is not None else None
    if frames is None or series is None or not frames.tables(run_id):
        raise not_in_lake(request, run_id)
    points = whole_number("points", request.query_params.get("points", str(POINTS)), MOST_POINTS)
    whole = series.ticks(run_id)
    found = series.chart(run_id, _asked(request, whole, series.step(run_id)) if whole else NO_TICK, points)
    return _answer(request, found.table, f"{run_id}-series", lambda: _facts(found, whole))


def show_query(request: Request) -> Response:
    """Answers with the result of `sql`, one SELECT, as JSON, CSV or Parquet."""
    # Imported here, so that a node without queries does not load DuckDB.
    from ticklake.lake.read import Limits, limited_query

    limits = Limits()
    catalog, sql = site_of(request).catalog, request.query_params.get("sql", "")
    if catalog is None:
        raise not_in_lake(request, request.path_params["run"])
    if len(sql) > MAX_QUERY_LENGTH:
        raise InvalidOption(option="sql", value=f"{sql[:20]}…", allowed=f"at most {MAX_QUERY_LENGTH:,} characters")
    if not QUERIES.acquire(blocking=False):
        raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS)
    try:
        found, more = limited_query(catalog, sql, request.path_params["run"], limits)
    finally:
        QUERIES.release()
    name = f"query-first-{limits.rows}-rows" if more else "query"
    return _answer(request, found, name, lambda: {"more": more, "most": limits.rows})


def panels(step: int) -> list[tuple[str, str, tuple[str, ...]]]:
    """Returns the charts of the page: title, description and figures."""
    return [
        ("Population", "living organisms per tick", ("population",)),
        ("Births and deaths", BIRTHS_AND_DEATHS[step == 1], ("births", "deaths")),
        ("Energy", "of all living organisms", ("energy",)),
        ("Occupied cells", "per tick", ("occupied_cells",)),
    ]


def _asked(request: Request, whole: TickRange, step: int) -> TickRange:
    """Returns the requested sampled ticks. Raises `InvalidOption` if the range has none."""
    asked = asked_ticks(request, whole)
    shown = on_grid(asked, step)
    if not shown:
        allowed = f"a range with a sampled tick, which is a multiple of {step}"
        raise InvalidOption(option="from and to", value=str(asked), allowed=allowed)
    return shown


def _facts(found: Charted, whole: TickRange | None) -> dict[str, Any]:
    return {
        "first": whole.start if whole else None,
        "last": whole.end if whole else None,
        "from": found.ticks.start if whole else None,
        "to": found.ticks.end if whole else None,
        "step": found.step,
        "exact": found.exact,
        "births_and_deaths": BIRTHS_AND_DEATHS[found.step == 1],
    }


def _answer(request: Request, table: pa.Table, name: str, facts: Callable[[], dict[str, Any]]) -> Response:
    """Answers with the table in the requested format."""
    form = request.query_params.get("format", "json")
    if form == "json":
        return JSONResponse(facts() | {"columns": [_column(table, at) for at in range(table.num_columns)]})
    write = {"csv": _csv, "parquet": _parquet}.get(form)
    if write is None:
        raise InvalidOption(option="format", value=form, allowed="json, csv or parquet")
    attached = {"content-disposition": f'attachment; filename="{name}.{form}"'}
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/vnd.apache.parquet"
    return Response(write(table), media_type=kind, headers=attached)


def _column(table: pa.Table, at: int) -> dict[str, Any]:
    """Returns a column: booleans, numbers that are exact in a browser, and all else as text.

    JSON has neither NaN nor infinity.
    """
    column, kind = table.column(at), table.schema.field(at).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.to_pylist()
        if pa.types.is_floating(kind) or all(value is None or _is_exact(value) for value in values):
            return {"name": table.column_names[at], "number": True, "values": list(map(_plain, values))}
    if pa.types.is_boolean(kind):
        return {"name": table.column_names[at], "number": False, "values": column.to_pylist()}
    texts = [None if text is None else _short(text) for text in _texts(column)]
    return {"name": table.column_names[at], "number": False, "values": texts}


def _is_exact(value: Any) -> bool:
    """Returns whether a browser represents this value exactly."""
    return abs(value) <= MAX_EXACT_INTEGER and (isinstance(value, int) or Decimal(repr(float(value))) == value)


def _plain(value: Any) -> float | None:
    """Returns a number that JSON can represent, or None."""
    if isinstance(value, int) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"


def _csv(table: pa.Table) -> bytes:
    # Arrow writes dates out of its range, such as infinity, as wrong dates.
    columns = [_as_text(column) if _is_time(column.type) else column for column in table.columns]
    return _written(pa.table(columns, names=table.column_names), pa_csv.write_csv)


def _parquet(table: pa.Table) -> bytes:
    return _written(table, partial(pq.write_table, compression="zstd"))


def _written(table: pa.Table, write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    """Writes a table. Columns that the format does not support become text: lists in CSV, intervals in both."""
    columns = [column if _supports(write, column) else _as_text(column) for column in table.columns]
    out = io.BytesIO()
    write(pa.table(columns, names=table.column_names), out)
    return out.getvalue()


def _supports(write: Callable[[pa.Table, io.BytesIO], None], column: pa.ChunkedArray) -> bool:
    try:
        write(pa.table([column], names=["one"]), io.BytesIO())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True


def _as_text(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(_texts(column), pa.string())


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Formats values as Python does, except times: Python only supports the years 1 to 9999."""
    if not _is_time(column.type):
        with suppress(OverflowError, ValueError):  # a nested value may contain such a time
            return [None if value is None else _text(value) for value in column.to_pylist()]
    from ticklake.lake.read import texts

    return texts(column)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def _text(value: object) -> str:
    """Formats an interval as ISO 8601, all else as Python does."""
    if isinstance(value, pa.MonthDayNano):
        months, days, nanoseconds = value
        return f"P{months}M{days}DT{Decimal(nanoseconds) / 10**9:f}S"
    return str(value)


ROUTES = [
    Route("/charts", show_charts),
    Route("/api/runs/{run}/series", show_series),
    Route("/api/runs/{run}/query", show_query),
]
