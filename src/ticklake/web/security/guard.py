"""Access control: a token for changes, no requests from foreign pages, no foreign host names (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ticklake.node.client import TOKEN_VARIABLE
from ticklake.web.errors import TokenMissing, TokenTooShort
from ticklake.web.responses import problem
from ticklake.web.security import sessions
from ticklake.web.security.login import LOGIN, LOGOUT, login_page

TOKEN_FILE = "http-token"  # noqa: S105
MIN_TOKEN_LENGTH = 16
READS = ("GET", "HEAD")
OPEN = ("/health", "/ready")
"""Probes need no token, so that a supervisor can detect a stuck node without a secret."""

STATIC = "/static/"

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Returns whether this address is reachable only from this machine."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def find_token(host: str, directory: str | Path, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the token of the environment or, on loopback, the node's own, which only its user can read."""
    token = environment.get(TOKEN_VARIABLE, "").strip()
    if not token and not is_loopback(host):
        raise TokenMissing(host=host, variable=TOKEN_VARIABLE)
    if token and len(token) < MIN_TOKEN_LENGTH:
        raise TokenTooShort(variable=TOKEN_VARIABLE, shortest=MIN_TOKEN_LENGTH)
    return token or _own_token(Path(directory) / TOKEN_FILE)


def _own_token(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        new = file.with_name(f".{TOKEN_FILE}.{secrets.token_hex(4)}")
        new.touch(mode=0o600)
        new.write_text(secrets.token_urlsafe(32), encoding="ascii")
        try:
            os.link(new, file)  # atomic, and never replaces the token of another node
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return file.read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class Guard:
    """`hosts` are the allowed host names of requests; on loopback, the names of this machine.

    If other machines can connect, reading needs the token too.
    """

    token: str
    host: str
    allowed_hosts: tuple[str, ...] = ()
    prefix: str = ""
    read_only: bool = False
    clock: Callable[[], float] = time.time

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Returns why a request is refused, or None."""
        if not self._knows(headers.get("host", "")):
            return HTTPStatus.FORBIDDEN, "Unknown host name; add it to node.http.allowed_hosts."
        if not _same_origin(headers):
            return HTTPStatus.FORBIDDEN, "Requests from pages of another origin are refused."
        if self._is_open(method, path):
            return None
        if self.read_only and method not in READS:
            return HTTPStatus.FORBIDDEN, "This server is read-only."
        if self._needs_token(method) and not (self._has_token(headers) or self._has_session(method, headers)):
            return HTTPStatus.UNAUTHORIZED, "This needs the node's token: Authorization: Bearer TOKEN."
        return None

    def _knows(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        if name in self.allowed_hosts:
            return True
        return is_loopback(name) if is_loopback(self.host) else not self.allowed_hosts

    def _is_open(self, method: str, path: str) -> bool:
        """Returns whether a request needs no token: probes, static files and, from other machines, sign-in."""
        inside = path.removeprefix(self.prefix)
        if method in READS:
            return inside in OPEN or (inside.startswith(STATIC) and ".." not in inside)
        return method == "POST" and inside in (LOGIN, LOGOUT) and not is_loopback(self.host)

    def _needs_token(self, method: str) -> bool:
        return method not in READS or not is_loopback(self.host)

    def _has_session(self, method: str, headers: Mapping[str, str]) -> bool:
        """Returns whether the session is valid. A change also needs the right origin: browsers always send cookies."""
        same_site = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
        known = sessions.is_valid(self.token, headers.get("cookie", ""), self.clock())
        return known and (method in READS or same_site)

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self.token.encode())


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Returns whether the origin is this server. Requests without an Origin do not come from a script or form."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "none") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
        return False
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


class Guarded:
    """Puts the guard in front of an application and adds strict headers to responses."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._guard.refusal(scope["method"], scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, strictly)
        else:
            await _refused(scope, headers, refusal, self._guard.prefix)(scope, receive, strictly)


def _refused(scope: Scope, headers: Headers, refusal: tuple[HTTPStatus, str], prefix: str) -> Response:
    """Answers a refused request: a browser gets the sign-in page, a program an error."""
    if refusal[0] is not HTTPStatus.UNAUTHORIZED:
        return problem(*refusal)
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        return login_page(prefix, scope["path"] + (f"?{query}" if query else ""))
    return problem(*refusal, {"www-authenticate": "Bearer"})
