"""Errors of services and of the tick queue."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class WrongServiceState(TickLakeError):
    message = "Cannot {action} {name}: it is {state}, and must be {allowed}."
    name: str
    action: str
    state: str
    allowed: str


class QueueClosed(TickLakeError):
    message = "The tick queue is closed: the run has ended after tick {last_tick}. Start a new run for more ticks."
    last_tick: int | None


class TicksOutOfOrder(TickLakeError):
    message = (
        "Tick {tick} came after tick {last_tick}. A producer puts the ticks of one run in rising order, each once."
    )
    tick: int
    last_tick: int


class WriteKeepsFailing(TickLakeError):
    message = (
        "{what} failed {attempts} times, the last time with {error}. Nothing accepted is lost: remove the cause and "
        "start the service again."
    )
    what: str
    attempts: int
    error: BaseException


class RunHasNoFiles(TickLakeError):
    message = "Run {run_id} has no batch files in {storage}, so it has no end. Check the run and the storage."
    run_id: str
    storage: str


class LastFileBad(TickLakeError):
    message = (
        "Run {run_id} cannot be ended with its last file {key!r}: it does not hold what its name promises: {reason}. "
        "Restore the file, or remove it; --last-tick N says what the end is without looking into the file."
    )
    run_id: str
    key: str
    reason: object


class RunGoesOn(TickLakeError):
    message = (
        "Run {run_id} does not end at tick {last_tick}: {key!r} goes on behind it. Leave --last-tick out to end it "
        "with its last file, or remove the file if its name is wrong."
    )
    run_id: str
    last_tick: int
    key: str


class RunNotSilent(TickLakeError):
    message = (
        "Run {run_id} may still go on: something came {seconds} seconds ago. Stop its producer, and end the run once "
        "it has been silent for {silent_for} seconds; --silent-for 0 does not wait."
    )
    run_id: str
    seconds: int
    silent_for: int


class SilenceUnknown(TickLakeError):
    message = (
        "{storage} does not tell when something last came for run {run_id}. Make sure that its producer has stopped, "
        "then give --silent-for 0."
    )
    run_id: str
    storage: str


class RunEndedBefore(TickLakeError):
    message = (
        "Run {run_id} has ended at tick {last_tick} already, and an end is recorded once. If that is wrong, remove "
        "completed.pb from the run's folder first."
    )
    run_id: str
    last_tick: int
