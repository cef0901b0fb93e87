"""Assembles the application from routes, guard and error handlers."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount

from ticklake.errors import TickLakeError
from ticklake.node.node import Node
from ticklake.web import responses
from ticklake.web.api import control, models, probes
from ticklake.web.api.openapi import document
from ticklake.web.api.operations import Operation, routes
from ticklake.web.api.prometheus import Exposition
from ticklake.web.feeds import lag
from ticklake.web.feeds.sampling import Sampler
from ticklake.web.security.guard import Guard, Guarded
from ticklake.web.site import Site

LAG_SECONDS = 5.0
"""Databases are queried at most this often, not at every scrape."""


def show_openapi(request: Request) -> Response:
    return JSONResponse(document(OPERATIONS, request.app.state.prefix))


OPERATIONS = (
    *control.OPERATIONS,
    *probes.OPERATIONS,
    Operation("GET", "/openapi.json", show_openapi, "This document", models.Document),
)


def create_app(node: Node, guard: Guard, pages: Sequence[BaseRoute] = (), site: Site | None = None) -> Starlette:
    """Creates the application below the guard's prefix. `pages` come after the routes of the API."""
    app = assembled([*routes(OPERATIONS), *pages], guard)
    app.state.node = node
    places = site or Site(databases=node.databases, node=node)
    app.state.lag = Sampler(lambda: lag.sample(node, places.databases, places.backlogs.latest()), LAG_SECONDS)
    app.state.exposition = Exposition(node, app.state.lag)
    return app


def assembled(found: Sequence[BaseRoute], guard: Guard) -> Starlette:
    """Returns an application with these routes behind the guard."""
    app = Starlette(
        routes=[Mount(guard.prefix, routes=found)] if guard.prefix else found,
        middleware=[Middleware(Guarded, guard=guard)],
        exception_handlers={
            TickLakeError: responses.refused,
            HTTPException: responses.wrong_request,
            Exception: responses.failed,
        },
    )
    app.state.prefix, app.state.token = guard.prefix, guard.token
    return app
