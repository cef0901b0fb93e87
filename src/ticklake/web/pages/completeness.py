"""Completeness of a run: present, waiting and missing ticks of each table, and the verdict."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.ticks import TickRange
from ticklake.web.feeds.survey import Survey
from ticklake.web.rendering import asked_ticks, chosen_run, explained, nothing, page, site_of


@explained
def show_completeness(request: Request) -> Response:
    site, run_id = site_of(request), chosen_run(request)
    if run_id is None or site.storage is None or run_id not in site.storage.runs():
        text = "Completeness needs the batch files of this run, but no storage is given."
        return nothing(request, "Completeness", run_id, text, "ticklake ui --storage DIR")
    survey: Survey = request.app.state.surveys[run_id].latest()
    shown = asked_ticks(request, survey.ticks) if survey.ticks else None
    maps = [
        (table, seen, table.stripes(seen) if seen else []) for table in survey.tables for seen in [table.seen(shown)]
    ]
    zooms = zooming(shown, survey.ticks) if shown else []
    return page(request, "completeness.html", run_id=run_id, survey=survey, maps=maps, shown=shown, zooms=zooms)


def zooming(shown: TickRange, whole: TickRange) -> list[tuple[str, str, TickRange]]:
    """Returns the zoom links: name, sign and ticks."""
    quarter, half = (shown.end - shown.start) // 4, (shown.end - shown.start) // 2
    earlier, later = min(half, shown.start - whole.start), min(half, whole.end - shown.end)
    return [
        ("Earlier", "←", TickRange(shown.start - earlier, shown.end - earlier)),
        ("Zoom out", "\N{MINUS SIGN}", TickRange(shown.start - half - 1, shown.end + half + 1).within(whole)),
        ("Zoom in", "+", TickRange(shown.start + quarter, shown.end - quarter)),
        ("Later", "→", TickRange(shown.start + later, shown.end + later)),
    ]


ROUTES = [Route("/completeness", show_completeness)]
