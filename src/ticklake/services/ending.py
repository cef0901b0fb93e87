"""Ending a run by hand: for a producer that has stopped and left no completion record, as the original never does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ticklake.contracts import RunCompleted
from ticklake.coordination.reconcile import BATCH_TOPIC, stored
from ticklake.errors import RunEndedBefore, RunGoesOn, RunHasNoFiles, RunNotSilent, SilenceUnknown
from ticklake.services.completion import RUN_TOPIC, end_of
from ticklake.storage.files import Storage
from ticklake.topics import Run

SILENT_SECONDS = 60.0


class Ended(NamedTuple):
    """The end of a run as it is on record; `recorded` and `announced` tell what was done just now."""

    last_tick: int
    recorded: bool
    announced: bool


def end_run(
    storage: Storage,
    run_id: str,
    run: Run | None = None,
    *,
    last_tick: int | None = None,
    silent_for: float = SILENT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> Ended:
    """Records that the run ended with this tick, or with its last file, and tells its topic where there is one.

    Refused while the run goes on: if something came within `silent_for` seconds, or a file lies behind that tick.
    """
    files = stored(storage, run_id)
    if not files:
        raise RunHasNoFiles(run_id=run_id, storage=storage.url)
    last = max(ticks.end for ticks in files.values()) if last_tick is None else last_tick
    known = storage.read_completion(run_id)
    if known is None:
        _refuse_if_it_goes_on(storage, run_id, run, silent_for, clock())
        for key, ticks in files.items():
            if ticks.end > last:
                raise RunGoesOn(run_id=run_id, last_tick=last, key=key)
        storage.write_completion(end_of(run_id, last, clock))
    elif known.last_tick != (known.last_tick if last_tick is None else last_tick):
        raise RunEndedBefore(run_id=run_id, last_tick=known.last_tick)
    end = storage.read_completion(run_id) or end_of(run_id, last, clock)
    return Ended(end.last_tick, known is None, run is not None and _announce(run, end))


def _refuse_if_it_goes_on(storage: Storage, run_id: str, run: Run | None, silent_for: float, now: float) -> None:
    if silent_for <= 0:
        return
    folders = {run_id, *(key.rpartition("/")[0] for key in stored(storage, run_id))}
    moments = [moment / 1e9 for folder in folders if (moment := storage.changed_at(folder)) is not None]
    if run is not None:
        moments += [message.published_at_ms / 1000 for message in run.browse_last(BATCH_TOPIC, 1)]
    if not moments:
        raise SilenceUnknown(run_id=run_id, storage=storage.url)
    silent = now - max(moments)
    if silent < silent_for:
        raise RunNotSilent(run_id=run_id, seconds=max(0, round(silent)), silent_for=round(silent_for))


def _announce(run: Run, end: RunCompleted) -> bool:
    """Tells the run's topic, unless it knows."""
    for message in run.browse_last(RUN_TOPIC, 1):
        opened = message.opened()
        if opened is not None and opened.payload == end:
            return False
    with run.writer(RUN_TOPIC) as topic:
        topic.send(end)
    return True
