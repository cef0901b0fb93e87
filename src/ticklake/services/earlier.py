"""The earlier runs of a producer that was restarted: they are closed, because it does not come back to them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ticklake.coordination import Topic
from ticklake.errors import TickLakeError
from ticklake.lives import Cause, RunState, life_of
from ticklake.monitoring import Monitor
from ticklake.services.closing import announce_end, announce_files, record_close
from ticklake.storage import Storage
from ticklake.topics import Database, runs_in

log = logging.getLogger(__name__)


class BegunRun(NamedTuple):
    """A run that a producer has begun, and the storage of its files."""

    run_id: str
    storage: str


class BegunRuns(Protocol):
    """The runs that this producer has begun in its earlier lives. All of these lives are over."""

    def earlier(self) -> list[BegunRun]: ...

    def forget(self, begun: BegunRun) -> None: ...


class EarlierRuns:
    """Closes the runs that a producer has begun and not ended, at the last tick in their files."""

    def __init__(
        self,
        begun: BegunRuns,
        database: Database,
        batch_topic: str,
        run_topic: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._begun, self._database, self._clock = begun, database, clock
        self._batch_topic, self._run_topic = batch_topic, run_topic

    def close_all(self, monitor: Monitor) -> bool:
        """Closes all of them. Returns whether it is done; a run that could not be closed has to be tried again."""
        done = True
        for begun in self._begun.earlier():
            try:
                with self._database.branch() as branch:  # closed again: a node may have many earlier runs
                    closed = self._close(begun, branch)
                if closed:
                    self._begun.forget(begun)
            except (TickLakeError, OSError) as error:
                done = False
                monitor.errors.record("CLOSING_FAILED", error, begun.run_id)
                log.warning("Could not close run %s, which this node began earlier: %s", begun.run_id, error)
        return done

    def _close(self, begun: BegunRun, database: Database) -> bool:
        """Returns whether the run is closed. One that is not in its storage may come back with a disk."""
        storage = Storage(begun.storage)
        if begun.run_id not in storage.runs():
            return False
        ended = storage.read_completion(begun.run_id)
        # Unannounced files first: a closed run has messages for all of its files. So has one that has ended: if the
        # database was away at that time, the messages are still missing.
        runs = runs_in([database], begun.run_id)
        ticks = [one for run in runs for one in announce_files(run, storage, self._batch_topic)]
        if ended is not None and life_of(ended).state is RunState.ENDED:
            end, changed = ended, False
        else:
            end, changed = record_close(storage, begun.run_id, cause=Cause.RESTART, known=ticks, clock=self._clock)
        for run in runs:
            announce_end(Topic(run, self._run_topic), end)
        if changed:
            log.info("Run %s is %s: its producer was restarted", begun.run_id, life_of(end))
        return True
