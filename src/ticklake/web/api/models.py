"""The JSON answers of the API. The OpenAPI document is generated from these models, and tests check every answer.

Endpoints return plain values and do not use the models. The models have no docstrings: they would be part of the
document, but not under `python -OO`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ticklake.services import State

Metrics = dict[str, bool | float]


class Answer(BaseModel):
    # A server builds the models when the document is requested, not at its start.
    model_config = ConfigDict(defer_build=True)


class Node(Answer):
    name: str
    version: str
    file: str
    host: str
    pid: int
    started_at: AwareDatetime | None
    runs: list[str]
    stopping: bool
    ready: bool


class Service(Answer):
    name: str
    class_name: str = Field(alias="class")
    state: State
    healthy: bool
    error: str | None
    restart_in_seconds: float | None
    run_id: str | None
    resources: dict[str, str]
    metrics: Metrics


class Error(Answer):
    at: AwareDatetime
    code: str
    message: str
    details: str


class Resource(Answer):
    name: str
    class_name: str = Field(alias="class")
    options: dict[str, Any]
    used_by: dict[str, list[str]]
    metrics: Metrics | dict[str, Metrics]


class Health(Answer):
    status: Literal["ok"]


class Readiness(Answer):
    status: Literal["ready", "not ready"]
    services: dict[str, str]
    databases: dict[str, str]


class Document(Answer):
    openapi: str
    info: dict[str, str]
    servers: list[dict[str, str]]
    paths: dict[str, dict[str, Any]]
    components: dict[str, dict[str, Any]]


class Refusal(Answer):
    code: str
    message: str


class Problem(Answer):
    error: Refusal
