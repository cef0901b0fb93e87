"""A node that runs elsewhere: where it listens, and what it says of its services."""

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

ANSWER_SECONDS = 1.0
SCHEMES = ("http", "https")
TOKEN_VARIABLE = "TICKLAKE_TOKEN"  # noqa: S105


class ServiceReport(NamedTuple):
    """A service as its node sees it."""

    name: str
    state: str
    error: str | None


def address_of(settings: NodeSettings) -> str | None:
    """Where the node of this configuration listens, if it runs here and does."""
    from ticklake.node.instance import read_holder

    url = read_holder(Path(settings.node.directory) / f"{settings.node.name}.lock").get("url")
    return url if isinstance(url, str) else None


def check_address(url: str) -> None:
    """Raises `BadNodeAddress` for what can be no node's address."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in SCHEMES and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # a port that is none, or brackets that do not match
        right = False
    if not right:
        raise BadNodeAddress(url=redacted(url))


def token_of(environment: Mapping[str, str] = os.environ) -> str:
    """What a node is shown that wants a token; empty without one."""
    return environment.get(TOKEN_VARIABLE, "").strip()


def services_of(url: str | None, token: str = "") -> list[ServiceReport] | None:
    """None where there is no node, or none that answers.

    Raises `NodeTokenWanted` or `NodeTokenRefused` if it wants a token that it was not given, and `NodeLeadsElsewhere`
    if it redirects to another host, which nobody asks: the token is not for that one.
    """
    if url is None or not url.lower().startswith(("http://", "https://")):
        return None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url.rstrip('/')}/api/services", headers=headers)  # noqa: S310
    try:
        with urllib.request.build_opener(_SameHost).open(request, timeout=ANSWER_SECONDS) as answer:
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
    """Follows a redirect within one host and port only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
