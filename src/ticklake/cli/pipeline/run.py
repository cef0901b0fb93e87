"""`ticklake run`: starts a node from a configuration and waits until it is stopped or all services have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from ticklake.cli.errors import WebMissing
from ticklake.cli.options.logs import set_up_logs
from ticklake.cli.options.numbers import PORT, Seconds
from ticklake.cli.terminal.interrupt import end_now, graceful_stop
from ticklake.cli.terminal.output import echo, note
from ticklake.errors import TickLakeError
from ticklake.logs import one_line, redacted

if TYPE_CHECKING:
    from ticklake.node.node import Node

POLL_SECONDS = 0.2
FAILED, LATE = 1, 3
_Result = TypeVar("_Result")


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--stop-timeout", type=Seconds(), help="Seconds to wait for a clean stop of all services.")
@click.option("--http", "port", type=PORT, help="Serve pages, metrics and control on this port; 0: any free port.")
@click.pass_context
def run(context: click.Context, config: str, stop_timeout: float | None, port: int | None) -> None:
    """Start the services of CONFIG. Ctrl-C stops them cleanly; a second Ctrl-C ends at once. Neither loses data."""
    with graceful_stop() as stop:
        node = build(config, port)
        set_up_logs(context, node.settings.node.log)
        clean = _work(node, port, stop, stop_timeout)
    for service in node.failed:
        echo(f"{service.name} failed: {service.error}", err=True)
    if not clean:
        end_now(LATE)  # threads that did not stop would keep the process alive
    if node.failed:
        raise click.exceptions.Exit(FAILED)
    note(f"Stopped. {node.leftovers}")


def _work(node: Node, port: int | None, stop: threading.Event, stop_timeout: float | None) -> bool:
    """Runs the node until it ends or `stop` is set. Returns whether it stopped in time."""
    if stop.is_set():
        node.close()
        return True
    http = node.settings.node.http
    with _http(node, http.port if port is None else port):
        note(f"Running {', '.join(node.services)}. Ctrl-C stops.")
        while not node.ended and not stop.wait(POLL_SECONDS):
            pass
        return node.stop(stop_timeout)


def build(config: str, port: int | None = None) -> Node:
    """Returns the node of a configuration, ready to start. Raises with everything that is wrong. Creates nothing."""
    from ticklake.config import load
    from ticklake.node.node import Node
    from ticklake.node.preflight import examine

    settings = load(config)
    found, node = _attempt(lambda: Node(settings))
    report = examine(settings)
    http = settings.node.http
    listens_on = http.port if port is None else port
    if listens_on is not None:
        found += _attempt(lambda: _check_http(http.host, listens_on, settings.node.directory))[0]
    for remark in report.notes:
        note(f"Note: {one_line(redacted(remark))}")
    problems = [*found, *report.problems]
    if node is not None and not problems:
        return node
    if node is not None:
        node.close()
    for problem in problems[:-1]:
        echo(f"Error: {one_line(redacted(str(problem)))}", err=True)
    raise problems[-1]


def _attempt(act: Callable[[], _Result]) -> tuple[list[Exception], _Result | None]:
    try:
        return [], act()
    except TickLakeError as error:
        return [error], None


def _check_http(host: str, port: int, directory: str) -> None:
    """Checks that HTTP can be served: the packages, the address and, if required, the token. Creates no token."""
    try:
        from ticklake.node.client import token_of
        from ticklake.web.security.guard import find_token, is_loopback
        from ticklake.web.server import check_address
    except ModuleNotFoundError as error:
        raise WebMissing(module=error.name) from error
    check_address(host, port)
    if token_of() or not is_loopback(host):
        find_token(host, directory)


@contextmanager
def _http(node: Node, port: int | None) -> Iterator[None]:
    """Starts the node and, with a port, its HTTP server. The port is bound first, so a used port fails early."""
    if port is None:
        node.start()
        yield
        return
    from ticklake.web.server import open_server

    server = open_server(node, node.settings.node.http.model_copy(update={"port": port}))
    try:
        node.start()
        node.instance.write_holder(url=server.url)
        server.start()
        echo(f"Listening on {server.url}", err=True)
        yield
    finally:
        server.stop()
