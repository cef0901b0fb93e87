"""Errors of the web server."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class AddressUnavailable(TickLakeError):
    message = (
        "HTTP cannot listen on {host} port {port}: {reason}. Choose another node.http.port, or 0 for any free port."
    )
    host: str
    port: int
    reason: object


class HostUnavailable(TickLakeError):
    message = (
        "HTTP cannot listen on host {host!r}: {reason}. Give an address of this machine as node.http.host or --host: "
        "127.0.0.1 for this machine only, 0.0.0.0 for all of its addresses."
    )
    host: str
    reason: object


class TokenMissing(TickLakeError):
    message = (
        "HTTP on {host} is reachable from other machines and needs a token: set the environment variable {variable}, "
        "or listen on 127.0.0.1."
    )
    host: str
    variable: str


class TokenTooShort(TickLakeError):
    message = "The token in {variable} is too short: use at least {shortest} characters."
    variable: str
    shortest: int
