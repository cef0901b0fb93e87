"""Records how a run is closed: one record beside its files, which the first writer makes and all others respect."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ticklake import faults
from ticklake.contracts import FORMAT_VERSION, RunCompleted
from ticklake.coordination import Topic, announced, compare, publish, stored
from ticklake.lives import BEFORE_FIRST, Cause, Life, RunState, Step, bounds_of, decide, life_of, may_write
from ticklake.services.errors import RunClosed, RunEndedBefore, RunGoesOn, RunLeaving, RunVanished
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile, StoredFileConflict, StoredFileMissing
from ticklake.ticks import TickRange, subtract
from ticklake.topics import Run
from ticklake.world import BadMetadata, World

Clock = Callable[[], float]


class Recorded(NamedTuple):
    """The record of a closed run. `changed`: this call has written it."""

    end: RunCompleted
    changed: bool


def end_of(run_id: str, last_tick: int, clock: Clock = time.time) -> RunCompleted:
    return RunCompleted(
        simulation_run_id=run_id,
        last_tick=last_tick,
        written_at_ms=int(clock() * 1000),
        format_version=FORMAT_VERSION,
    )


def record_close(
    storage: Storage,
    run_id: str,
    *,
    cause: str = "",
    last_tick: int | None = None,
    known: Sequence[TickRange] = (),
    clock: Clock = time.time,
) -> Recorded:
    """Records that a run has ended or, with a `cause`, was abandoned: at this tick, or with its last file.

    `known` are ticks that were written once, even if their file is gone. A producer that writes at the same time either
    has its file counted, because the files are listed again after the record, or finds the record after its write.
    """
    own: RunCompleted | None = None
    while True:
        # Read the record first: a listing after it has every file whose writer has not seen the record.
        end = storage.read_completion(run_id)
        files = stored(storage, run_id)
        written = max((ticks.end for ticks in files.values()), default=BEFORE_FIRST)
        life = life_of(end)
        step, last = decide(life, cause=cause, last_tick=last_tick, written=written)
        if step is Step.KEEP and end is not None:
            if end == own and written > last:  # an end cannot count the file that came meanwhile
                storage.remove_completion(end)
                raise _refusal(run_id, Life(), last, files)
            return Recorded(end, own is not None)
        if step is Step.REFUSE:
            raise _refusal(run_id, life, last, files)
        new = end_of(run_id, last, clock)
        if cause:
            new.abandoned_by = cause
            ranges = _never_written(storage, run_id, last, life, [*files.values(), *known])
            new.never_written.extend(bounds_of(ranges))
        own = new if write_record(storage, new, end) else own


def write_record(storage: Storage, new: RunCompleted, known: RunCompleted | None) -> bool:
    """Writes the record of a run, or replaces the `known` one.

    Returns False if another record was written first, or the known one was removed. Then it has to be read again.
    """
    run_id = new.simulation_run_id
    if storage.leaving_note(run_id) is not None or not storage.reachable(run_id):
        raise RunVanished(run_id=run_id, storage=storage.url)  # a record would bring back a part of it
    try:
        if known is not None:
            written = storage.replace_completion(known, new)
        else:
            storage.write_completion(new)
            written = True
    except StoredFileConflict:
        storage.read_completion(run_id)  # raises if the record is damaged
        return False
    faults.reach("closing.recorded")
    return written


def announce_files(run: Run, storage: Storage, topic: str) -> list[TickRange]:
    """Announces files of a run that have no message. Returns the ticks of all messages."""
    known = announced(run, topic)  # read before the files: a file announced meanwhile exists
    difference = compare(stored(storage, run.id), known)
    if difference.unannounced:
        publish(run, storage, difference.unannounced, topic)
    return list(known.keys.values())


def announce_end(topic: Topic, end: RunCompleted) -> bool:
    """Sends the end to a topic. Returns False if it is already the last message."""
    for message in topic.run.browse_last(topic.name, 1):
        opened = message.opened()
        if opened is not None and opened.payload == end:
            return False
    with topic.run.writer(topic.name) as writer:
        writer.send(end)
    return True


def silent_seconds(storage: Storage, run_id: str, runs: Sequence[Run], now: float) -> float | None:
    """Returns for how long no file and no message of a run has arrived; None if that is unknown."""
    folders = {run_id, *(key.rpartition("/")[0] for key in stored(storage, run_id))}
    moments = [moment / 1e9 for folder in folders if (moment := storage.changed_at(folder)) is not None]
    moments += [one.last_ms / 1000 for run in runs for one in run.topics() if one.last_ms is not None]
    return now - max(moments) if moments else None


def keep_open(storage: Storage, run_id: str, ticks: Sequence[int]) -> bool:
    """Raises if a producer writes ticks to a run that is closed or being deleted.

    A run that was only closed because its producer was silent is opened again, for this producer is alive. Returns
    whether it was.
    """
    was_opened = False
    while True:
        try:
            end = storage.read_completion(run_id)
        except BadFile:
            end = None
        if storage.leaving_note(run_id) is not None:
            raise RunLeaving(run_id=run_id)
        life = life_of(end)
        if end is None or may_write(life, ticks):
            return was_opened
        if life.cause != Cause.SILENCE:
            raise closed_error(run_id, life, ticks[0], ticks[-1])
        was_opened = storage.remove_completion(end) or was_opened


def closed_error(run_id: str, life: Life, first: int, last: int) -> RunClosed:
    remedy = "If it was closed by mistake, remove completed.pb from the folder of the run"
    if life.state is RunState.ABANDONED:
        remedy = f"To count files that came after it was closed, close it again: ticklake runs close {run_id}"
    return RunClosed(run_id=run_id, life=life, first=first, last=last, remedy=remedy)


def _refusal(run_id: str, life: Life, last: int, files: dict[str, TickRange]) -> RunGoesOn | RunEndedBefore:
    later = [key for key, ticks in files.items() if ticks.end > last]
    if later and life.last_tick is None:
        return RunGoesOn(run_id=run_id, last_tick=last, key=later[0])
    return RunEndedBefore(run_id=run_id, life=life)


def _never_written(storage: Storage, run_id: str, last: int, life: Life, found: Sequence[TickRange]) -> list[TickRange]:
    """Returns the sampled ticks before the last written one that nobody has written; none without metadata.

    If the run was closed before, all other ticks count as written: their files may have been lost since.
    """
    try:
        world = World.of(storage.read_metadata(run_id))
    except (StoredFileMissing, BadFile, BadMetadata):
        return []
    step = world.sampling_interval
    before = [] if life.last_tick is None else subtract([TickRange(0, life.last_tick)], life.never_written, step)
    written = [*found, *before]
    reach = min(last, max((ticks.end for ticks in written), default=BEFORE_FIRST))
    return subtract([TickRange(world.first_tick, reach)], written, step)
