"""Starting again what died, with the clock and the chance held still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import DatabaseUnavailable, InvalidOption, MissingConsumerGroup, OtherTableSchema
from ticklake.node.supervisor import UNRECOVERABLE, RestartPolicy, Supervisor
from ticklake.services.base import Service

SOON = 30.0


class Mortal(Service):
    """Lives until it is stopped or `die` is called; `done` makes it end by itself."""

    def __init__(self, name: str = "mortal", order: list[str] | None = None) -> None:
        super().__init__(name)
        self.order = order if order is not None else []
        self._turn = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        self.order.append(f"{self.name} starts")
        self._turn.wait()
        self._turn.clear()
        self.order.append(f"{self.name} ends")
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        self._turn.set()

    def die(self, error: BaseException) -> None:
        self._error = error
        self._turn.set()
        assert self.join(SOON)
        self._error = None

    def done(self) -> None:
        self._turn.set()
        assert self.join(SOON)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    mortal = Mortal()
    yield mortal
    assert mortal.stop(SOON)


@pytest.fixture
def supervisor(mortal: Mortal, clock: Clock) -> Supervisor:
    """Its thread is not started: each look is the test's own."""
    supervisor = Supervisor([mortal], RestartPolicy(3, 1.0, 60.0, 300.0), clock=clock, chance=lambda: 0.0)
    supervisor.start("mortal")
    return supervisor


@pytest.mark.warns("mortal failed", "restarts in", "is not restarted after 3 restarts")
def test_each_restart_waits_twice_as_long_and_then_it_stays_as_it_is(
    supervisor: Supervisor, mortal: Mortal, clock: Clock
) -> None:
    for wait in (1.0, 2.0, 4.0):
        mortal.die(OSError("disk full"))
        assert supervisor.check() == wait
        clock.now += wait - 0.1
        supervisor.check()
        assert mortal.state == "error"
        assert supervisor.restart_in("mortal") == pytest.approx(0.1)
        clock.now += 0.1
        supervisor.check()
        assert mortal.state == "running"
    mortal.die(OSError("disk full"))
    assert supervisor.check() is None
    assert supervisor.restart_in("mortal") is None
    assert mortal.monitor.snapshot()["restarts"] == 3
    assert [error.message for error in mortal.monitor.errors] == ["disk full"] * 4
    assert supervisor.ended


@pytest.mark.warns("mortal failed", "restarts in")
def test_one_that_lived_a_while_starts_counting_anew(supervisor: Supervisor, mortal: Mortal, clock: Clock) -> None:
    for _ in range(10):
        clock.now += 300
        mortal.die(DatabaseUnavailable(database="db", reason="gone"))
        assert supervisor.check() == 1.0
        clock.now += 1
        supervisor.check()
        assert mortal.state == "running"


@pytest.mark.warns("mortal failed", "a restart would not help")
@pytest.mark.parametrize(
    "error",
    [
        InvalidOption(option="claim_timeout", value=0, allowed="more than 0 seconds"),
        OtherTableSchema(directory="d", found="a", wanted="b"),
        MissingConsumerGroup(topic="batch-topic"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_that_only_a_person_can_mend_is_not_tried_again(
    supervisor: Supervisor, mortal: Mortal, error: Exception
) -> None:
    assert isinstance(error, UNRECOVERABLE)
    mortal.die(error)
    assert supervisor.check() is None
    assert (mortal.state, supervisor.ended) == ("error", True)
    supervisor.start("mortal")
    assert (mortal.state, supervisor.ended) == ("running", False)


def test_one_that_ended_by_itself_is_not_started_again(supervisor: Supervisor, mortal: Mortal) -> None:
    mortal.done()
    assert supervisor.check() is None
    assert (mortal.state, supervisor.ended) == ("stopped", True)


@pytest.mark.warns("mortal failed", "restarts in")
def test_what_an_operator_stops_stays_stopped_even_where_a_restart_was_due(
    supervisor: Supervisor, mortal: Mortal, clock: Clock
) -> None:
    mortal.die(OSError("disk full"))
    assert supervisor.check() == 1.0
    assert supervisor.stop("mortal", SOON)
    clock.now += 3600
    assert supervisor.check() is None
    assert mortal.state == "error"
    assert not supervisor.ended, "a node waits for whoever stopped it by hand"
    supervisor.start("mortal")
    assert mortal.state == "running"


@given(st.integers(1, 2000), st.floats(0, 1))
def test_a_pause_is_never_longer_than_the_longest_nor_shorter_than_half(failures: int, chance: float) -> None:
    policy = RestartPolicy(first_delay=0.5, max_delay=60.0)
    full = policy.delay(failures, 0.0)
    assert full == min(0.5 * 2.0 ** min(failures - 1, 60), 60.0)
    assert full / 2 <= policy.delay(failures, chance) <= full


@pytest.mark.warns("mortal failed", "restarts in")
def test_the_watch_itself_notices_a_death_and_starts_again(mortal: Mortal, eventually: Callable[..., None]) -> None:
    supervisor = Supervisor([mortal], RestartPolicy(first_delay=0.001))
    supervisor.start_all()
    mortal.die(OSError("disk full"))
    eventually(lambda: mortal.monitor.counter("restarts").value == 1 and mortal.state == "running")
    assert supervisor.stop_all(SOON) == []


def test_services_start_in_their_order_and_stop_in_reverse(eventually: Callable[..., None]) -> None:
    order: list[str] = []
    services = [Mortal(name, order) for name in "abc"]
    supervisor = Supervisor(services)
    for number, service in enumerate(services):
        supervisor.start(service.name)
        eventually(lambda wanted=number + 1: len(order) == wanted)
    assert supervisor.stop_all(SOON) == []
    assert order == ["a starts", "b starts", "c starts", "c ends", "b ends", "a ends"]


@pytest.mark.warns("stuck did not stop within")
def test_one_that_hangs_does_not_cost_the_others_their_clean_stop() -> None:
    class Stuck(Mortal):
        def wake(self) -> None:
            """Does not listen."""

    first, stuck = Mortal("first"), Stuck("stuck")
    supervisor = Supervisor([first, stuck])
    supervisor.start_all()
    assert supervisor.stop_all(0.2) == [stuck]
    assert (first.state, stuck.state) == ("stopped", "running")
    stuck.done()
