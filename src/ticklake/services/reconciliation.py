"""Reconciliation in the background: announces batch files that were not announced, and closes silent runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ClassVar

from ticklake.contracts import RunCompleted
from ticklake.coordination import announced, compare, destination_of, publish, stored
from ticklake.defaults import BATCH_TOPIC, RUN_TOPIC
from ticklake.errors import TickLakeError
from ticklake.lives import Cause, life_of
from ticklake.services.base import Service
from ticklake.services.closing import announce_end, announce_files, record_close, silent_seconds
from ticklake.storage import Storage, Watch
from ticklake.topics import Database, Run, runs_in

log = logging.getLogger(__name__)


class ReconciliationService(Service):
    """Reconciles every run of a storage, or one run.

    A file is announced if two checks in a row find it unannounced: after the first, its writer may still announce it.
    With `abandon_after`, a run without a file or a message for so many seconds is closed, except for the run `own`.
    """

    background: ClassVar[bool] = True

    def __init__(
        self,
        database: Database,
        storage: Storage,
        interval: float = 60.0,
        *,
        run_id: str | None = None,
        topic: str = BATCH_TOPIC,
        abandon_after: float | None = None,
        own: str | None = None,
        name: str = "reconciliation-service",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self._abandon_after, self._own, self._clock = abandon_after, own, clock
        self._closed: dict[str, int | None] = {}
        self._database, self._storage, self._interval, self._topic = database, storage, interval, topic
        self._only = run_id
        self._watches: dict[str, Watch] = {}
        self._suspects: dict[str, set[str]] = {}
        self._settled: dict[str, int] = {}
        """A hash of the listing and of the state of the database of each run, when it was last reconciled."""
        self._vanished: set[str] = set()

    def run(self) -> None:
        while self.proceed():
            self.reconcile_all()
            self.wait(self._interval)

    def reconcile_all(self) -> None:
        """Checks all runs once. An unchanged run costs almost nothing."""
        leaving = self._storage.leaving_runs() if self._only else []
        for run_id in [self._only] if self._only else self._storage.runs():
            if run_id in leaving:
                continue
            try:
                self._reconcile_if_changed(run_id)
                self._abandon_if_silent(run_id)
            except (TickLakeError, OSError) as error:
                self.monitor.errors.record("RECONCILIATION_FAILED", error, run_id)
                log.warning("Could not reconcile run %s: %s", run_id, error)

    def _reconcile_if_changed(self, run_id: str) -> None:
        watch = self._watches.setdefault(run_id, Watch(self._storage, run_id))
        with watch.looking() as files:  # remembered once the database has heard of them
            found, suspects = sorted(name for _, name in files), self._suspects.get(run_id)
            if not found and not suspects:
                return
            # Unchanged folders are listed once a minute, too. Then the database is opened only if it has changed.
            stamp = self._database.stamps([run_id]).get(run_id)
            state = hash((tuple(found), stamp))
            if suspects or stamp is None or self._settled.get(run_id) != state:
                self._reconcile(run_id)
                self._settled[run_id] = state

    def _reconcile(self, run_id: str) -> None:
        with self._database.branch() as branch:  # closed again: there may be thousands of runs
            self._reconcile_run(branch.run(run_id))

    def _reconcile_run(self, run: Run) -> None:
        run_id = run.id
        known = announced(run, self._topic)  # read before the files: a file announced meanwhile exists
        difference = compare(stored(self._storage, run_id), known)
        overdue = [key for key in difference.unannounced if key in self._suspects.get(run_id, ())]
        if overdue:
            self.monitor.counter("batches_announced").add(publish(run, self._storage, overdue, self._topic))
            log.info("Announced %d batch files of run %s that had no message", len(overdue), run_id)
        self._suspects[run_id] = set(difference.unannounced) - set(overdue)
        self._report(difference.vanished)

    def _abandon_if_silent(self, run_id: str) -> None:
        """Closes a run whose producer has been silent for too long. An unchanged closed run costs almost nothing."""
        wanted, now = self._abandon_after, self._clock()
        if wanted is None or run_id == self._own:
            return
        changed = self._storage.changed_at(run_id)
        if changed is not None and self._closed.get(run_id) == changed:
            return
        if self._storage.read_completion(run_id) is not None:
            self._closed[run_id] = changed
            return
        if changed is not None and now - changed / 1e9 < wanted:
            return
        with self._database.branch() as branch:
            runs = runs_in([branch], run_id)
            silent = silent_seconds(self._storage, run_id, runs, now)
            if silent is not None and silent >= wanted:
                self._abandon(branch, run_id, runs, silent)

    def _abandon(self, database: Database, run_id: str, runs: list[Run], silent: float) -> None:
        known = [ticks for run in runs for ticks in announce_files(run, self._storage, self._topic)]
        end, _ = record_close(self._storage, run_id, cause=Cause.SILENCE, known=known, clock=self._clock)
        self.monitor.counter("runs_abandoned").add()
        log.info("Run %s is %s: its producer was silent for %d seconds", run_id, life_of(end), silent)
        if runs:
            announce_end(destination_of([database], run_id, RunCompleted, RUN_TOPIC).create(), end)

    def _report(self, vanished: list[str]) -> None:
        for key in vanished:
            if key not in self._vanished:
                self._vanished.add(key)
                self.monitor.counter("batches_vanished").add()
                self.monitor.errors.record("BATCH_VANISHED", f"announced, but not in {self._storage.url}", key)
                log.warning("Batch file %s was announced but is not in %s", key, self._storage.url)
