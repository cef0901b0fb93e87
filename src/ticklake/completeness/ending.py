"""Ends or closes a run by hand, if its producer has stopped without recording the end. The original never does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ticklake.checks.numbers import InvalidOption
from ticklake.completeness.errors import FilesPassedOver, RunHasNoFiles, RunNotSilent, SilenceUnknown
from ticklake.completeness.last_file import check_last_file
from ticklake.completeness.verdicts import first_of
from ticklake.contracts import BatchInfo, RunCompleted
from ticklake.coordination import destination_of, stored
from ticklake.defaults import BATCH_TOPIC, RUN_TOPIC
from ticklake.lives import BEFORE_FIRST, Cause, Life, Step, decide, life_of
from ticklake.services import announce_end, announce_files, record_close, silent_seconds
from ticklake.services.errors import RunVanished
from ticklake.storage import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database, Run, runs_in

SILENT_SECONDS = 60.0


class Ended(NamedTuple):
    """The recorded end of a run. `recorded` and `announced` say what this call has done.

    `silent_seconds` is how long nothing had arrived for the run when it was recorded; None if unknown.
    """

    last_tick: int
    recorded: bool
    announced: bool
    life: Life
    silent_seconds: float | None = None

    @property
    def may_be_alive(self) -> bool:
        """Whether its producer may have been alive when this call recorded the end."""
        return self.recorded and self.silent_seconds is not None and self.silent_seconds < SILENT_SECONDS


def end_run(
    storage: Storage,
    run_id: str,
    databases: Sequence[Database] = (),
    *,
    topic: str | None = None,
    last_tick: int | None = None,
    silent_for: float = SILENT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> Ended:
    """Records the end of the run: this tick or, by default, the last tick of its files. Announces it if possible.

    Raises if the run may still continue: if something arrived in the last `silent_for` seconds, if a file has later
    ticks, or if batch files may be passed over. Also raises if the last file is bad, if no database has the run,
    or if the topic is ambiguous. Then nothing is recorded.
    """
    return _close(storage, run_id, databases, "", topic, last_tick, silent_for, clock)


def close_run(
    storage: Storage,
    run_id: str,
    databases: Sequence[Database] = (),
    *,
    topic: str | None = None,
    last_tick: int | None = None,
    silent_for: float = SILENT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> Ended:
    """Closes a run that its producer has abandoned. Raises as `end_run` does, but a run may have no files.

    Ticks that nobody has written are not missing afterwards. Files without a message are announced first. If files came
    after the run was closed, closing it again counts them too.
    """
    return _close(storage, run_id, databases, Cause.COMMAND, topic, last_tick, silent_for, clock)


def _close(
    storage: Storage,
    run_id: str,
    databases: Sequence[Database],
    cause: str,
    topic: str | None,
    last_tick: int | None,
    silent_for: float,
    clock: Callable[[], float],
) -> Ended:
    if not 0 <= silent_for < math.inf:
        raise InvalidOption(option="silent_for", value=silent_for, allowed="0 or more seconds, a finite number")
    try:
        return _close_stored(storage, run_id, databases, cause, topic, last_tick, silent_for, clock)
    except FileNotFoundError:
        if storage.reachable(run_id):
            raise
        raise RunVanished(run_id=run_id, storage=storage.url) from None


def _close_stored(
    storage: Storage,
    run_id: str,
    databases: Sequence[Database],
    cause: str,
    topic: str | None,
    last_tick: int | None,
    silent_for: float,
    clock: Callable[[], float],
) -> Ended:
    files = stored(storage, run_id)
    if not files and not cause:
        raise RunHasNoFiles(run_id=run_id, storage=storage.url)
    runs = _runs(databases, run_id)
    destination = destination_of(databases, run_id, RunCompleted, RUN_TOPIC, topic).create() if runs else None
    if places := storage.passed_over(run_id):
        raise FilesPassedOver(run_id=run_id, places=first_of(places))
    written = max((ticks.end for ticks in files.values()), default=BEFORE_FIRST)
    life = life_of(storage.read_completion(run_id))
    known: list[TickRange] = []
    silent: float | None = None
    step, last = decide(life, cause=cause, last_tick=last_tick, written=written)
    if step in (Step.RECORD, Step.REPLACE):
        if last != life.last_tick:  # otherwise the producer was silent before and has not come back
            silent = _checked_silence(storage, run_id, runs, silent_for, clock())
        if last_tick is None and files:
            check_last_file(storage, run_id, [key for key, ticks in files.items() if ticks.end == written])
        if cause and runs:
            batches = destination_of(databases, run_id, BatchInfo, BATCH_TOPIC).create()
            known = announce_files(batches.run, storage, batches.name)
    end, changed = record_close(storage, run_id, cause=cause, last_tick=last_tick, known=known, clock=clock)
    if changed and end.last_tick > last:  # a file came meanwhile
        silent = 0.0
    announced = destination is not None and announce_end(destination, end)
    return Ended(end.last_tick, changed, announced, life_of(end), silent)


def _runs(databases: Sequence[Database], run_id: str) -> list[Run]:
    """Returns the run in the databases that have it. Raises if none has it, because no group would read the message."""
    return runs_in(databases, run_id) or [database.run(run_id, create=False) for database in databases[:1]]


def _checked_silence(storage: Storage, run_id: str, runs: Sequence[Run], silent_for: float, now: float) -> float | None:
    """Returns for how long the run has been silent, None if unknown. Raises if that is shorter than wanted."""
    silent = silent_seconds(storage, run_id, runs, now)
    if silent is None:
        if silent_for:
            raise SilenceUnknown(run_id=run_id, storage=storage.url)
        return None
    silent = max(0.0, silent)  # the clock of another machine may be ahead
    if silent < silent_for:
        raise RunNotSilent(run_id=run_id, seconds=round(silent), silent_for=f"{silent_for:g}")
    return silent
