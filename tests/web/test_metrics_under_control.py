"""`/metrics` of a whole node while somebody pauses, resumes, stops and starts its services."""

from __future__ import annotations

import random
from collections.abc import Callable

import httpx
import pytest
from metric_rules import Series, check, series
from prometheus_client.parser import text_string_to_metric_families

ACTS = ("pause", "resume", "stop", "start")
SERVICES = ("simulation", "persistence-service", "metadata-persistence-service", "completion-service")


def scrape(client: httpx.Client) -> Series:
    found = text_string_to_metric_families(client.get("/metrics").text)
    return series(family for family in found if family.name.startswith("ticklake_"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_metrics_of_a_node_keep_their_promises_whatever_is_done_to_its_services(
    client: httpx.Client, eventually: Callable[..., None], seed: int
) -> None:
    rng, before, written = random.Random(seed), scrape(client), 0.0

    def goes_on() -> bool:
        nonlocal before
        after = scrape(client)
        check(before, after)
        before = after
        states = [value for (name, _), value in after.items() if name == "ticklake_service_state"]
        assert sum(states) == len(SERVICES), "each is in one state"
        return after["ticklake_service_ticks_written_total", ("persistence-service",)] > written

    for _ in range(6):
        for _ in range(4):
            name, act = rng.choice(SERVICES), rng.choice(ACTS)
            if (name, act) != ("simulation", "stop"):  # that ends the run
                assert client.post(f"/api/services/{name}/{act}").status_code in (200, 409)
            goes_on()
        for name in SERVICES:
            client.post(f"/api/services/{name}/start")
            client.post(f"/api/services/{name}/resume")
        written = before["ticklake_service_ticks_written_total", ("persistence-service",)]
        eventually(goes_on)
