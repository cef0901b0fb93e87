"""The OpenAPI document, the routes and their answers are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError
from starlette.routing import BaseRoute, Mount, Route

from ticklake.node.node import Node
from ticklake.web.api import control
from ticklake.web.api.app import OPERATIONS, create_app
from ticklake.web.api.models import Problem, Service
from ticklake.web.api.openapi import document
from ticklake.web.api.operations import Operation
from ticklake.web.security.guard import Guard
from ticklake.web.server import HttpServer

SERVICE = "persistence-service"


def served(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from served(list(route.routes))
        elif isinstance(route, Route) and route.include_in_schema:
            yield from ((route.path, method.lower()) for method in route.methods or () if method != "HEAD")


@pytest.mark.parametrize("prefix", ["", "/lake"])
def test_every_route_is_documented_and_nothing_else(node: Node, prefix: str) -> None:
    app = create_app(node, Guard("t" * 20, "127.0.0.1", prefix=prefix))
    described = document(OPERATIONS, prefix)
    assert set(served(app.routes)) == {
        (path, method) for path, methods in described["paths"].items() for method in methods
    }


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value["$ref"],) if "$ref" in value else ()
        yield from (one for inner in value.values() for one in references(inner))
    elif isinstance(value, list):
        yield from (one for inner in value for one in references(inner))


def test_every_schema_is_there_and_used() -> None:
    described = document(OPERATIONS, "")
    names = {reference.rpartition("/")[2] for reference in references(described)}
    assert names == set(described["components"]["schemas"])


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.id)
def test_every_operation_has_a_summary_its_answers_and_its_errors(one: Operation) -> None:
    described = document(OPERATIONS, "")["paths"][one.path][one.method.lower()]
    assert described["summary"] and described["operationId"] == one.id
    assert [parameter["name"] for parameter in described["parameters"]] == one.parameters
    assert {"200", "403", "default"} <= described["responses"].keys()
    assert all(answer["description"] and answer["content"] for answer in described["responses"].values())


def test_every_operation_has_its_own_name() -> None:
    assert len({one.id for one in OPERATIONS}) == len(OPERATIONS)


def exactly(model: object, content: bytes) -> object:
    """Raises a `ValidationError` if a field is missing, unknown or of another type."""
    return TypeAdapter(model).validate_json(content, strict=True, extra="forbid")


def checked(one: Operation, answer: httpx.Response) -> tuple[str, int]:
    """Compares an answer with its model. Returns the operation and the status."""
    if answer.status_code not in one.statuses:
        exactly(Problem, answer.content)
    elif one.answers is None:
        assert answer.headers["content-type"].startswith("text/plain")
    else:
        exactly(one.answers, answer.content)
    return one.id, answer.status_code


def ask(client: httpx.Client, one: Operation, name: str = SERVICE, action: str = "resume") -> httpx.Response:
    return client.request(one.method, one.path.format(name=name, action=action))


def read_all(client: httpx.Client, name: str = SERVICE) -> set[tuple[str, int]]:
    return {checked(one, ask(client, one, name)) for one in OPERATIONS if one.method == "GET"}


def change(client: httpx.Client, name: str, *actions: str) -> set[tuple[str, int]]:
    (one,) = (one for one in OPERATIONS if one.method != "GET")
    return {checked(one, ask(client, one, name, action)) for action in actions}


@pytest.mark.warns("did not stop within", "persistence-service failed", "restarts in")
def test_every_answer_is_exactly_what_its_model_describes(
    make_node: Callable[..., Node],
    serve: Callable[..., httpx.Client],
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a node before its start, of one that runs, and of one with a service that fails or does not stop."""
    node, released = make_node(node="restart { first_delay_ms = 60000 }"), threading.Event()
    client = serve(node)
    seen = read_all(client)

    monkeypatch.setattr(control, "STOP_SECONDS", 0)
    monkeypatch.setattr(node.services["completion-service"], "run", released.wait)
    node.start()
    eventually(lambda: node.runs() and node.databases[0].opened)
    seen |= read_all(client)
    seen |= change(client, SERVICE, "pause", "resume")
    seen |= change(client, "completion-service", "stop")
    released.set()

    failing = node.services[SERVICE]
    assert failing.stop(60)
    monkeypatch.setattr(failing, "run", lambda: int("broken"))
    seen |= change(client, SERVICE, "start")
    eventually(lambda: client.get(f"/api/services/{SERVICE}").json()["restart_in_seconds"])
    assert client.get(f"/api/services/{SERVICE}/errors").json()
    seen |= read_all(client)

    assert seen == {(one.id, status) for one in OPERATIONS for status in one.statuses}


@pytest.fixture
def elsewhere(node: Node) -> Iterator[str]:
    """The URL of a server that believes others than this machine can connect to it."""
    server = HttpServer(create_app(node, Guard("t" * 20, "0.0.0.0")), "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop()


def test_every_error_is_documented_and_exactly_what_its_model_describes(client: httpx.Client, elsewhere: str) -> None:
    with httpx.Client(base_url=elsewhere, timeout=60, trust_env=False) as stranger:
        for one in OPERATIONS:
            provoked = [
                ask(stranger, one),
                client.request(one.method, one.path, headers={"origin": "https://evil.example"}),
                ask(client, one, name="nobody"),
                ask(client, one, action="explode"),
                ask(client, one, action="resume"),  # it is running
            ]
            documented = document(OPERATIONS, "")["paths"][one.path][one.method.lower()]["responses"].keys()
            statuses = {str(checked(one, answer)[1]) for answer in provoked}
            assert statuses | {str(status) for status in one.statuses} == documented - {"default"}, one.id
            assert checked(one, client.request("PATCH", one.path)) == (one.id, 405), "an undocumented one"


SHOWN = (
    b'{"name":"a","class":"B","state":"running","healthy":true,"error":null,"restart_in_seconds":1,"run_id":null,'
    b'"resources":{},"metrics":{"ticks":1.5,"healthy":true}}'
)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (b'"run_id":null,', b""),
        (b'"run_id":null', b'"run_id":null,"more":1'),
        (b'"run_id":null', b'"run_id":7'),
        (b'"class"', b'"class_name"'),
        (b'"running"', b'"walking"'),
        (b"true", b'"true"'),
        (b"1.5", b"[]"),
    ],
)
def test_an_answer_that_differs_is_noticed(part: bytes, wrong: bytes) -> None:
    exactly(list[Service], b"[" + SHOWN + b"]")
    with pytest.raises(ValidationError):
        exactly(list[Service], b"[" + SHOWN.replace(part, wrong, 1) + b"]")
