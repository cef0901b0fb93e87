"""An operation of the API: its route and its documentation in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Endpoint = Callable[[Request], Response]


@dataclass(frozen=True)
class Operation:
    """`answers` is the model of the JSON answer; None means text. An answer has one of the `statuses`.

    `refusals` are the statuses of its own errors. The guard may refuse every operation.
    """

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    answers: Any
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.endpoint.__name__

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


def routes(operations: Iterable[Operation]) -> list[Route]:
    return [Route(one.path, one.endpoint, methods=[one.method], name=one.id) for one in operations]
