"""Changes requested by pages: small posted forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ticklake.errors import TickLakeError
from ticklake.web.rendering import refused

MAX_BYTES = 64 * 1024


class Form:
    """The fields of a form. Empty fields count as missing."""

    def __init__(self, text: str) -> None:
        self._values = parse_qs(text)

    def __getitem__(self, name: str) -> str | None:
        return next(iter(self._values.get(name, [])), None)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def says(self, name: str) -> bool:
        return name in self._values


Act = Callable[[Request, Form], Response]


def posted(act: Act) -> Callable[[Request], Awaitable[Response]]:
    """Returns an endpoint that reads the form and acts in a thread. A refusal becomes a note on the page."""

    async def answer(request: Request) -> Response:
        form = Form(await _text(request))
        try:
            return await run_in_threadpool(act, request, form)
        except TickLakeError as error:
            return refused(request, error)

    return answer


async def _text(request: Request) -> str:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return body.decode("utf-8", "replace")
