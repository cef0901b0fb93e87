"""Renders pages from templates. Foreign text is escaped, and a content security policy forbids foreign scripts."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ticklake.checks.numbers import InvalidOption
from ticklake.errors import TickLakeError
from ticklake.lake.errors import RunNotInLake
from ticklake.logs import redacted
from ticklake.separate_reads import Attempts
from ticklake.storage.errors import NoRuns
from ticklake.ticks import TickRange
from ticklake.web.responses import status_of
from ticklake.web.security.sessions import COOKIE
from ticklake.web.site import Site

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Without a referrer, a posted form has no origin and would be refused.
HEADERS = {"content-security-policy": POLICY, "referrer-policy": "same-origin"}
LAST_TICK = 2**63 - 1
UNKNOWN = "\N{EN DASH}"


class Entry(NamedTuple):
    """A page in the menu."""

    path: str
    title: str


MENU = (
    Entry("/", "Overview"),
    Entry("/world", "World"),
    Entry("/charts", "Charts"),
    Entry("/topics", "Topics"),
    Entry("/dead-letters", "Dead letters"),
    Entry("/completeness", "Completeness"),
    Entry("/tables", "Tables"),
    Entry("/system", "System"),
)


def number(value: float | None) -> str:
    """Formats 1,234 or, below ten, 1.5; a dash if unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if isinstance(value, float) and 0 < abs(value) < 10 else f"{round(value):,}"


def short(value: float | None) -> str:
    """Formats a number in little space: 950, 1.2 k, 3.4 M."""
    if value is None:
        return UNKNOWN
    for power, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= power:
            return f"{value / (1e3 if unit == 'k' else power):.1f} {unit}"
    return number(value)


def size(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    power = min(max(value.bit_length() - 1, 0) // 10, 5)
    return f"{value / 1024**power:.1f} {'KMGTP'[power - 1]}iB" if power else f"{value} B"


_CLOCK = "%Y-%m-%d %H:%M:%S"


def age(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    for length, unit in ((86_400, "d"), (3_600, "h"), (120, "min")):
        if seconds >= length:
            return f"{seconds / (60 if unit == 'min' else length):.0f} {unit}"
    return f"{seconds:.{1 if seconds < 10 else 0}f} s"


def clock(milliseconds: int | None) -> str:
    """Unknown too if it lies beyond the years that Python knows: anybody may have written it."""
    try:
        return UNKNOWN if milliseconds is None else f"{datetime.fromtimestamp(milliseconds / 1000, UTC):{_CLOCK}}"
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


ENVIRONMENT = Environment(
    loader=PackageLoader("ticklake.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {"number": number, "short": short, "size": size, "age": age, "clock": clock}
ENVIRONMENT.globals |= {
    "version": version("ticklake"),
    "htmx_config": json.dumps({"includeIndicatorStyles": False, "allowEval": False, "historyEnabled": False}),
}


def fragment(template: str, **values: Any) -> str:
    return ENVIRONMENT.get_template(template).render(**values)


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def page(request: Request, template: str, *, run_id: str | None = None, status: int = 200, **values: Any) -> Response:
    """Renders a whole page. A page of one run has its `run_id`."""
    site, prefix = site_of(request), request.app.state.prefix
    runs = _runs(site)
    shown = {
        "menu": MENU,
        "path": request.url.path.removeprefix(prefix) or "/",
        "prefix": prefix,
        "read_only": site.read_only,
        "signed_in": COOKIE in request.cookies,
        "run_id": run_id,
        "runs": runs,
        "states": site.places.states(runs, Attempts()),
    }
    return HTMLResponse(fragment(template, **shown, **values), status, HEADERS)


def nothing(
    request: Request, title: str, run_id: str | None, text: str = "Nothing here yet.", hint: str = ""
) -> Response:
    """Renders a page without content, with a hint."""
    return page(request, "empty.html", run_id=run_id, title=title, text=text, hint=hint)


def part(template: str, *, status: int = 200, **values: Any) -> Response:
    """Renders a part of a page."""
    return HTMLResponse(fragment(template, **values), status, HEADERS)


def refused(request: Request, error: TickLakeError) -> Response:
    """Renders an error as a note. Its status is 200, because htmx does not show other responses."""
    status = HTTPStatus.OK if request.headers.get("hx-request") else status_of(error)
    return part("_refused.html", status=status, message=redacted(str(error)))


def explained(endpoint: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Shows an error of TickLake as a page."""

    @functools.wraps(endpoint)
    def answer(request: Request) -> Response:
        try:
            return endpoint(request)
        except TickLakeError as error:
            if request.headers.get("hx-request"):
                return refused(request, error)
            return page(request, "problem.html", status=status_of(error), message=redacted(str(error)))

    return answer


def chosen_run(request: Request) -> str | None:
    """Returns the run of the request, or the newest; None if there is no run yet."""
    wanted = request.query_params.get("run") or None
    places, attempts = site_of(request).places, Attempts()
    try:
        return places.chosen(wanted, attempts)
    except NoRuns:
        return None


def whole_number(name: str, text: str, largest: int = LAST_TICK) -> int:
    """Parses a parameter. Accepts only ASCII digits: no sign and no space."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= largest):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise InvalidOption(option=name, value=shown, allowed=f"a whole number from 0 to {largest}")
    return int(text)


def not_in_lake(request: Request, run_id: str) -> RunNotInLake:
    """Returns the error that lists the runs of the lake."""
    catalog = site_of(request).catalog
    runs = catalog.runs()[-5:] if catalog is not None else []
    return RunNotInLake(run_id=run_id, lake=site_of(request).lake, found=", ".join(runs) or "none")


def asked_ticks(request: Request, whole: TickRange) -> TickRange:
    """Returns the requested range, `from` and `to`, within the run. Raises `InvalidOption` if they do not overlap."""
    bounds = []
    for name, default in (("from", whole.start), ("to", whole.end)):
        text = request.query_params.get(name)
        bounds.append(whole_number(name, text) if text else default)
    start, end = bounds
    if start > end:
        raise InvalidOption(option="from", value=start, allowed=f"a tick of at most `to`, {end}")
    shown = TickRange(start, end).within(whole)
    if not shown:
        allowed = f"a range that overlaps the existing ticks, {whole}"
        raise InvalidOption(option="from and to", value=str(TickRange(start, end)), allowed=allowed)
    return shown


def _runs(site: Site) -> list[str]:
    """Returns the newest runs that can be listed, newest first."""
    return site.places.known_runs(Attempts())[:-51:-1]
