"""Every route that the application has: what changes something needs the token, what only shows changes nothing, and no
path or form leads out of the run's places."""

from __future__ import annotations

import hashlib
import logging
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import quote, urlencode

import httpx
import pytest
from starlette.routing import BaseRoute, Mount, Route

from ticklake.node.node import Node
from ticklake.services.base import State
from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.web.api.app import OPERATIONS
from ticklake.web.api.operations import routes
from ticklake.web.pages.routes import ROUTES
from ticklake.web.site import Site

RUN = "20261014-143025-550e8400"
TOKEN = "a-token-for-these-tests-only"
SECRET = "the-secret-that-lies-outside"
NAMES = [
    "..",
    "../../outside/secret",
    "/etc/passwd",
    "nul\0byte",
    "line\r\nx-injected: 1",
    "'; DROP TABLE topic_messages; --",
    '" UNION SELECT 1 --',
    "$(touch taken)",
    "{0} %s %(run)s",
    "<script>alert(1)</script>",
    "\N{RIGHT-TO-LEFT OVERRIDE}",
    "a" * 3000,
]
QUESTIONS = ("run", "topic", "group", "error", "message", "letter", "to", "where", "from", "tick", "service", "action",
             "table", "sql", "query", "format", "columns", "name")  # fmt: skip
STATIC = ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2e%2e%2fapp.py", "..%5capp.py", "%252e%252e/app.py",
          "/etc/passwd", "%2fetc%2fpasswd", "..;/app.py", "%00", ".../app.py", "....//app.py"]  # fmt: skip


def all_routes(found: list[BaseRoute]) -> Iterator[Route]:
    for route in found:
        if isinstance(route, Route):
            yield route
        else:
            assert isinstance(route, Mount) and route.path == "/static", f"{route}: is it looked at here?"


EVERY = list(all_routes([*routes(OPERATIONS), *ROUTES]))
CHANGING = [route for route in EVERY if not (route.methods or set()) <= {"GET", "HEAD"}]
SHOWING = [route for route in EVERY if route not in CHANGING and not route.path.startswith("/live")]


def filled(path: str, value: str) -> str:
    return re.sub(r"\{\w+\}", value, path)


def test_there_are_routes_of_both_kinds() -> None:
    assert len(CHANGING) >= 6
    assert len(SHOWING) >= 20


def test_a_route_that_changes_something_needs_the_token(node: Node, serve: Callable[..., httpx.Client]) -> None:
    stranger = serve(node, token=None)
    wrong = [{}, {"authorization": "Bearer wrong"}, {"cookie": f"token={TOKEN}"}, {"x-http-method-override": "GET"}]
    for route in CHANGING:
        for method in sorted(route.methods or ()):
            for headers in wrong:
                answer = stranger.request(method, filled(route.path, RUN), headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), route.path
            for place in (f"?token={TOKEN}", f"?authorization=Bearer%20{TOKEN}"):
                assert stranger.request(method, filled(route.path, RUN) + place).status_code == 401, route.path


def test_so_does_every_other_method_of_every_route(node: Node, serve: Callable[..., httpx.Client]) -> None:
    stranger = serve(node, token=None)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        for route in EVERY:
            assert stranger.request(method, filled(route.path, RUN)).status_code == 401, (method, route.path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, indexed: ModuleType) -> Path:
    """A run that was indexed, and a secret beside its places."""
    root = tmp_path_factory.mktemp("hostile")
    indexed.make_run(root / "inside", shape=(16, 16), ticks=20, organisms=3)
    (root / "outside").mkdir()
    (root / "outside" / "secret").write_text(SECRET)
    return root


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    inside = place / "inside"
    with Database(f"sqlite:///{inside / 'database'}") as database:
        yield Site(Storage(inside / "storage"), inside / "lake", [database])


