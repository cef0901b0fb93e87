"""A node that runs elsewhere: where it listens, and what it says of its services."""

from __future__ import annotations

import http.client
import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ticklake.config import NodeSettings

ANSWER_SECONDS = 1.0


class ServiceReport(NamedTuple):
    """A service as its node sees it."""

    name: str
    state: str
    error: str | None


def address_of(settings: NodeSettings) -> str | None:
    """Where the node of this configuration listens, if it runs here and does."""
    from ticklake.instance import read_holder

    url = read_holder(Path(settings.node.directory) / f"{settings.node.name}.lock").get("url")
    return url if isinstance(url, str) else None


def services_of(url: str | None) -> list[ServiceReport] | None:
    """None where there is no node, or none that answers."""
    if url is None or not url.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/api/services", timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            return [ServiceReport(one["name"], one["state"], one["error"]) for one in json.load(answer)]
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return None
