"""Batches from the storage, shared among indexers by a coordinator. Files that fill gaps come first."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ticklake.coordination import (
    LOST_OFTEN,
    NOTHING_MISSING,
    PENDING,
    Claim,
    Coordinator,
    CoordinatorStatus,
    FoundFile,
    GapIndex,
    MissingTicks,
)
from ticklake.errors import TickLakeError
from ticklake.indexers.base import IndexerOptions
from ticklake.indexers.batches import Delivery
from ticklake.indexers.reopening import failed_files
from ticklake.indexers.suspects import Suspects
from ticklake.lake.empty import joined
from ticklake.lake.errors import StorageUnavailable
from ticklake.lives import Life, life_of
from ticklake.monitoring import Monitor
from ticklake.storage import Storage, Watch, stretches_of
from ticklake.storage.errors import BadFile, StoredFileMissing
from ticklake.ticks import TickRange, on_grid, ranges_of, subtract
from ticklake.topics import retry_while_unavailable

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

# Files kept from one listing: enough to list rarely, few enough for memory not to matter.
_MAX_FOUND = 50_000
# How many of them one claim tries.
_CLAIM_PAGE = 500
# How many names of a listing one query checks.
_QUERY_PAGE = 5_000
# How often to check whether the run has ended.
_END_SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class ClaimedDelivery(Delivery):
    """A delivery with its claim."""

    claim: Claim | None = None


class CoordinatedBatches(AbstractContextManager["CoordinatedBatches"]):
    """A source of batches without a topic. It never waits for a gap to be filled.

    The state here changes only after the database has answered. After an outage, claims in the database that are not
    known here are released, and the storage is listed again.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        storage: Storage,
        run_id: str,
        monitor: Monitor,
        *,
        poll_interval: float = 1.0,
        gap_warning_timeout_ms: int = IndexerOptions.gap_warning_timeout_ms,
        until_caught_up: bool = False,
    ) -> None:
        """With `until_caught_up`, all folders are listed each time, so that `exhausted` becomes true early."""
        self._coordinator, self._storage, self._run_id, self._monitor = coordinator, storage, run_id, monitor
        self._poll_interval, self._gap_timeout_ms = poll_interval, gap_warning_timeout_ms
        self._until_caught_up = until_caught_up
        self._watch = Watch(storage, run_id)
        self._held: set[Claim] = set()
        self._uncertain = False
        self._found: list[FoundFile] = []
        self._suspects = Suspects(monitor)
        self._gaps_pending = 0
        self._recorded: Life | None = None
        self._bad_end = ""
        self._end_checked = float("-inf")
        self._woken = threading.Event()
        self._unreachable = False
        self.lease = coordinator.lease
        self.exhausted = False
        self.ticks_before = 0
        self.failed: dict[str, str] = {}
        # Completed files that cannot be verified, because a file of the table is damaged.
        self.unverified: dict[str, str] = {}
        monitor.gauge("gaps_pending", lambda: self._gaps_pending)
        monitor.gauge("batches_found", lambda: len(self._found))

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        deadline = time.monotonic() + timeout
        while True:
            deliveries = self._claim_deliveries(limit)
            left = deadline - time.monotonic()
            if deliveries or left <= 0 or self._woken.wait(min(left, self._poll_interval)):
                self._woken.clear()
                return deliveries

    def done(self, deliveries: Sequence[Delivery]) -> None:
        claims = _claims(deliveries)
        with self._removing_held(claims):
            missing = {claim.name: self._missing(one) for one, claim in zip(deliveries, claims, strict=True)}
            if claims and self._call_database(lambda: self._coordinator.complete(claims, missing)) < len(claims):
                self._mark_uncertain()
        for delivery in deliveries:
            self.failed.pop(delivery.file.key, None)
            self.unverified.pop(delivery.file.key, None)

    def fail(self, delivery: Delivery, error: str) -> None:
        (claim,) = _claims([delivery])
        with self._removing_held([claim]):
            self._fail(claim, error)

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost = set(self._call_database(lambda: self._coordinator.renew(_claims(deliveries)))) if deliveries else set()
        if lost:
            self._held -= lost
            self._mark_uncertain()
        return [one for one, claim in zip(deliveries, _claims(deliveries), strict=True) if claim in lost]

    def release(self, deliveries: Sequence[Delivery]) -> None:
        claims = _claims(deliveries)
        with self._removing_held(claims):
            if claims:
                self._call_database(lambda: self._coordinator.release(claims))

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def _claim_deliveries(self, limit: int) -> list[Delivery]:
        try:
            deliveries = self._deliveries(self._call_database(lambda: self._claim(limit)))
            self._held.update(_claims(deliveries))
        except BaseException:
            self._mark_uncertain()  # the database may have claims that are not known here
            raise
        return deliveries

    def _claim(self, limit: int) -> list[Claim]:
        """Claims expired batches first, then files in gaps, then new files."""
        self._resolve_uncertainty()
        status = self._coordinator.status()
        self._gaps_pending = status.gaps_pending
        if status.expired and (claims := self._coordinator.take_over(limit, self._is_due)):
            self.exhausted = False
            return claims
        end = self._read_end()  # before the listing, which then includes all files of an ended run
        listed = self._list_files(list_all=self._until_caught_up and not status.claimed_by_others)
        while self._found:
            page, rest = self._found[:_CLAIM_PAGE], self._found[_CLAIM_PAGE:]
            claims = self._coordinator.claim(page, limit)
            # All files up to the last claimed one are claimed by now, or the whole page if none could be claimed.
            self._found = page[page.index(_found(claims[-1])) + 1 :] + rest if claims else rest
            if claims:
                self.exhausted = False
                return claims
        listed_all = listed and self._watch.whole
        if listed and end is not None:
            self._record_end(end)
        if listed_all:
            self._make_old_gaps_permanent(status)
        exhausted = listed_all and not self._coordinator.claimed_except(self._held)
        self.exhausted = exhausted and (self.exhausted or self._refresh_failed())
        return []

    def _is_due(self, lost: int) -> bool:
        return not self._suspects.seconds_until_try(lost - LOST_OFTEN)

    def _list_files(self, *, list_all: bool) -> bool:
        """Lists the changed folders of the storage; with `list_all`, every folder.

        Returns False if the storage cannot be reached, or if files of the last listing are left.
        """
        if self._found:
            return False
        if list_all:
            self._watch.forget()
        try:
            found = self._unclaimed_files()
        except OSError as error:
            self._report_unreachable(error)
            return False
        self._unreachable = False
        self._found = found
        if len(found) == _MAX_FOUND:
            self._watch.forget()
        return True

    def _unclaimed_files(self) -> list[FoundFile]:
        """Returns the files that were never claimed, in tick order, those in pending gaps first."""
        pending = GapIndex(gap.ticks for gap in self._coordinator.gaps() if gap.status == PENDING)
        with self._watch.looking() as files:
            first = heapq.nsmallest(_MAX_FOUND, _by_priority(self._never_claimed(files), pending))
        return [FoundFile(name, ticks) for _, ticks, name in first]

    def _never_claimed(self, files: Iterator[tuple[TickRange, str]]) -> Iterator[tuple[TickRange, str]]:
        """Filters files by name, not by ticks: a name that promises too many ticks must not hide other files."""
        while page := list(islice(files, _QUERY_PAGE)):
            names = self._coordinator.never_claimed([name for _, name in page])
            yield from (file for file in page if file[1] in names)

    def _read_end(self) -> Life | None:
        """Returns the life of the run if it is not recorded here.

        It is read again from time to time, because a run that was closed after a silence may go on.
        """
        if self._found or time.monotonic() < self._end_checked + _END_SECONDS:
            return None
        try:
            end = self._storage.read_completion(self._run_id)
        except OSError as error:
            self._report_unreachable(error)
            return None
        except BadFile as error:
            self._report_bad_end(error)
            self._end_checked = time.monotonic()
            return None
        self._bad_end = ""
        life = life_of(end)
        if life == self._recorded:
            self._end_checked = time.monotonic()
            return None
        return life

    def _report_bad_end(self, error: BadFile) -> None:
        """Reports an end that cannot be read, once. It may be repaired, so it is read again from time to time."""
        if str(error) != self._bad_end:
            self._monitor.errors.record("BAD_COMPLETION", error)
            log.warning("The end of run %s is not known: %s", self._run_id, error)
        self._bad_end = str(error)

    def _record_end(self, life: Life) -> None:
        """Records the end of the run once every file is claimed. Missing ticks before the end become gaps.

        Reads it again afterwards: another indexer may have recorded a newer one meanwhile, which this has replaced.
        """
        newest: Life | None = life
        while newest is not None:
            self._coordinator.record_end(newest.last_tick, newest.never_written)
            self._recorded = newest
            newest = self._read_end()
        self._gaps_pending = self._coordinator.status().gaps_pending

    def _refresh_failed(self) -> bool:
        """Reads the failed files, which others may have changed. Returns False if the storage cannot be reached."""
        try:
            failed = failed_files(self._coordinator, self._storage, self._run_id, known=self.failed)
            self.failed = self.unverified | failed
        except OSError as error:
            self._report_unreachable(error)
            return False
        return True

    def _make_old_gaps_permanent(self, status: CoordinatorStatus) -> None:
        """Makes old gaps permanent. Only called after a full listing that left nothing to claim."""
        if status.oldest_gap_ms is not None and status.oldest_gap_ms >= self._gap_timeout_ms:
            self._coordinator.make_permanent(self._gap_timeout_ms)

    def _report_unreachable(self, error: OSError) -> None:
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
            if claim.is_suspect:
                self._suspects.report(file.key, claim.lost - LOST_OFTEN, claim.version)
            return ClaimedDelivery(file, file.ticks, claim=claim, alone=claim.is_suspect)
        except (OSError, StoredFileMissing) as error:
            if isinstance(error, StoredFileMissing) and self._storage.reachable(self._run_id):
                self._fail(claim, str(error))
            else:
                self.exhausted = False
                self._call_database(lambda: self._coordinator.release([claim]))
            return None

    def _missing(self, delivery: Delivery) -> MissingTicks:
        """Returns the ticks that a file lacks although its name promises them."""
        step, present = self._coordinator.step, joined(delivery.present)
        found = ranges_of(present[present % step == 0], step)
        lacks = subtract([on_grid(delivery.ticks, step)], found, step) if delivery.present else []
        reach: int | None = None
        if lacks or delivery.ticks.start == delivery.ticks.end:
            # Its chunks may have been sampled more coarsely than the run.
            chunks = stretches_of(self._storage, delivery.file, step)
            lacks = subtract(lacks, [one.reach for one in chunks if one.step != step], step)
            reach = on_grid(chunks[-1].reach, step).end if chunks[-1].step > step else None
        if not lacks:
            return NOTHING_MISSING._replace(reach=reach)
        reason = f"it lacks ticks that its name promises: {', '.join(map(str, lacks[:5]))}{', …' * (len(lacks) > 5)}"
        self._monitor.errors.record("TICKS_MISSING", reason, delivery.file.key)
        log.warning("Batch %s: %s", delivery.file.key, reason)
        try:
            # A file that is replaced after it was read is read again at the next start. Read the stamp first: if the
            # size is unchanged afterwards, the stamp belongs to the file that was read.
            stamp = self._storage.stamp(delivery.file.key) or ""
            is_same = self._storage.batch(delivery.file.key).size == delivery.file.size
            return MissingTicks(tuple(lacks), stamp if is_same else "", reach)
        except (OSError, StoredFileMissing):
            return MissingTicks(tuple(lacks), reach=reach)

    def _call_database(self, act: Callable[[], _Result]) -> _Result:
        return retry_while_unavailable(act, on_error=self._unavailable)

    def _unavailable(self, error: TickLakeError) -> None:
        self._mark_uncertain()
        self._monitor.errors.record("DATABASE_UNAVAILABLE", error)

    def _mark_uncertain(self) -> None:
        """Records that the claims here and in the database may differ."""
        self._uncertain, self.exhausted = True, False

    def _resolve_uncertainty(self) -> None:
        if self._uncertain:
            self._coordinator.release_except(self._held)
            self._watch.forget()
            self._uncertain = False

    @contextmanager
    def _removing_held(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Removes claims from the held ones at the end, even after an error. Only then may a poll release them."""
        try:
            yield
        finally:
            self._held.difference_update(claims)

    def _fail(self, claim: Claim, error: str) -> None:
        self._monitor.errors.record("BATCH_FAILED", error, claim.name)
        log.warning("Batch %s failed: %s", claim.name, error)
        self.failed[f"{self._run_id}/{claim.name}"] = error
        self._call_database(lambda: self._coordinator.fail(claim, error))


def _by_priority(files: Iterable[tuple[TickRange, str]], pending: GapIndex) -> Iterator[tuple[bool, TickRange, str]]:
    for ticks, name in files:
        yield pending.gap_of(ticks) is None, ticks, name


def _claims(deliveries: Sequence[Delivery]) -> list[Claim]:
    return [one.claim for one in deliveries if isinstance(one, ClaimedDelivery) and one.claim is not None]


def _found(claim: Claim) -> FoundFile:
    return FoundFile(claim.name, claim.ticks)
