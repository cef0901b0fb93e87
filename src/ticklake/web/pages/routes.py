"""The routes of all pages and static files."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ticklake.web.feeds.live import Live
from ticklake.web.feeds.survey import surveys
from ticklake.web.pages import charts, completeness, dead_letters, overview, system, tables, topics, world
from ticklake.web.security import login
from ticklake.web.site import Site

ROUTES: list[BaseRoute] = [
    *overview.ROUTES,
    *world.ROUTES,
    *charts.ROUTES,
    *topics.ROUTES,
    *dead_letters.ROUTES,
    *completeness.ROUTES,
    *tables.ROUTES,
    *system.ROUTES,
    *login.ROUTES,
    Mount("/static", StaticFiles(directory=Path(__file__).parents[1] / "static"), name="static"),
]


def join(app: Starlette, site: Site) -> None:
    """Sets the site that the pages of an application show."""
    app.state.site = site
    app.state.live = Live(site)
    app.state.surveys = surveys(site)
