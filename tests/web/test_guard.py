"""Who may ask for what."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ticklake.errors import AddressUnavailable, TokenMissing, TokenTooShort
from ticklake.node.node import Node
from ticklake.web.security.guard import Guard, find_token
from ticklake.web.server import open_server

TOKEN = "x" * 32
STOP = "/api/services/simulation/stop"


def test_reading_on_loopback_needs_no_token_and_changing_does(
    node: Node, serve: Callable[..., httpx.Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stranger = serve(node, token=None)
    assert stranger.get("/api/services").status_code == 200
    answer = stranger.post(STOP)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert stranger.post(STOP, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert node.services["simulation"].state == "running"
    assert serve(node).post(STOP).status_code == 200
    assert "a-token-for-these-tests-only" not in caplog.text


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[1:]}"]
)
def test_only_the_whole_token_counts(given: str) -> None:
    refusal = Guard(TOKEN, "127.0.0.1").refusal("POST", STOP, {"host": "localhost", "authorization": given})
    assert refusal is not None and refusal[0] == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_anything_but_reading_needs_it(method: str) -> None:
    guard = Guard(TOKEN, "127.0.0.1")
    assert guard.refusal(method, "/api/services", {"host": "localhost:8080"}) is not None
    known = {"host": "localhost:8080", "authorization": f"bearer {TOKEN}"}
    assert guard.refusal(method, "/api/services", known) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2]"]
)
def test_a_foreign_name_that_leads_here_is_refused(host: str) -> None:
    refusal = Guard(TOKEN, "127.0.0.1").refusal("GET", "/api/services", {"host": host})
    assert refusal is not None and refusal[0] == 403


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:80", "127.0.0.1:8080", "127.8.8.8", "[::1]:8080", "lake.example"]
)
def test_the_names_of_this_machine_and_those_allowed_are_known(host: str) -> None:
    guard = Guard(TOKEN, "127.0.0.1", allowed_hosts=("lake.example",))
    assert guard.refusal("GET", "/api/services", {"host": host}) is None


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:9999", "null", "file://"])
def test_a_page_from_elsewhere_is_refused_even_with_the_token(client: httpx.Client, origin: str) -> None:
    assert client.get("/api/services", headers={"origin": origin}).status_code == 403
    assert client.post(STOP, headers={"origin": origin}).status_code == 403


def test_a_page_of_this_server_is_not(client: httpx.Client) -> None:
    own = f"http://{client.base_url.host}:{client.base_url.port}"
    assert client.get("/api/services", headers={"origin": own, "sec-fetch-site": "same-origin"}).status_code == 200


def test_reading_from_other_machines_needs_the_token_except_for_the_probes() -> None:
    guard = Guard(TOKEN, "0.0.0.0", prefix="/lake")
    stranger = {"host": "10.1.2.3"}
    assert guard.refusal("GET", "/lake/api/services", stranger) is not None
    assert guard.refusal("GET", "/lake/metrics", stranger) is not None
    assert guard.refusal("GET", "/lake/health", stranger) is None
    assert guard.refusal("GET", "/lake/metrics", stranger | {"authorization": f"Bearer {TOKEN}"}) is None


def test_another_address_than_loopback_needs_a_token_from_the_environment(tmp_path: Path) -> None:
    with pytest.raises(TokenMissing, match="TICKLAKE_TOKEN"):
        find_token("0.0.0.0", tmp_path, {})
    with pytest.raises(TokenTooShort):
        find_token("0.0.0.0", tmp_path, {"TICKLAKE_TOKEN": "short"})
    assert find_token("0.0.0.0", tmp_path, {"TICKLAKE_TOKEN": TOKEN}) == TOKEN
    assert list(tmp_path.iterdir()) == []


def test_on_loopback_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    first = find_token("localhost", tmp_path / "data", {})
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(first) >= 32
    assert find_token("::1", tmp_path / "data", {}) == first
    assert find_token("127.0.0.1", tmp_path / "other", {}) != first


def test_answers_have_strict_headers_also_when_they_refuse(client: httpx.Client) -> None:
    for answer in (client.get("/health"), client.get("/nowhere"), client.get("/health", headers={"host": "evil"})):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_an_address_that_is_taken_is_one_clear_error(node: Node, client: httpx.Client) -> None:
    taken = node.settings.node.http.model_copy(update={"port": client.base_url.port})
    with pytest.raises(AddressUnavailable, match=f"port {client.base_url.port}: Address already in use"):
        open_server(node, taken)
