"""Completeness of a run: which ticks each table has, which it waits for, which are lost; and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.completeness import Completeness, TableVerdict
from ticklake.ticks import TickRange
from ticklake.web.rendering import asked_ticks, chosen_run, explained, nothing, page, site_of

WIDTH = 1000
RANGES = 50


class Stripe(NamedTuple):
    """A part of the map, in thousandths of what is shown."""

    kind: str
    x: float
    width: float


@explained
def show_completeness(request: Request) -> Response:
    site, run_id = site_of(request), chosen_run(request)
    if run_id is None or site.storage is None or run_id not in site.storage.runs():
        text = "The batch files of this run are not known here: only they tell what it has."
        return nothing(request, "Completeness", run_id, text, "ticklake ui --storage DIR")
    # Rows are not counted: that reads every key of every table. `ticklake verify` does.
    verdict = Completeness(run_id, site.storage, site.catalog, site.database).verify(count_rows=False)
    whole = max((table.coverage.expected for table in verdict.tables), key=lambda ticks: ticks.end, default=None)
    shown = asked_ticks(request, whole) if whole else None
    maps = [(table, list(stripes(table, shown)) if shown else []) for table in verdict.tables]
    return page(
        request, "completeness.html", run_id=run_id, verdict=verdict, maps=maps, shown=shown, whole=whole, most=RANGES
    )


def stripes(table: TableVerdict, shown: TickRange) -> Iterator[Stripe]:
    """The map of a table; the bad lies over the good, and the smallest hole is wide enough to be seen."""
    coverage = table.coverage
    for kind, ranges in (("covered", coverage.covered), ("missing", coverage.waiting), ("lost", coverage.lost)):
        yield from _stripes(kind, ranges, shown, table.step)


def _stripes(kind: str, ranges: Sequence[TickRange], shown: TickRange, step: int) -> Iterator[Stripe]:
    """Ranges that are closer than a pixel become one, so that a million of them are a thousand."""
    scale = WIDTH / (shown.end - shown.start + step)
    before: Stripe | None = None
    for ticks in ranges:
        seen = ticks.within(shown)
        if not seen:
            continue
        x, end = (seen.start - shown.start) * scale, (seen.end + step - shown.start) * scale
        if before is not None and x - before.x - before.width < 0.5:
            before = before._replace(width=max(before.width, end - before.x))
            continue
        if before is not None:
            yield before
        before = Stripe(kind, round(x, 2), max(1.0, round(end - x, 2)))
    if before is not None:
        yield before


ROUTES = [Route("/completeness", show_completeness)]
