"""JSON responses, and errors in a uniform shape."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from ticklake.database.errors import (
    DatabaseClosed,
    DatabaseFull,
    DatabaseLocked,
    DatabaseUnavailable,
    DatabaseUnusable,
    RunNotInDatabase,
)
from ticklake.errors import TickLakeError
from ticklake.lake.errors import (
    DamagedCommit,
    DamagedTableFile,
    LakeNotFound,
    LakeUnreadable,
    RunNotInLake,
    StorageUnavailable,
    TableNotInRun,
    TableUnreadable,
)
from ticklake.logs import redacted
from ticklake.node.errors import UnknownService
from ticklake.services.errors import QueueClosed, WrongServiceState
from ticklake.storage.errors import RunNotFound
from ticklake.text import error_text
from ticklake.topics.errors import UnknownGroup, UnknownMessage

log = logging.getLogger(__name__)

STATUSES: dict[HTTPStatus, tuple[type[TickLakeError], ...]] = {
    HTTPStatus.NOT_FOUND: (
        RunNotFound,
        RunNotInDatabase,
        RunNotInLake,
        TableNotInRun,
        UnknownGroup,
        UnknownMessage,
        UnknownService,
    ),
    HTTPStatus.CONFLICT: (QueueClosed, WrongServiceState),
    # Damage and outages are not the fault of the request.
    HTTPStatus.SERVICE_UNAVAILABLE: (
        DamagedCommit,
        DamagedTableFile,
        DatabaseClosed,
        DatabaseFull,
        DatabaseLocked,
        DatabaseUnavailable,
        DatabaseUnusable,
        LakeNotFound,
        LakeUnreadable,
        StorageUnavailable,
        TableUnreadable,
    ),
}


def status_of(error: TickLakeError) -> HTTPStatus:
    """Returns the status for an error; 400 by default."""
    return next((status for status, kinds in STATUSES.items() if isinstance(error, kinds)), HTTPStatus.BAD_REQUEST)


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """`{"error": {"code": "not_found", "message": …}}`."""
    error = {"code": HTTPStatus(status).phrase.lower().replace(" ", "_"), "message": redacted(message)}
    return JSONResponse({"error": error}, status, headers)


def refused(_request: Request, error: Exception) -> JSONResponse:
    """Answers with an error of TickLake."""
    return problem(status_of(error) if isinstance(error, TickLakeError) else HTTPStatus.BAD_REQUEST, str(error))


def wrong_request(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.BAD_REQUEST
    headers: Any = getattr(error, "headers", None)
    return problem(status, f"{request.method} {request.url.path}: {HTTPStatus(status).phrase}.", headers)


def failed(request: Request, error: Exception) -> JSONResponse:
    """Logs an unexpected error. The response does not contain it."""
    log.error("%s %s failed: %s", request.method, request.url.path, error_text(error))
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error; see the node's log.")
