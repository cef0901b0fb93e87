"""The HTTP server: a socket and a thread."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from ticklake.config.options import HttpOptions
from ticklake.node.node import Node
from ticklake.web.api.app import assembled, create_app
from ticklake.web.api.operations import routes
from ticklake.web.api.probes import HEALTH
from ticklake.web.errors import AddressUnavailable, HostUnavailable
from ticklake.web.pages.routes import ROUTES, join
from ticklake.web.security.guard import Guard, find_token
from ticklake.web.site import Site

STOP_SECONDS = 5
_BACKLOG = 64
_NO_HOST = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)


class HttpServer:
    """Binds its address on creation. Answers between `start` and `stop`."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._app = app
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}{app.state.prefix}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the server. Waits a few seconds for active requests."""
        if live := getattr(self._app.state, "live", None):
            live.closing = True  # otherwise live pages would stay open
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS * 2)
        self._socket.close()
        if site := getattr(self._app.state, "site", None):
            site.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def open_server(node: Node, options: HttpOptions) -> HttpServer:
    """Opens the server of a node. Raises `AddressUnavailable`, `HostUnavailable` or `TokenMissing`."""
    guard, site = _guard(options, node.settings.node.directory), Site.of(node, options.read_only)
    app = create_app(node, guard, ROUTES, site)
    join(app, site)
    return HttpServer(app, options.host, options.port or 0)


def open_site(site: Site, options: HttpOptions, directory: str | Path) -> HttpServer:
    """Opens a server with pages only, without a node."""
    guard = _guard(options, directory)
    app = assembled([*ROUTES, *routes([HEALTH])], guard)
    join(app, site)
    return HttpServer(app, options.host, options.port or 0)


def _guard(options: HttpOptions, directory: str | Path) -> Guard:
    token = find_token(options.host, directory)
    return Guard(token, options.host, tuple(options.allowed_hosts), options.path_prefix, options.read_only)


def check_address(host: str, port: int) -> None:
    """Raises `HostUnavailable` or `AddressUnavailable` if the server cannot listen there."""
    _bound(host, port).close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise HostUnavailable(host=host, reason=error.strerror) from error
    except ValueError as error:  # a label of the name is too long
        raise HostUnavailable(host=host, reason="not a valid host name") from error
    except OSError as error:
        if error.errno in _NO_HOST:
            raise HostUnavailable(host=host, reason=_reason(error)) from error
        raise AddressUnavailable(host=host, port=port, reason=_reason(error)) from error


def _reason(error: OSError) -> str:
    """Returns the reason without the text that `create_server` adds."""
    return os.strerror(error.errno) if error.errno else str(error)
