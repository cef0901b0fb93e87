"""Errors of services and of the tick queue."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class WrongServiceState(TickLakeError):
    message = "Cannot {action} {name}: it is {state} but must be {allowed}."
    name: str
    action: str
    state: str
    allowed: str


class QueueClosed(TickLakeError):
    message = "The tick queue is closed: the run ended after tick {last_tick}. Start a new run for more ticks."
    last_tick: int | None


class TicksOutOfOrder(TickLakeError):
    message = (
        "Tick {tick} came after tick {last_tick}. A producer must put the ticks of a run in ascending order, each once."
    )
    tick: int
    last_tick: int


class WriteKeepsFailing(TickLakeError):
    message = (
        "{what} failed {attempts} times, the last time with {error}. No accepted tick is lost: fix the cause and "
        "restart the service."
    )
    what: str
    attempts: int
    error: BaseException
