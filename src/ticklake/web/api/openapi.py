"""Generates the OpenAPI document from the operations and the models of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from ticklake.web.api.models import Problem
from ticklake.web.api.operations import Operation
from ticklake.web.security.guard import OPEN, READS

TEXT = {"type": "string"}


class _Schemas(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """No titles: they would only repeat the names of the fields."""
        return False


def document(operations: Sequence[Operation], prefix: str) -> dict[str, Any]:
    by_operation, schemas = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_operation.get(one.id))
    return {
        "openapi": "3.1.0",
        "info": {"title": "TickLake node", "version": version("ticklake")},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(operations: Iterable[Operation]) -> tuple[dict[str, JsonSchemaValue], dict[str, JsonSchemaValue]]:
    """Returns the schema of each operation's JSON answer, and the schemas that these refer to by name."""
    answers = {one.id: one.answers for one in operations if one.answers} | {"": Problem}
    found, named = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(answer)) for name, answer in answers.items()],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    return {name: schema for (name, _), schema in found.items()}, named["$defs"]


def _operation(one: Operation, schema: JsonSchemaValue | None) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}} if schema else {"text/plain": {"schema": TEXT}}
    answers = {str(status): {"description": one.summary, "content": content} for status in one.statuses}
    # The guard refuses foreign hosts everywhere. Reading needs the token only if other machines can connect.
    token: dict[str, list[str]] = {"token": []}
    security = [] if one.path in OPEN else [{}, token] if one.method in READS else [token]
    guarded = (401, 403) if security else (403,)
    return {
        "operationId": one.id,
        "summary": one.summary,
        "parameters": [_parameter(name, one.choices.get(name)) for name in one.parameters],
        "responses": answers
        | {str(status): _problem(HTTPStatus(status).phrase) for status in (*guarded, *one.refusals)}
        | {"default": _problem("Any other error")},
        "security": security,
    }


def _parameter(name: str, choices: tuple[str, ...] | None) -> dict[str, Any]:
    schema = TEXT | ({"enum": list(choices)} if choices else {})
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _problem(description: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    return {"description": description, "content": content}
