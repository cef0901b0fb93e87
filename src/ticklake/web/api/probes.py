"""Probes for monitoring: health, readiness, metrics."""

from __future__ import annotations

from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ticklake.web.api import models, node_json
from ticklake.web.api.control import node_of
from ticklake.web.api.operations import Operation


def health(_request: Request) -> Response:
    """Answers if the process is alive. `/ready` tells whether it can work."""
    return JSONResponse({"status": "ok"})


def ready(request: Request) -> Response:
    """Returns 200 if every service can work and every database of the configuration answers."""
    problems, away = node_json.not_ready(node_of(request)), request.app.state.lag.latest().away
    if problems or away:
        found = {"status": "not ready", "services": problems, "databases": away}
        return JSONResponse(found, HTTPStatus.SERVICE_UNAVAILABLE)
    return JSONResponse({"status": "ready", "services": {}, "databases": {}})


def metrics(request: Request) -> Response:
    return Response(request.app.state.exposition.text(), media_type=CONTENT_TYPE_LATEST)


HEALTH = Operation("GET", "/health", health, "Whether the process is alive", models.Health)
OPERATIONS = (
    HEALTH,
    Operation(
        "GET",
        "/ready",
        ready,
        "Whether every service can work and every database answers",
        models.Readiness,
        statuses=(200, 503),
    ),
    Operation("GET", "/metrics", metrics, "All metrics, for Prometheus", None),
)
