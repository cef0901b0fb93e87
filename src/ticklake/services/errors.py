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


class RunGoesOn(TickLakeError):
    message = (
        "Run {run_id} does not end at tick {last_tick}: {key!r} has later ticks. Omit the tick to close the run at its "
        "last file, or remove the file if its name is wrong."
    )
    run_id: str
    last_tick: int
    key: str


class RunEndedBefore(TickLakeError):
    message = (
        "Run {run_id} was closed before: it is {life}. If that is wrong, first remove completed.pb from the folder of "
        "the run."
    )
    run_id: str
    life: object


class RunClosed(TickLakeError):
    message = (
        "Run {run_id} is {life}, but its producer still writes: ticks {first} to {last}. Stop this producer or start a "
        "new run. {remedy}."
    )
    run_id: str
    life: object
    first: int
    last: int
    remedy: str


class RunLeaving(TickLakeError):
    message = (
        "Run {run_id} is being deleted or archived, but its producer still writes. Stop this producer or start a new "
        "run. If `ticklake runs` still shows the run afterwards, delete or archive it again."
    )
    run_id: str


class RunVanished(TickLakeError):
    message = (
        "Run {run_id} is not in {storage} any more: it was deleted, or a disk is not mounted. Mount the disk. If the "
        "run was deleted or archived and its producer still writes, stop it and start a new run."
    )
    run_id: str
    storage: str
