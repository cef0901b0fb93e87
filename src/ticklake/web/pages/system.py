"""The system: services with start, stop, pause and resume, their errors, and the doctor's findings."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.doctor import Finding, Subject, examine
from ticklake.errors import TickLakeError
from ticklake.node.client import address_of, services_of
from ticklake.web.api import node_json
from ticklake.web.api.control import ACTIONS, STOP_SECONDS
from ticklake.web.forms import Form, posted
from ticklake.web.rendering import explained, page, part, site_of
from ticklake.web.site import Site

ERRORS = 10
ALLOWED = {"running": ("pause", "stop"), "paused": ("resume", "stop"), "stopped": ("start",), "error": ("start",)}


@explained
def show_system(request: Request) -> Response:
    site = site_of(request)
    if site.node is None:
        return page(request, "system.html", services=None, node=None, **_other_node(site))
    return page(request, "system.html", services=_services(site), node=node_json.node_view(site.node), allowed=ALLOWED)


@explained
def show_doctor(request: Request) -> Response:
    """Loaded separately from the page, because it may take a few seconds."""
    return part("_doctor.html", findings=list(_findings(site_of(request))))


def change(request: Request, form: Form) -> Response:
    site, name, action = site_of(request), form["service"] or "", form["action"]
    if site.node is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)  # no button sends this
    service = site.node.service(name)
    if action == "start":
        site.node.supervisor.start(name)
    elif action == "stop":
        site.node.supervisor.stop(name, STOP_SECONDS)
    elif action in ACTIONS:
        getattr(service, action)()
    note = f"{name} is {service.state.value}."
    prefix = request.app.state.prefix
    return part("_services.html", services=_services(site), allowed=ALLOWED, note=note, prefix=prefix, read_only=False)


def _other_node(site: Site) -> dict[str, Any]:
    """Returns the node of the configuration, if it is in another process. It is controlled on its own pages."""
    url = address_of(site.settings) if site.settings is not None else None
    name = site.settings.node.name if site.settings is not None else None
    file = str(site.settings.file) if site.settings is not None else None
    try:
        found = services_of(url)
    except TickLakeError:  # it answers, but requires a token
        found = None
    return {"name": name, "file": file, "address": url, "found": found}


def _services(site: Site) -> list[dict[str, object]]:
    assert site.node is not None  # noqa: S101
    return [
        node_json.service_view(site.node, name) | {"errors": node_json.errors_view(site.node, name)[: -ERRORS - 1 : -1]}
        for name in site.node.services
    ]


def _findings(site: Site) -> list[Finding]:
    storages = [Path(site.storage.url)] if site.storage is not None and "://" not in site.storage.url else []
    lakes, databases = [site.lake] if site.lake else [], [one.url for one in site.databases]
    subject = Subject.of(site.settings) if site.settings else Subject.at(storages, lakes, databases)
    with subject:
        return list(examine(subject))


ROUTES = [
    Route("/system", show_system),
    Route("/system/doctor", show_doctor),
    Route("/system/services", posted(change), methods=["POST"]),
]
