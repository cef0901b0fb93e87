"""What the records of a coordinator and a table disagree about: files to read again, and files that failed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from ticklake.coordination import Coordinator
from ticklake.lake.delta import one_line
from ticklake.lake.errors import DamagedTableFile, TableUnreadable
from ticklake.lake.ledger import Ledger
from ticklake.monitoring import Monitor
from ticklake.storage import Storage, grid_of, stretches_of
from ticklake.ticks import TickRange, merged, on_grid, ranges_of, subtract

log = logging.getLogger(__name__)


def failed_files(
    coordinator: Coordinator, storage: Storage, run_id: str, known: Collection[str] = ()
) -> dict[str, str]:
    """Returns the failed files of all indexers and their errors: those that still exist, and those in `known`."""
    failed = {f"{run_id}/{batch.name}": batch.error for batch in coordinator.failed()}
    return {key: error for key, error in failed.items() if key in known or storage.exists(key)}


def changed_files(coordinator: Coordinator, storage: Storage, run_id: str) -> set[str]:
    """Returns the names of incomplete files that have changed since they were read."""
    stamps = {batch.name: batch.missing.stamp for batch in coordinator.incomplete()}
    return {name for name, stamp in stamps.items() if storage.stamp(f"{run_id}/{name}") not in (None, stamp)}


def reopen_missing(
    coordinator: Coordinator, ledger: Ledger, storage: Storage, run_id: str, changed: Collection[str], monitor: Monitor
) -> list[DamagedTableFile]:
    """Reopens completed batches whose ticks the table lacks, because it was removed or restored from an old copy.

    Returns the damaged files of the table. Ticks within their ranges are not checked.
    """
    missing, damaged = _missing_in(ledger, completed_ticks(coordinator, changed), coordinator.step)
    for error in damaged:
        monitor.errors.record("TABLE_DAMAGED", error)
        log.warning("%s", error)
    missing = _recorded(missing, coordinator, storage, run_id) if missing else []
    if missing and (names := coordinator.reopen_missing(missing, changed)):
        monitor.errors.record("TABLE_LACKS_BATCHES", f"{len(names)} batches are indexed again", str(ledger.location))
        log.warning("%d batches are completed but not in %s: they are indexed again", len(names), ledger.location)
    return damaged


def _recorded(missing: Sequence[TickRange], coordinator: Coordinator, storage: Storage, run_id: str) -> list[TickRange]:
    """Returns missing ticks without those that a file has never had, because it was sampled more coarsely."""
    names = {one.name for ticks in missing for one in coordinator.batches(ticks) if one.status == "completed"}
    keys = [key for name in names if storage.exists(key := f"{run_id}/{name}")]
    chunks = [stretches_of(storage, storage.batch(key), coordinator.step) for key in keys]
    coarse = [one for part in chunks for one in part if one.step != coordinator.step]
    return grid_of([coarse], coordinator.step).merged(missing) if coarse else list(missing)


def _missing_in(
    ledger: Ledger, wanted: Iterable[TickRange], step: int
) -> tuple[list[TickRange], list[DamagedTableFile]]:
    """Returns which of these ticks a table lacks, and its damaged files. Ticks within damaged files are skipped."""
    asked = merged((on_grid(one, step) for one in wanted), step)
    damaged: list[DamagedTableFile] = []
    while True:
        try:
            present = ledger.present(asked)
            return subtract(asked, ranges_of(present[present % step == 0], step), step), damaged
        except DamagedTableFile as error:
            damaged.append(error)
            # Step 1, not the sampling interval: no remaining range may touch the damaged file.
            left = subtract(asked, [TickRange(error.first, error.last)], 1)
            asked = [inside for one in left if (inside := on_grid(one, step))]
        except OSError as error:
            raise TableUnreadable(table=ledger.location, reason=one_line(error)) from error


def unverified_files(coordinator: Coordinator, run_id: str, damaged: Iterable[DamagedTableFile]) -> dict[str, str]:
    """Returns the completed files whose ticks may be in a damaged file of the table, with its error."""
    return {
        f"{run_id}/{batch.name}": str(error)
        for error in damaged
        for batch in coordinator.batches(TickRange(error.first, error.last))
        if batch.status == "completed"
    }


def completed_ticks(coordinator: Coordinator, changed: Collection[str] = ()) -> list[TickRange]:
    """Returns the ticks of completed files; for changed files, all ticks that their names promise."""
    done = [batch for batch in coordinator.batches() if batch.status == "completed"]
    return [
        part for one in done for part in ([one.ticks] if one.name in changed else one.present_ticks(coordinator.step))
    ]
