"""Signing in with the token, where others than this machine can connect."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from ticklake.web.security import sessions
from ticklake.web.security.guard import Guard
from ticklake.web.server import HttpServer

TOKEN = "a-token-for-these-tests-only"
HTML = {"accept": "text/html,*/*"}
Serve = Callable[..., HttpServer]


@pytest.fixture
def stranger(serve_strangers: Serve) -> httpx.Client:
    return client_of(serve_strangers())


def client_of(server: HttpServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False)


def sign_in(client: httpx.Client, target: str = "/", token: str = TOKEN, **headers: str) -> httpx.Response:
    return client.post("/login", data={"token": token, "target": target}, headers=headers)


def origin(client: httpx.Client) -> dict[str, str]:
    return {"origin": f"http://{client.base_url.host}:{client.base_url.port}"}


def test_a_browser_is_asked_for_the_token_and_a_program_is_told(stranger: httpx.Client) -> None:
    page = stranger.get("/tables?run=x%22%3E", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert 'type="password"' in page.text and "run=x%22%3E" in page.text and "environment_data" not in page.text
    told = stranger.get("/api/runs/x/ticks")
    assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")
    assert stranger.get("/static/ticklake.css").status_code == 200
    assert stranger.get("/static/../overview.py", headers=HTML).status_code in (401, 404)


def test_who_has_shown_it_may_look_and_who_has_not_may_not(stranger: httpx.Client) -> None:
    for wrong in ("", "x", TOKEN[:-1], f"{TOKEN}x"):
        answer = sign_in(stranger, token=wrong)
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert stranger.get("/").status_code == 401
    answer = sign_in(stranger, "/tables")
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables")
    given = answer.headers["set-cookie"].lower()
    assert "httponly" in given and "samesite=strict" in given and TOKEN not in given
    assert stranger.get("/tables").status_code == 200
    assert stranger.get("/charts").status_code == 200


def test_a_change_with_a_session_must_come_from_a_page_of_this_server(stranger: httpx.Client) -> None:
    sign_in(stranger)
    path, data = "/runs/20261014-143025-550e8400/groups/reset", {"topic": "t", "group": "g", "dry_run": "1"}
    assert stranger.post(path, data=data).status_code == 401, "nobody says where it comes from"
    assert stranger.post(path, data=data, headers={"origin": "https://evil.example"}).status_code == 403
    assert stranger.post(path, data=data, headers={"sec-fetch-site": "same-site"}).status_code == 401
    assert stranger.post(path, data=data, headers=origin(stranger)).status_code == 404, "there is no such group"


def test_another_origin_cannot_sign_anybody_in_or_out(stranger: httpx.Client) -> None:
    assert sign_in(stranger, origin="https://evil.example").status_code == 403
    assert stranger.post("/logout", headers={"origin": "https://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "", "/\r\nx: y"]
)
def test_signing_in_leads_nowhere_else(stranger: httpx.Client, target: str) -> None:
    assert sign_in(stranger, target).headers["location"] == "/"


def test_a_read_only_server_lets_one_sign_in_and_change_nothing(serve_strangers: Serve) -> None:
    client = client_of(serve_strangers("/lake", read_only=True))
    answer = sign_in(client, "/lake/topics")
    assert answer.headers["location"] == "/lake/topics" and "path=/lake" in answer.headers["set-cookie"].lower()
    text = client.get("/topics").text
    assert "read-only" in text and "hx-post" not in text
    path = "/runs/20261014-143025-550e8400/groups/reset"
    assert client.post(path, headers=origin(client)).status_code == 403


def test_on_loopback_nobody_signs_in(pages: httpx.Client) -> None:
    assert pages.post("/login", data={"token": TOKEN}, headers={"authorization": ""}).status_code == 401


def test_a_session_ends_and_cannot_be_made_up() -> None:
    now = [1_000_000.0]
    guard = Guard(TOKEN, "0.0.0.0", clock=lambda: now[0])

    def looks_in(cookie: str) -> bool:
        headers = {"host": "10.1.2.3", "cookie": f"a=b; {sessions.COOKIE}={cookie}"}
        return guard.refusal("GET", "/", headers) is None

    good = sessions.issued(TOKEN, now[0])
    until, _, signature = good.partition(".")
    assert looks_in(good)
    assert not looks_in(f"{int(until) + 1}.{signature}")
    assert not looks_in(sessions.issued("another-token-altogether", now[0]))
    assert not any(map(looks_in, ["", ".", "x.y", f"{until}.", f".{signature}", TOKEN, '"', "\\"]))
    now[0] += sessions.SECONDS
    assert not looks_in(good)
