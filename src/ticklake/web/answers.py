"""What every answer looks like: JSON, and errors in one shape."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from ticklake.errors import QueueClosed, RunNotInLake, TableNotInRun, TickLakeError, UnknownService, WrongServiceState
from ticklake.logs import redacted

log = logging.getLogger(__name__)

STATUS: dict[type[TickLakeError], HTTPStatus] = {
    UnknownService: HTTPStatus.NOT_FOUND,
    RunNotInLake: HTTPStatus.NOT_FOUND,
    TableNotInRun: HTTPStatus.NOT_FOUND,
    WrongServiceState: HTTPStatus.CONFLICT,
    QueueClosed: HTTPStatus.CONFLICT,
}


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """`{"error": {"code": "not_found", "message": …}}`."""
    error = {"code": HTTPStatus(status).phrase.lower().replace(" ", "_"), "message": redacted(message)}
    return JSONResponse({"error": error}, status, headers)


def refused(_request: Request, error: Exception) -> JSONResponse:
    """What the node itself says no to."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
    return problem(status, str(error))


def wrong_request(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.BAD_REQUEST
    headers: Any = getattr(error, "headers", None)
    return problem(status, f"{request.method} {request.url.path}: {HTTPStatus(status).phrase}.", headers)


def failed(request: Request, error: Exception) -> JSONResponse:
    """A mistake of ours: the log has it, the answer does not."""
    log.error("%s %s failed: %s: %s", request.method, request.url.path, type(error).__name__, error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong here; the node's log says what.")
