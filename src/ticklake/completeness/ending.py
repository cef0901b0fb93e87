"""Ends a run by hand, if its producer has stopped without recording the end. The original never records it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ticklake.checks.numbers import InvalidOption
from ticklake.completeness.errors import (
    FilesPassedOver,
    RunEndedBefore,
    RunGoesOn,
    RunHasNoFiles,
    RunNotSilent,
    SilenceUnknown,
)
from ticklake.completeness.last_file import check_last_file
from ticklake.completeness.verdicts import first_of
from ticklake.contracts import RunCompleted
from ticklake.coordination import Topic, destination_of, stored
from ticklake.defaults import RUN_TOPIC
from ticklake.services import end_of
from ticklake.storage import Storage
from ticklake.topics import Database, Run, runs_in

SILENT_SECONDS = 60.0


class Ended(NamedTuple):
    """The recorded end of a run. `recorded` and `announced` say what this call has done."""

    last_tick: int
    recorded: bool
    announced: bool


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
    if not 0 <= silent_for < math.inf:
        raise InvalidOption(option="silent_for", value=silent_for, allowed="0 or more seconds, a finite number")
    runs = _runs(databases, run_id)
    destination = destination_of(databases, run_id, RunCompleted, RUN_TOPIC, topic).create() if runs else None
    files = stored(storage, run_id)
    if not files:
        raise RunHasNoFiles(run_id=run_id, storage=storage.url)
    if places := storage.passed_over(run_id):
        raise FilesPassedOver(run_id=run_id, places=first_of(places))
    known = storage.read_completion(run_id)
    last = max(ticks.end for ticks in files.values()) if last_tick is None else last_tick
    if known is None:
        _check_silence(storage, run_id, runs, silent_for, clock())
        if last_tick is None:
            check_last_file(storage, run_id, [key for key, ticks in files.items() if ticks.end == last])
        for key, ticks in files.items():
            if ticks.end > last:
                raise RunGoesOn(run_id=run_id, last_tick=last, key=key)
        storage.write_completion(end_of(run_id, last, clock))
    elif known.last_tick != (known.last_tick if last_tick is None else last_tick):
        raise RunEndedBefore(run_id=run_id, last_tick=known.last_tick)
    end = storage.read_completion(run_id) or end_of(run_id, last, clock)
    return Ended(end.last_tick, known is None, destination is not None and _announce(destination, end))


def _runs(databases: Sequence[Database], run_id: str) -> list[Run]:
    """Returns the run in the databases that have it. Raises if none has it, because no group would read the message."""
    return runs_in(databases, run_id) or [database.run(run_id, create=False) for database in databases[:1]]


def _check_silence(storage: Storage, run_id: str, runs: Sequence[Run], silent_for: float, now: float) -> None:
    if silent_for == 0:
        return
    folders = {run_id, *(key.rpartition("/")[0] for key in stored(storage, run_id))}
    moments = [moment / 1e9 for folder in folders if (moment := storage.changed_at(folder)) is not None]
    moments += [one.last_ms / 1000 for run in runs for one in run.topics() if one.last_ms is not None]
    if not moments:
        raise SilenceUnknown(run_id=run_id, storage=storage.url)
    silent = now - max(moments)
    if silent < silent_for:
        raise RunNotSilent(run_id=run_id, seconds=max(0, round(silent)), silent_for=round(silent_for))


def _announce(topic: Topic, end: RunCompleted) -> bool:
    """Sends the end to a topic. Returns False if it is already the last message."""
    for message in topic.run.browse_last(topic.name, 1):
        opened = message.opened()
        if opened is not None and opened.payload == end:
            return False
    with topic.run.writer(topic.name) as writer:
        writer.send(end)
    return True
