"""Generates the OpenAPI document from the operations."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from ticklake.services import State
from ticklake.web.api.operations import Operation

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
OPTIONAL_TEXT = {"type": ["string", "null"]}
TRUTH = {"type": "boolean"}
ANYTHING = {"type": "object", "additionalProperties": True}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _reference(name)}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: dict[str, Any] = {
    "Node": _object(
        name=TEXT,
        version=TEXT,
        file=TEXT,
        host=TEXT,
        pid={"type": "integer"},
        started_at=OPTIONAL_TEXT,
        runs={"type": "array", "items": TEXT},
        stopping=TRUTH,
        ready=TRUTH,
    ),
    "Service": _object(
        **{"class": TEXT},
        name=TEXT,
        state={"type": "string", "enum": [state.value for state in State]},
        healthy=TRUTH,
        error=OPTIONAL_TEXT,
        restart_in_seconds={"type": ["number", "null"]},
        run_id=OPTIONAL_TEXT,
        resources={"type": "object", "additionalProperties": TEXT},
        metrics=ANYTHING,
    ),
    "Services": _list("Service"),
    "Error": _object(at=TEXT, code=TEXT, message=TEXT, details=TEXT),
    "Errors": _list("Error"),
    "Resource": _object(
        **{"class": TEXT},
        name=TEXT,
        options=ANYTHING,
        used_by={"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
        metrics=ANYTHING,
    ),
    "Resources": _list("Resource"),
    "Health": _object(status=TEXT),
    "Readiness": _object(
        status=TEXT,
        services={"type": "object", "additionalProperties": TEXT},
        databases={"type": "object", "additionalProperties": TEXT},
    ),
    "Document": ANYTHING,
    "Problem": _object(error=_object(code=TEXT, message=TEXT)),
}


def document(operations: Iterable[Operation], prefix: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "TickLake node", "version": version("ticklake")},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.id,
        "summary": one.summary,
        "parameters": [_parameter(name, one.choices.get(name)) for name in one.parameters],
        "responses": {str(one.status): _answer(one)} | {str(status): _refusal(one, status) for status in one.refusals},
    }
    if one.method != "GET":
        described["security"] = [{"token": []}]
        described["responses"]["202"] = _answer(one)
    return described


def _parameter(name: str, choices: tuple[str, ...] | None) -> dict[str, Any]:
    schema = TEXT | ({"enum": list(choices)} if choices else {})
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _answer(one: Operation) -> dict[str, Any]:
    if one.answers is None:
        return {"description": one.summary, "content": {"text/plain": {"schema": TEXT}}}
    return {"description": one.summary, "content": {"application/json": {"schema": _reference(one.answers)}}}


def _refusal(one: Operation, status: int) -> dict[str, Any]:
    # "Not ready" is a regular response, not an error.
    schema = one.answers if status == HTTPStatus.SERVICE_UNAVAILABLE and one.answers else "Problem"
    content = {"application/json": {"schema": _reference(schema)}}
    return {"description": HTTPStatus(status).phrase, "content": content}
