"""Who may ask for what: a token for changes, no foreign pages, no names that somebody else has pointed here."""

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
from ticklake.web.security.login import LOGIN, LOGOUT, ask

TOKEN_FILE = "http-token"  # noqa: S105
SHORTEST_TOKEN = 16
READS = ("GET", "HEAD")
OPEN = ("/health", "/ready")
"""Whoever restarts a node that is stuck must not need a secret to see it."""

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
    """Whether this address can be reached from this machine only."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def find_token(host: str, directory: str | Path, environment: Mapping[str, str] = os.environ) -> str:
    """From the environment; on loopback else one of the node's own, made once, that only its user can read."""
    token = environment.get(TOKEN_VARIABLE, "").strip()
    if not token and not is_loopback(host):
        raise TokenMissing(host=host, variable=TOKEN_VARIABLE)
    if token and len(token) < SHORTEST_TOKEN:
        raise TokenTooShort(variable=TOKEN_VARIABLE, shortest=SHORTEST_TOKEN)
    return token or _own_token(Path(directory) / TOKEN_FILE)


def _own_token(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        new = file.with_name(f".{TOKEN_FILE}.{secrets.token_hex(4)}")
        new.touch(mode=0o600)
        new.write_text(secrets.token_urlsafe(32), encoding="ascii")
        try:
            os.link(new, file)  # whole or not there, and never over one that another node has just made
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return file.read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class Guard:
    """`hosts` are the names a request may call this server by; on loopback these are the machine's own.

    Where others than this machine can connect, reading needs the token as well.
    """

    token: str
    host: str
    allowed_hosts: tuple[str, ...] = ()
    prefix: str = ""
    read_only: bool = False
    clock: Callable[[], float] = time.time

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Why a request is refused, or None."""
        if not self._knows(headers.get("host", "")):
            return HTTPStatus.FORBIDDEN, "This server is not known by that name; node.http.allowed_hosts can add one."
        if not _same_origin(headers):
            return HTTPStatus.FORBIDDEN, "A page of another origin may not ask this server."
        if self._is_open(method, path):
            return None
        if self.read_only and method not in READS:
            return HTTPStatus.FORBIDDEN, "This server only shows; it was started to change nothing."
        if self._needs_token(method) and not (self._has_token(headers) or self._has_session(method, headers)):
            return HTTPStatus.UNAUTHORIZED, "This needs the node's token: Authorization: Bearer TOKEN."
        return None

    def _knows(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        if name in self.allowed_hosts:
            return True
        return is_loopback(name) if is_loopback(self.host) else not self.allowed_hosts

    def _is_open(self, method: str, path: str) -> bool:
        """What a stranger may ask for: probes, the sheets and scripts of the pages, and, from elsewhere, to sign in."""
        inside = path.removeprefix(self.prefix)
        if method in READS:
            return inside in OPEN or (inside.startswith(STATIC) and ".." not in inside)
        return method == "POST" and inside in (LOGIN, LOGOUT) and not is_loopback(self.host)

    def _needs_token(self, method: str) -> bool:
        return method not in READS or not is_loopback(self.host)

    def _has_session(self, method: str, headers: Mapping[str, str]) -> bool:
        """A browser sends its cookie by itself, so a change must also say that it comes from a page of this server."""
        told = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
        known = sessions.is_valid(self.token, headers.get("cookie", ""), self.clock())
        return known and (method in READS or told)

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self.token.encode())


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Requests without an Origin do not come from a page's script or form."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "none") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
        return False
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


class Guarded:
    """The guard in front of an application, and strict headers on what comes out of it."""

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
    """Who looks at a page is asked for the token; a program is told what it lacks."""
    if refusal[0] is not HTTPStatus.UNAUTHORIZED:
        return problem(*refusal)
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        return ask(prefix, scope["path"] + (f"?{query}" if query else ""))
    return problem(*refusal, {"www-authenticate": "Bearer"})