def content(root: Path, database: Database | None) -> dict[str, object]:
    """What is stored: every file but the database's, and every row."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "database" not in path.parts)
    found: dict[str, object] = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert database is not None
    with database.run(RUN).reading() as view:
        for (table,) in view.execute("SELECT name FROM sqlite_schema WHERE type = 'table'", {}):
            found[table] = view.execute(f"SELECT * FROM {table}", {})
    return found


def test_a_route_that_only_shows_changes_nothing(
    place: Path, site: Site, serve_site: Callable[..., httpx.Client]
) -> None:
    client, before = serve_site(site), content(place, site.databases[0])
    for route in SHOWING:
        for value in (RUN, "0"):
            client.get(filled(route.path, value))
    assert content(place, site.databases[0]) == before


def test_no_path_and_no_question_leads_out(place: Path, site: Site, serve_site: Callable[..., httpx.Client]) -> None:
    client, before = serve_site(site), content(place, site.databases[0])
    for route in SHOWING:
        for name in NAMES:
            for path in {filled(route.path, quote(name, safe="")), filled(route.path, quote(name))}:
                harmless(client.get(f"{path}?{urlencode(dict.fromkeys(QUESTIONS, name))}"), f"{path} {name}")
    assert content(place, site.databases[0]) == before


def test_no_form_leads_out_even_with_the_token(
    place: Path, site: Site, serve_site: Callable[..., httpx.Client]
) -> None:
    client, before = serve_site(site), content(place, site.databases[0])
    for route in CHANGING:
        for name in NAMES:
            form = dict.fromkeys(QUESTIONS, name)
            harmless(client.post(filled(route.path, quote(name, safe="")), data=form), route.path)
            harmless(client.post(filled(route.path, RUN), data=form), route.path)
    assert content(place, site.databases[0]) == before


def test_no_name_of_a_service_or_an_action_does_anything(
    node: Node, serve: Callable[..., httpx.Client], eventually: Callable[..., None]
) -> None:
    client = serve(node)
    # It has written its one file and ends by itself.
    eventually(lambda: node.services["metadata-persistence-service"].state is State.STOPPED)
    before = {name: service.state for name, service in node.services.items()}
    for operation in OPERATIONS:
        for name in (*NAMES, "__init__", "run", "_stop", "monitor"):
            harmless(client.request(operation.method, filled(operation.path, quote(name, safe=""))), name)
    assert {name: service.state for name, service in node.services.items()} == before


def test_no_answer_and_no_log_has_the_password_or_the_token(
    make_node: Callable[..., Node],
    serve: Callable[..., httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
    postgres_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret_url = postgres_url.replace("postgres:@", "postgres:very-secret@")
    monkeypatch.setenv("DATABASE_URL", secret_url)
    node = make_node(database="${DATABASE_URL}")
    node.start()
    node.services["simulation"].monitor.errors.record("X", f"cannot connect to {secret_url}")
    client = serve(node)
    for route in SHOWING:
        for value in (RUN, "simulation"):
            answer = client.get(filled(route.path, value))
            told = answer.text + str(answer.headers)
            assert "very-secret" not in told, route.path
            assert TOKEN not in told, route.path
    assert "very-secret" not in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("path", STATIC)
def test_static_files_are_only_those_of_the_page(
    site: Site, serve_site: Callable[..., httpx.Client], path: str
) -> None:
    """As bytes on a socket: a client would tidy the path up first."""
    url = serve_site(site).base_url
    with socket.create_connection((url.host, url.port or 0), timeout=30) as line:
        line.sendall(f"GET /static/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    assert answer.split()[1] in ("400", "404", "405"), answer
    assert "root:" not in answer
    assert "import" not in answer


def harmless(answer: httpx.Response, what: str) -> None:
    assert answer.status_code < 500, (what, answer.text)
    assert SECRET not in answer.text, what
    assert "root:x" not in answer.text, what
    assert "html" not in answer.headers.get("content-type", "") or "<script>alert" not in answer.text, what
    assert "x-injected" not in answer.headers, what
