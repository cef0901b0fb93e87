"""Batches straight from storage, shared out by the coordinator: found, claimed with a lease, gaps filled first."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ticklake.coordination.coordinator import Claim, Coordinator, Found, Look
from ticklake.coordination.gaps import PENDING, Open, count, on_grid, ranges_of, subtract
from ticklake.errors import StorageUnavailable, StoredFileMissing
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import Delivery
from ticklake.lake.coverage import covered
from ticklake.monitoring import Monitor
from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.topics.patience import patiently
from ticklake.world import World

log = logging.getLogger(__name__)

# Batches remembered from one listing: enough to make listing rare, little enough to forget about its memory.
_REMEMBERED = 50_000
# How many of them one claim looks through for those that nobody has had.
_PAGE = 500


@dataclass(frozen=True, eq=False)
class ClaimedDelivery(Delivery):
    """A delivery with the claim it is held by."""

    claim: Claim | None = None


class CoordinatedBatches(AbstractContextManager["CoordinatedBatches"]):
    """What the flush loop takes its batches from where there is no topic. Nothing ever waits for a gap."""

    def __init__(
        self,
        coordinator: Coordinator,
        storage: Storage,
        run_id: str,
        monitor: Monitor,
        *,
        poll_interval: float = 1.0,
        gap_warning_timeout_ms: int = 60_000,
    ) -> None:
        self._coordinator, self._storage, self._run_id, self._monitor = coordinator, storage, run_id, monitor
        self._poll_interval, self._gap_timeout_ms = poll_interval, gap_warning_timeout_ms
        self._watch = Watch(storage, run_id)
        self._found: list[Found] = []
        self._reopened = -1
        self._gaps_pending = 0
        self._woken = threading.Event()
        self._unreachable = False
        self.lease = coordinator.lease
        self.exhausted = False
        self.ticks_before = 0
        self.failed: dict[str, str] = {}
        monitor.gauge("gaps_pending", lambda: self._gaps_pending)
        monitor.gauge("batches_found", lambda: len(self._found))

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        deadline = time.monotonic() + timeout
        while True:
            deliveries = self._deliveries(patiently(lambda: self._take(limit)))
            left = deadline - time.monotonic()
            if deliveries or left <= 0 or self._woken.wait(min(left, self._poll_interval)):
                self._woken.clear()
                return deliveries

    def done(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            patiently(lambda: self._coordinator.complete(_claims(deliveries)))

    def fail(self, delivery: Delivery, error: str) -> None:
        (claim,) = _claims([delivery])
        self._fail(claim, error)

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost = set(patiently(lambda: self._coordinator.renew(_claims(deliveries)))) if deliveries else set()
        return [one for one, claim in zip(deliveries, _claims(deliveries), strict=True) if claim in lost]

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            patiently(lambda: self._coordinator.release(_claims(deliveries)))

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def _take(self, limit: int) -> list[Claim]:
        """Claims in the order of need: what others have left, then gaps, then what is new."""
        look = self._coordinator.look()
        self._gaps_pending = look.gaps_pending
        if look.expired and (claims := self._coordinator.take_over(limit)):
            self.exhausted = False
            return claims
        reached = self._search(look)
        while self._found:
            page, rest = self._found[:_PAGE], self._found[_PAGE:]
            claims = self._coordinator.claim(page, limit)
            # What comes before the last one claimed is somebody's by now; if none could be, all of it is.
            self._found = page[page.index(_found(claims[-1])) + 1 :] + rest if claims else rest
            if claims:
                self.exhausted = False
                return claims
        if reached:
            self._give_up_gaps(look)
        self.exhausted = reached and not look.claimed_by_others
        return []

    def _search(self, look: Look) -> bool:
        """Looks through what is new in storage. False where it cannot be reached."""
        if self._found:
            return True
        if look.reopened != self._reopened:
            self._watch.forget()
        try:
            found = self._wanted()
        except OSError as error:
            self._lament(error)
            return False
        self._reopened, self._unreachable = look.reopened, False
        self._found = found
        if len(found) == _REMEMBERED:
            self._watch.forget()
        return True

    def _wanted(self) -> list[Found]:
        """The batches that lie behind the frontier or in a gap: those in pending gaps first, each in tick order."""
        gaps = self._coordinator.gaps()
        wanted = Open(self._coordinator.frontier(), [gap.ticks for gap in gaps])
        searched = Open(None, [gap.ticks for gap in gaps if gap.status == PENDING])
        files = ((ticks, name) for ticks, name in self._watch.look() if wanted.wants(ticks))
        return [Found(name, ticks) for _, ticks, name in heapq.nsmallest(_REMEMBERED, _by_need(files, searched))]

    def _give_up_gaps(self, look: Look) -> None:
        """Only after a search that reached storage and left nothing to claim: what is missing now is not there."""
        if look.oldest_gap_ms is not None and look.oldest_gap_ms >= self._gap_timeout_ms:
            self._coordinator.make_permanent(self._gap_timeout_ms)

    def _lament(self, error: OSError) -> None:
        if not self._unreachable:
            unavailable = StorageUnavailable(storage=self._storage.url, reason=error)
            self._monitor.errors.record("STORAGE_UNAVAILABLE", unavailable)
            log.warning("%s", unavailable)
        self._unreachable = True

    def _deliveries(self, claims: Iterable[Claim]) -> list[Delivery]:
        return [delivery for claim in claims if (delivery := self._delivery(claim)) is not None]

    def _delivery(self, claim: Claim) -> Delivery | None:
        try:
            file = self._storage.batch(f"{self._run_id}/{claim.name}")
            return ClaimedDelivery(file, file.ticks, claim=claim)
        except (OSError, StoredFileMissing) as error:
            if isinstance(error, StoredFileMissing) and self._storage.reachable(self._run_id):
                self._fail(claim, str(error))
            else:
                self.exhausted = False
                patiently(lambda: self._coordinator.release([claim]))
            return None

    def _fail(self, claim: Claim, error: str) -> None:
        self._monitor.errors.record("BATCH_FAILED", error, claim.name)
        log.warning("Batch %s failed: %s", claim.name, error)
        self.failed[f"{self._run_id}/{claim.name}"] = error
        patiently(lambda: self._coordinator.fail(claim, error))


def coordinated(
    database: Database, resources: IndexerResources, kind: type[BatchIndexer], options: IndexerOptions
) -> Callable[[str, Monitor], CoordinatedBatches]:
    """Opens the batches of a run for an indexer of this class, whose instances all share them."""

    def open_batches(run_id: str, monitor: Monitor) -> CoordinatedBatches:
        storage = resources.storage
        step = World.of(storage.read_metadata(run_id)).sampling_interval
        lease = options.claim_timeout
        coordinator = Coordinator(database.run(run_id), kind.__name__, step=step, lease=lease, monitor=monitor)
        if kind.table is not None:
            _believe_the_table(coordinator, resources.lake.directory(run_id, kind.table.name))
        batches = CoordinatedBatches(
            coordinator,
            storage,
            run_id,
            monitor,
            poll_interval=options.poll_interval_ms / 1000,
            gap_warning_timeout_ms=options.gap_warning_timeout_ms,
        )
        batches.ticks_before = count(_completed(coordinator), step)
        return batches

    return open_batches


def _believe_the_table(coordinator: Coordinator, directory: Path) -> None:
    """A table may have been removed or restored since: what it lacks is not done, whatever the coordinator says."""
    done, step = _completed(coordinator), coordinator.step
    if not done:
        return
    ticks = covered(directory).ticks
    missing = subtract([on_grid(one, step) for one in done], ranges_of(ticks[ticks % step == 0], step), step)
    if missing and (names := coordinator.search_again(missing)):
        log.warning("%d batches are done but not in %s: they are indexed again", len(names), directory)


def _completed(coordinator: Coordinator) -> list[TickRange]:
    return [batch.ticks for batch in coordinator.batches() if batch.status == "completed"]


def _by_need(files: Iterable[tuple[TickRange, str]], searched: Open) -> Iterator[tuple[bool, TickRange, str]]:
    for ticks, name in files:
        yield searched.gap_of(ticks) is None, ticks, name


def _claims(deliveries: Sequence[Delivery]) -> list[Claim]:
    return [one.claim for one in deliveries if isinstance(one, ClaimedDelivery) and one.claim is not None]


def _found(claim: Claim) -> Found:
    return Found(claim.name, claim.ticks)
