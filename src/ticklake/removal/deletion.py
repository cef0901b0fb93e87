"""Deletes a run. A mark comes first and goes last, so nobody picks up a run that is half deleted."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ticklake import faults
from ticklake.coordination import live_claims
from ticklake.disk import remove_tree, sync
from ticklake.lives import RunState
from ticklake.removal.contents import RunContents, RunPlaces, check_there, contents_of
from ticklake.removal.errors import ArchiveUnfinished, DeletionUnfinished, RemovalUnderWay, RunInUse, RunStillRunning
from ticklake.topics import runs_in

SILENT_SECONDS = 60.0
"""A run that has no files is not running if it has had no message for so long."""


def delete_run(places: RunPlaces, *, force: bool = False) -> RunContents:
    """Deletes the run from all of these places. Returns what was there. A deletion that was cut off is finished.

    Raises, and changes nothing, if the run is running or in use. With `force` neither is checked.
    """
    contents = contents_of(places)
    if not force:
        check_removable(places, contents)
    with removing(places, force=force):
        return contents


def check_removable(
    places: RunPlaces, contents: RunContents, destination: str = "", clock: Callable[[], float] = time.time
) -> None:
    """Raises if the run is running, or is being archived to another destination. A begun deletion may go on."""
    note = places.storage.leaving_note(places.run_id)
    _check_note(places.run_id, note, destination)
    if note is None:
        _check_closed(places, contents, clock())


@contextmanager
def removing(places: RunPlaces, destination: str = "", *, force: bool = False) -> Iterator[bool]:
    """Marks the run, so that nobody begins to work on it, and removes it if the block succeeds.

    Yields whether the run had no mark. Raises if somebody still works on it, if it was opened again meanwhile, or if
    another command removes it. Then, and if the block fails, a new mark is removed and nothing else has changed.
    """
    storage, run_id = places.storage, places.run_id
    note = json.dumps({"archive": destination, "by": secrets.token_hex(8)})
    with storage.leaving(run_id, note) as found:
        if found is None:
            raise RemovalUnderWay(run_id=run_id)
        is_first = found == note
        try:
            _check_marked(places, found, destination, is_first=is_first, force=force)
            yield is_first
        except BaseException:
            if is_first:
                storage.unmark_leaving(run_id)
            raise
        faults.reach("removal.marked")
        _remove(places)


def _check_marked(places: RunPlaces, note: str, destination: str, *, is_first: bool, force: bool) -> None:
    contents = contents_of(places)
    if is_first:
        check_there(places, contents)
    if force:
        return
    _check_note(places.run_id, note, destination)
    if is_first:
        _check_closed(places, contents, time.time())
    _check_claims(places)


def _remove(places: RunPlaces) -> None:
    """Removes everything of a marked run. Can be repeated after a crash."""
    run_id = places.run_id
    for database in places.databases:
        database.drop(run_id)
    faults.reach("removal.database")
    _remove_tables(places)
    faults.reach("removal.tables")
    places.storage.remove_run(run_id)
    faults.reach("removal.files")
    for database in places.databases:
        database.drop(run_id)  # a service that was at work may have made it again
    _remove_tables(places)  # the same
    places.storage.unmark_leaving(run_id)


def destination_in(note: str) -> str:
    """Returns where the run is being archived to; empty if it is only deleted."""
    try:
        found = json.loads(note)
    except ValueError:
        return ""
    return str(found.get("archive", "")) if isinstance(found, dict) else ""


def _check_note(run_id: str, note: str | None, destination: str) -> None:
    """Raises if the mark of a run has another purpose. What is left of a begun deletion is not the whole run."""
    if note is None or (begun := destination_in(note)) == destination:
        return
    if begun:
        raise ArchiveUnfinished(run_id=run_id, destination=begun)
    raise DeletionUnfinished(run_id=run_id)


def _check_closed(places: RunPlaces, contents: RunContents, now: float) -> None:
    if contents.state == RunState.RUNNING and _may_be_alive(places, contents, now):
        raise RunStillRunning(run_id=places.run_id)


def _may_be_alive(places: RunPlaces, contents: RunContents, now: float) -> bool:
    """A run that is only in a database or a lake cannot be closed. It is alive if a message came just now."""
    if contents.files or contents.other_files:
        return True
    moments = [one.last_ms for run in runs_in(places.databases, places.run_id) for one in run.topics()]
    return any(moment is not None and now - moment / 1000 < SILENT_SECONDS for moment in moments)


def _check_claims(places: RunPlaces) -> None:
    claims, holder = 0, ""
    for run in runs_in(places.databases, places.run_id):
        held = [one for one in run.claims.list(limit=None) if one.expires_in_ms is None or one.expires_in_ms > 0]
        batches = live_claims(run)
        claims += len(held) + batches
        holder = holder or (held[0].consumer if held else "an indexer with a coordinator" if batches else "")
    if claims:
        raise RunInUse(run_id=places.run_id, claims=claims, holder=holder)


def _remove_tables(places: RunPlaces) -> None:
    """Moves the tables away in one step, so that no reader sees a part of them, and removes them."""
    tables, leaving = places.tables, places.leaving_tables
    if tables is None or leaving is None:
        return
    if leaving.exists():
        remove_tree(leaving)
    if tables.exists():
        with faults.around("removal.rename"):
            tables.rename(leaving)
            sync(leaving.parent)
        remove_tree(leaving)
