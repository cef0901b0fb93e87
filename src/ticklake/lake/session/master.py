"""Addresses of a running Spark: `spark://HOST:PORT[,HOST:PORT…]` or `sc://HOST:PORT`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from ticklake.lake.errors import SparkUnavailable

CONNECT = "sc://"
STANDALONE = "spark://"
_PORTS = {CONNECT: 15002, STANDALONE: 7077}
_ANSWER_SECONDS = 10.0


def needs_java(master: str) -> bool:
    """Returns whether this process must start a JVM. A client of Spark Connect does not."""
    return not master.startswith(CONNECT)


def check_reachable(master: str) -> None:
    """Raises `SparkUnavailable` at once if no address accepts a connection. Spark itself would need minutes."""
    failures = []
    for address in addresses(master):
        try:
            socket.create_connection(address, _ANSWER_SECONDS).close()
        except OSError as error:
            failures.append(f"no connection to {address[0]}:{address[1]} ({error})")
        else:
            return
    if failures:
        raise SparkUnavailable(reason=", ".join(failures))


def addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yields the addresses in a master URL. Masters such as `local[*]` and `yarn` have none."""
    for scheme, port in _PORTS.items():
        if master.startswith(scheme):
            hosts = master.removeprefix(scheme).partition("/")[0]
            for host in hosts.split(","):
                parts = urlsplit(f"//{host}")
                yield parts.hostname or "localhost", parts.port or port
