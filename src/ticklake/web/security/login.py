"""Sign-in with the token, if other machines can connect, and sign-out."""

from __future__ import annotations

import secrets
import time
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ticklake.web.forms import Form, posted
from ticklake.web.rendering import HEADERS, fragment
from ticklake.web.security import sessions

LOGIN, LOGOUT = "/login", "/logout"


def login_page(prefix: str, target: str, *, wrong: bool = False) -> Response:
    """Returns the sign-in page instead of the requested one."""
    text = fragment("login.html", prefix=prefix, target=target, wrong=wrong)
    return HTMLResponse(text, HTTPStatus.UNAUTHORIZED, HEADERS)


def sign_in(request: Request, form: Form) -> Response:
    token, prefix = request.app.state.token, request.app.state.prefix
    target = form["target"] or ""
    if not secrets.compare_digest((form["token"] or "").strip().encode(), token.encode()):
        return login_page(prefix, target, wrong=True)
    answer = RedirectResponse(_here(target, prefix), HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        sessions.COOKIE,
        sessions.issued(token, time.time()),
        max_age=sessions.SECONDS,
        path=prefix or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def sign_out(request: Request, _form: Form) -> Response:
    prefix = request.app.state.prefix
    answer = RedirectResponse(f"{prefix}/", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(sessions.COOKIE, path=prefix or "/", httponly=True, samesite="strict")
    return answer


def _here(target: str, prefix: str) -> str:
    """Returns the target if it is on this server, else the first page."""
    inside = target.startswith(f"{prefix}/") and not target.startswith("//") and "\\" not in target
    return target if inside and target.isprintable() else f"{prefix}/"


ROUTES = [
    Route(LOGIN, posted(sign_in), methods=["POST"]),
    Route(LOGOUT, posted(sign_out), methods=["POST"]),
]
