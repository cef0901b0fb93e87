"""All pages, their static files, and what they share."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ticklake.web import charts, coverage, letters, login, overview, system, tables, topics, world
from ticklake.web.live import Live
from ticklake.web.site import Site
from ticklake.web.survey import surveys

ROUTES: list[BaseRoute] = [
    *overview.ROUTES,
    *world.ROUTES,
    *charts.ROUTES,
    *topics.ROUTES,
    *letters.ROUTES,
    *coverage.ROUTES,
    *tables.ROUTES,
    *system.ROUTES,
    *login.ROUTES,
    Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static"),
]


def join(app: Starlette, site: Site) -> None:
    """Gives the pages of an application something to show."""
    app.state.site = site
    app.state.live = Live(site)
    app.state.surveys = surveys(site)
