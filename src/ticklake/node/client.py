"""A client of a node in another process: finds its address and reads the state of its services."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ticklake.logs import redacted
from ticklake.node.errors import BadNodeAddress, NodeLeadsElsewhere, NodeTokenRefused, NodeTokenWanted

if TYPE_CHECKING:
    from ticklake.config import NodeSettings

TIMEOUT_SECONDS = 1.0
SCHEMES = ("http", "https")
TOKEN_VARIABLE = "TICKLAKE_TOKEN"  # noqa: S105


class ServiceReport(NamedTuple):
    """The state of a service, as its node reports it."""

    name: str
    state: str
    error: str | None


def address_of(settings: NodeSettings) -> str | None:
    """Returns the URL of this configuration's node; None if the node is not on this machine or serves no HTTP."""
    from ticklake.node.instance import read_holder

    url = read_holder(Path(settings.node.directory) / f"{settings.node.name}.lock").get("url")
    return url if isinstance(url, str) else None


def check_address(url: str) -> None:
    """Raises `BadNodeAddress` if a URL cannot be the address of a node."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in SCHEMES and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # an invalid port, or unmatched brackets
        valid = False
    if not valid:
        raise BadNodeAddress(url=redacted(url))


def token_of(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the token for requests to a node; empty if none is set."""
    return environment.get(TOKEN_VARIABLE, "").strip()


def services_of(url: str | None, token: str = "") -> list[ServiceReport] | None:
    """Returns the services of a node; None if there is no node or it does not answer.

    Raises `NodeTokenWanted` or `NodeTokenRefused` if the token is missing or wrong, and `NodeLeadsElsewhere` if the
    node redirects to another host. That host is not asked, because the token is not meant for it.
    """
    if url is None or not url.lower().startswith(("http://", "https://")):
        return None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url.rstrip('/')}/api/services", headers=headers)  # noqa: S310
    try:
        with urllib.request.build_opener(_SameHost).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return [ServiceReport(one["name"], one["state"], one["error"]) for one in json.load(answer)]
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED:
            if token:
                raise NodeTokenRefused(url=redacted(url), variable=TOKEN_VARIABLE) from None
            raise NodeTokenWanted(url=redacted(url), variable=TOKEN_VARIABLE) from None
        if HTTPStatus.MULTIPLE_CHOICES <= error.code < HTTPStatus.BAD_REQUEST:
            raise NodeLeadsElsewhere(url=redacted(url)) from None
        return None
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return None


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects only within the same host and port."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
