"""Reconciliation in the background: announces batch files that were written but not announced."""

from __future__ import annotations

import logging
from typing import ClassVar

from ticklake.coordination import announced, compare, publish, stored
from ticklake.defaults import BATCH_TOPIC
from ticklake.errors import TickLakeError
from ticklake.services.base import Service
from ticklake.storage import Storage, Watch
from ticklake.topics import Database

log = logging.getLogger(__name__)


class ReconciliationService(Service):
    """Reconciles every run of a storage, or one run.

    A file is announced if two checks in a row find it unannounced: after the first, its writer may still announce it.
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
        name: str = "reconciliation-service",
    ) -> None:
        super().__init__(name)
        self._database, self._storage, self._interval, self._topic = database, storage, interval, topic
        self._only = run_id
        self._watches: dict[str, Watch] = {}
        self._suspects: dict[str, set[str]] = {}
        self._vanished: set[str] = set()

    def run(self) -> None:
        while self.proceed():
            self.reconcile_all()
            self.wait(self._interval)

    def reconcile_all(self) -> None:
        """Checks all runs once. An unchanged run costs almost nothing."""
        for run_id in [self._only] if self._only else self._storage.runs():
            try:
                self._reconcile_if_changed(run_id)
            except (TickLakeError, OSError) as error:
                self.monitor.errors.record("RECONCILIATION_FAILED", error, run_id)
                log.warning("Could not reconcile run %s: %s", run_id, error)

    def _reconcile_if_changed(self, run_id: str) -> None:
        watch = self._watches.setdefault(run_id, Watch(self._storage, run_id))
        with watch.looking() as files:  # remembered once the database has heard of them
            if sum(1 for _ in files) or self._suspects.get(run_id):
                self._reconcile(run_id)

    def _reconcile(self, run_id: str) -> None:
        run = self._database.run(run_id)
        known = announced(run, self._topic)  # read before the files: a file announced meanwhile exists
        difference = compare(stored(self._storage, run_id), known)
        overdue = [key for key in difference.unannounced if key in self._suspects.get(run_id, ())]
        if overdue:
            self.monitor.counter("batches_announced").add(publish(run, self._storage, overdue, self._topic))
            log.info("Announced %d batch files of run %s that had no message", len(overdue), run_id)
        self._suspects[run_id] = set(difference.unannounced) - set(overdue)
        self._report(difference.vanished)

    def _report(self, vanished: list[str]) -> None:
        for key in vanished:
            if key not in self._vanished:
                self._vanished.add(key)
                self.monitor.counter("batches_vanished").add()
                self.monitor.errors.record("BATCH_VANISHED", f"announced, but not in {self._storage.url}", key)
                log.warning("Batch file %s was announced but is not in %s", key, self._storage.url)
