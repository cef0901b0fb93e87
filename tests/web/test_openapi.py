"""The OpenAPI document and the routes are the same."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from starlette.routing import BaseRoute, Mount, Route

from ticklake.node.node import Node
from ticklake.web.api.app import OPERATIONS, create_app
from ticklake.web.api.openapi import SCHEMAS, document
from ticklake.web.security.guard import Guard


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
    assert names == set(SCHEMAS)


def test_what_is_answered_is_what_is_documented(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        if "get" not in methods or path == "/metrics":
            continue
        answer = client.get(path.replace("{name}", "simulation"))
        schema = methods["get"]["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
        check(answer.json(), schema)


def check(value: object, schema: dict) -> None:
    if "$ref" in schema:
        return check(value, SCHEMAS[schema["$ref"].rpartition("/")[2]])
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool}
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert (value is None and "null" in names) or any(
        isinstance(value, kinds[name]) for name in names if name != "null"
    )
    if isinstance(value, list):
        for one in value:
            check(one, schema["items"])
    if isinstance(value, dict) and "properties" in schema:
        assert set(value) == set(schema["properties"])
        for name, inner in schema["properties"].items():
            check(value[name], inner)
    return None
