"""The API over real HTTP: list, look, start, stop, pause, resume."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from ticklake.node.node import Node


def test_it_lists_services_with_their_states_and_metrics(client: httpx.Client, eventually: Callable[..., None]) -> None:
    assert [one["name"] for one in client.get("/api/services").json()] == [
        "metadata-persistence-service", "completion-service", "persistence-service", "simulation",
    ]  # fmt: skip
    eventually(lambda: client.get("/api/services/persistence-service").json()["metrics"]["ticks_written"] > 0)
    one = client.get("/api/services/persistence-service").json()
    assert (one["class"], one["state"], one["error"]) == ("PersistenceService", "running", None)


def test_it_lists_resources_and_who_uses_them(client: httpx.Client) -> None:
    (queue,) = [one for one in client.get("/api/resources").json() if one["name"] == "tick-queue"]
    assert queue["used_by"]["simulation"] == ["queue-out"]
    assert queue["used_by"]["persistence-service"] == ["queue-in"]
    assert set(queue["metrics"]) == {"queued_ticks", "queued_bytes"}


def test_a_service_is_paused_resumed_stopped_and_started(client: httpx.Client) -> None:
    def state_after(action: str) -> str:
        answer = client.post(f"/api/services/persistence-service/{action}")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["state"])

    assert [state_after(one) for one in ("pause", "resume", "stop", "start")] == [
        "paused", "running", "stopped", "running",
    ]  # fmt: skip


def test_what_the_state_does_not_allow_is_a_conflict(client: httpx.Client) -> None:
    answer = client.post("/api/services/persistence-service/resume")
    assert answer.status_code == 409
    assert answer.json()["error"]["message"].startswith("Cannot resume persistence-service: it is running")


def test_a_simulation_that_has_ended_its_run_is_not_started_again(client: httpx.Client, node: Node) -> None:
    assert client.post("/api/services/simulation/stop").json()["state"] == "stopped"
    answer = client.post("/api/services/simulation/start")
    assert answer.status_code == 409
    assert "Start a new run" in answer.json()["error"]["message"]
    assert node.services["simulation"].state == "stopped"


def test_a_node_whose_services_were_all_stopped_by_hand_goes_on_to_answer(client: httpx.Client, node: Node) -> None:
    for name in reversed(list(node.services)):
        assert client.post(f"/api/services/{name}/stop").status_code == 200
    assert not node.ended


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/services/persistance-service", 404, "not_found"),
        ("POST", "/api/services/persistence-service/explode", 404, "not_found"),
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/api/services", 405, "method_not_allowed"),
    ],
)
def test_every_error_has_the_same_shape(client: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert set(answer.json()["error"]) == {"code", "message"}


def test_a_wrong_name_gets_the_nearest_right_one(client: httpx.Client) -> None:
    message = client.get("/api/services/persistance-service").json()["error"]["message"]
    assert "did you mean 'persistence-service'?" in message


@pytest.mark.warns("failed: ")
def test_a_mistake_of_ours_is_logged_and_not_shown(client: httpx.Client, node: Node) -> None:
    node.services["simulation"].monitor.gauge("tick", lambda: 1 / 0)
    answer = client.get("/api/services")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_server_error")
    assert "ZeroDivision" not in answer.text


@pytest.mark.warns("simulation failed", "restarts in", "is not restarted")
def test_the_errors_of_a_service_are_kept_for_the_eye(
    make_node: Callable[..., Node],
    serve: Callable[..., httpx.Client],
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node(node="restart { max_restarts = 1, first_delay_ms = 1 }")
    monkeypatch.setattr(node.services["simulation"], "run", lambda: int("broken"))
    node.start()
    client = serve(node)
    eventually(lambda: client.get("/api/services/simulation").json()["metrics"]["restarts"] == 1)
    eventually(lambda: len(client.get("/api/services/simulation/errors").json()) == 2)
    first, _ = client.get("/api/services/simulation/errors").json()
    assert (first["code"], first["details"]) == ("SERVICE_FAILED", "ValueError")
    assert client.get("/ready").status_code == 503
    assert client.get("/ready").json()["services"] == {"simulation": "error"}
    assert client.get("/health").status_code == 200


def test_everything_moves_below_the_prefix(make_node: Callable[..., Node], serve: Callable[..., httpx.Client]) -> None:
    client = serve(make_node(node="http { path_prefix = /lake/node }"))
    assert client.base_url.path == "/lake/node/"
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/lake/node"}]
    assert httpx.get(client.base_url.copy_with(path="/health"), trust_env=False).status_code == 404


def test_ready_says_what_health_does_not(make_node: Callable[..., Node], serve: Callable[..., httpx.Client]) -> None:
    node = make_node()
    client = serve(node)
    assert client.get("/ready").json() == {"status": "not ready", "services": {"node": "starting"}, "databases": {}}
    node.start()
    assert client.get("/ready").status_code == 200
    node.services["persistence-service"].monitor.healthy = False
    assert client.get("/ready").json()["services"] == {"persistence-service": "unhealthy"}
    assert client.get("/health").status_code == 200
