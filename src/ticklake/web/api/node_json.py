"""A node as plain values, for the API and the pages."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ticklake.config import rendering as showing
from ticklake.indexers.base import Indexer
from ticklake.logs import redacted
from ticklake.node.node import Node
from ticklake.services import State
from ticklake.text import utc_text


def node_view(node: Node) -> dict[str, Any]:
    return {
        "name": node.settings.node.name,
        "version": version("ticklake"),
        "file": str(node.settings.file),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_at": _moment(node.started_at),
        "runs": node.runs(),
        "stopping": node.stopping,
        "ready": not not_ready(node),
    }


def services_view(node: Node) -> list[dict[str, Any]]:
    """Returns the services in start order."""
    return [service_view(node, name) for name in node.services]


def service_view(node: Node, name: str) -> dict[str, Any]:
    service = node.service(name)
    settings = node.settings.services[name]
    return {
        "name": name,
        "class": settings.class_name,
        "state": service.state.value,
        "healthy": service.monitor.healthy,
        "error": redacted(str(service.error)) if service.error else None,
        "restart_in_seconds": node.supervisor.restart_in(name),
        "run_id": service.run_id if isinstance(service, Indexer) else None,
        "resources": {name: str(binding) for name, binding in settings.bindings.items()},
        "metrics": service.monitor.snapshot(),
    }


def errors_view(node: Node, name: str) -> list[dict[str, Any]]:
    """Returns the last errors of a service, oldest first."""
    return [
        {"at": _moment(error.at), "code": error.code, "message": redacted(error.message), "details": error.details}
        for error in node.service(name).monitor.errors
    ]


def resources_view(node: Node) -> list[dict[str, Any]]:
    """Returns the resources with their options, without passwords, and the services that use them."""
    plain = showing.as_dict(node.settings)["resources"]
    uses = {service: node.settings.uses(service) for service in node.services}
    return [
        {
            "name": name,
            "class": settings["class"],
            "options": settings["options"],
            "used_by": {
                service: sorted(usage for usage, resource in used if resource == name)
                for service, used in uses.items()
                if any(resource == name for _, resource in used)
            },
            "metrics": _resource_metrics(node, name),
        }
        for name, settings in plain.items()
    ]


def not_ready(node: Node) -> dict[str, str]:
    """Returns the services that cannot work at the moment, with the reason."""
    if node.started_at is None or node.stopping:
        return {"node": "stopping" if node.stopping else "starting"}
    return {
        name: "error" if service.state is State.ERROR else "unhealthy"
        for name, service in node.services.items()
        if service.state is State.ERROR or not service.monitor.healthy
    }


def _resource_metrics(node: Node, name: str) -> Mapping[str, Any]:
    queue = node.queues.get(name)
    if queue is not None:
        return {"queued_ticks": len(queue), "queued_bytes": queue.size_bytes}
    database = node.database(name)
    return {run.id: run.monitor.snapshot() for run in database.opened} if database is not None else {}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc_text(seconds)
