"""The overview: the live pipeline of a run."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ticklake.web.feeds.live import Live, Watch
from ticklake.web.feeds.pipeline import Flow, drawn_tall, drawn_wide, stages
from ticklake.web.rendering import chosen_run, explained, fragment, nothing, page

SPARK_WIDTH, SPARK_HEIGHT = 600, 60
WORST = 5
"""The page has at most this many other runs with work."""


@explained
def show_overview(request: Request) -> Response:
    run_id = chosen_run(request)
    if run_id is None:
        return nothing(request, "Overview", None, hint="ticklake demo")
    live: Live = request.app.state.live
    return page(request, "overview.html", run_id=run_id, live=picture(live.watch(run_id), request.app.state.prefix))


@explained
def follow(request: Request) -> Response:
    run_id = chosen_run(request)
    live: Live = request.app.state.live
    prefix = request.app.state.prefix
    events = live.events(run_id or "", lambda watch: picture(watch, prefix))
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def picture(watch: Watch, prefix: str) -> str:
    """Returns the changing part of the page as HTML."""

    def draw(flow: Flow) -> str:
        columns = stages(flow)
        return fragment(
            "_pipeline.html",
            flow=flow,
            prefix=prefix,
            drawings=[("wide", drawn_wide(columns)), ("tall", drawn_tall(columns))],
            spark=sparkline(list(watch.history)),
            peak=max(watch.history, default=0.0),
            worst=WORST,
        )

    return watch.drawn(draw)


def sparkline(values: list[float]) -> str:
    """Returns the points of a line through all values; empty for fewer than two."""
    if len(values) < 2 or not max(values):
        return ""
    step, top = SPARK_WIDTH / (len(values) - 1), max(values)
    return " ".join(
        f"{at * step:.1f},{SPARK_HEIGHT - 2 - value / top * (SPARK_HEIGHT - 6):.1f}" for at, value in enumerate(values)
    )


ROUTES = [Route("/", show_overview), Route("/live/overview", follow)]
