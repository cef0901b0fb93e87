"""Batches straight from storage, shared out by the coordinator: found, claimed with a lease, gaps filled first."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ticklake.coordination import NO_TABLE, PENDING, WHOLE, Claim, Coordinator, Found, Look, Searched, Short, Target
from ticklake.errors import TickLakeError
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import Delivery, id_at
from ticklake.lake.delta import one_line
from ticklake.lake.empty import joined
from ticklake.lake.errors import DamagedTableFile, StorageUnavailable, TableUnreadable
from ticklake.lake.ledger import Ledger
from ticklake.monitoring import Monitor
from ticklake.storage import Storage, Watch
from ticklake.storage.errors import BadFile, StoredFileMissing
from ticklake.ticks import TickRange, count, merged, on_grid, ranges_of, subtract
from ticklake.topics import Database, retry_while_unavailable
from ticklake.world import World

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

# Batches remembered from one listing: enough to make listing rare, little enough to forget about its memory.
_REMEMBERED = 50_000
# How many of them one claim looks through for those that nobody has had.
_PAGE = 500
# How many names of a listing the database is asked about at a time.
_ASKED = 5_000
# How often a run that goes on is asked whether it has ended.
_END_SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class ClaimedDelivery(Delivery):
    """A delivery with the claim it is held by."""

    claim: Claim | None = None


class CoordinatedBatches(AbstractContextManager["CoordinatedBatches"]):
    """What the flush loop takes its batches from where there is no topic. Nothing ever waits for a gap.

    What is remembered here follows the database: it changes once the database has answered. After an outage nothing is
    taken for granted: claims that are not in hand are given back, and storage is listed again.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        storage: Storage,
        run_id: str,
        monitor: Monitor,
        *,
        poll_interval: float = 1.0,
        gap_warning_timeout_ms: int = 60_000,
        until_caught_up: bool = False,
    ) -> None:
        """With `until_caught_up`, somebody waits for `exhausted`: then no listing is put off to save time."""
        self._coordinator, self._storage, self._run_id, self._monitor = coordinator, storage, run_id, monitor
        self._poll_interval, self._gap_timeout_ms = poll_interval, gap_warning_timeout_ms
        self._until_caught_up = until_caught_up
        self._watch = Watch(storage, run_id)
        self._in_hand: set[Claim] = set()
        self._doubtful = False
        self._found: list[Found] = []
        self._gaps_pending = 0
        self._end_known = False
        self._end_asked = float("-inf")
        self._woken = threading.Event()
        self._unreachable = False
        self.lease = coordinator.lease
        self.exhausted = False
        self.ticks_before = 0
        self.failed: dict[str, str] = {}
        # Files that are done, as far as anybody knows: the file of the table that would tell is damaged.
        self.untold: dict[str, str] = {}
        monitor.gauge("gaps_pending", lambda: self._gaps_pending)
        monitor.gauge("batches_found", lambda: len(self._found))

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        deadline = time.monotonic() + timeout
        while True:
            deliveries = self._next(limit)
            left = deadline - time.monotonic()
            if deliveries or left <= 0 or self._woken.wait(min(left, self._poll_interval)):
                self._woken.clear()
                return deliveries

    def done(self, deliveries: Sequence[Delivery]) -> None:
        claims = _claims(deliveries)
        with self._letting_go(claims):
            short = {claim.name: self._short(one) for one, claim in zip(deliveries, claims, strict=True)}
            if claims and self._insist(lambda: self._coordinator.complete(claims, short)) < len(claims):
                self._doubt()
        for delivery in deliveries:
            self.failed.pop(delivery.file.key, None)
            self.untold.pop(delivery.file.key, None)

    def fail(self, delivery: Delivery, error: str) -> None:
        (claim,) = _claims([delivery])
        with self._letting_go([claim]):
            self._fail(claim, error)

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost = set(self._insist(lambda: self._coordinator.renew(_claims(deliveries)))) if deliveries else set()
        if lost:
            self._in_hand -= lost
            self._doubt()
        return [one for one, claim in zip(deliveries, _claims(deliveries), strict=True) if claim in lost]

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        claims = _claims(deliveries)
        with self._letting_go(claims):
            if claims:
                self._insist(lambda: self._coordinator.release(claims))

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def _next(self, limit: int) -> list[Delivery]:
        try:
            deliveries = self._deliveries(self._insist(lambda: self._take(limit)))
            self._in_hand.update(_claims(deliveries))
        except BaseException:
            self._doubt()  # it may have claimed what nobody will hear of
            raise
        return deliveries

    def _take(self, limit: int) -> list[Claim]:
        """Claims in the order of need: what others have left, then gaps, then what is new."""
        self._settle_doubts()
        look = self._coordinator.look()
        self._gaps_pending = look.gaps_pending
        if look.expired and (claims := self._coordinator.take_over(limit)):
            self.exhausted = False
            return claims
        end = self._read_end()  # before the files: what a run has written before its end is there by now
        looked = self._search(thoroughly=self._until_caught_up and not look.claimed_by_others)
        while self._found:
            page, rest = self._found[:_PAGE], self._found[_PAGE:]
            claims = self._coordinator.claim(page, limit)
            # What comes before the last one claimed is somebody's by now; if none could be, all of it is.
            self._found = page[page.index(_found(claims[-1])) + 1 :] + rest if claims else rest
            if claims:
                self.exhausted = False
                return claims
        saw_all = looked and self._watch.whole
        if looked and end is not None:
            self._heed_the_end(end)
        if saw_all:
            self._give_up_gaps(look)
        exhausted = saw_all and not self._coordinator.claimed_outside(self._in_hand)
        self.exhausted = exhausted and (self.exhausted or self._heed_failures())
        return []

    def _search(self, *, thoroughly: bool) -> bool:
        """Looks through what is new in storage. False if it cannot be reached, or if files are left from the last look.

        Thoroughly: lists every folder.
        """
        if self._found:
            return False
        if thoroughly:
            self._watch.forget()
        try:
            found = self._wanted()
        except OSError as error:
            self._lament(error)
            return False
        self._unreachable = False
        self._found = found
        if len(found) == _REMEMBERED:
            self._watch.forget()
        return True

    def _wanted(self) -> list[Found]:
        """The files that nobody has claimed yet: those in pending gaps first, each in tick order."""
        searched = Searched(gap.ticks for gap in self._coordinator.gaps() if gap.status == PENDING)
        with self._watch.looking() as files:
            first = heapq.nsmallest(_REMEMBERED, _by_need(self._new(files), searched))
        return [Found(name, ticks) for _, ticks, name in first]

    def _new(self, files: Iterator[tuple[TickRange, str]]) -> Iterator[tuple[TickRange, str]]:
        """By name and not by ticks: names overlap, and one that promises too much must not hide other files."""
        while page := list(islice(files, _ASKED)):
            unknown = self._coordinator.unknown([name for _, name in page])
            yield from (file for file in page if file[1] in unknown)

    def _read_end(self) -> int | None:
        """The last tick of the run, if it has ended and that is not recorded yet."""
        now = time.monotonic()
        if self._found or self._end_known or now < self._end_asked + _END_SECONDS:
            return None
        try:
            end = self._storage.read_completion(self._run_id)
        except OSError as error:
            self._lament(error)
            return None
        except BadFile as error:
            self._monitor.errors.record("BAD_COMPLETION", error)
            log.warning("The end of run %s is not known: %s", self._run_id, error)
            self._end_known = True
            return None
        if end is None:
            self._end_asked = now
        return None if end is None else end.last_tick

    def _heed_the_end(self, last_tick: int) -> None:
        """Once every file is claimed: what is missing between them and the end of the run is a gap, too."""
        self._coordinator.expect_end(last_tick)
        self._end_known = True
        self._gaps_pending = self._coordinator.look().gaps_pending

    def _heed_failures(self) -> bool:
        """Others may have failed files, or completed failed ones. False if storage cannot be reached."""
        try:
            failed = failed_files(self._coordinator, self._storage, self._run_id, named=self.failed)
            self.failed = self.untold | failed
        except OSError as error:
            self._lament(error)
            return False
        return True

    def _give_up_gaps(self, look: Look) -> None:
        """Only after a look that saw every file and left nothing to claim: what is missing now is not there."""
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
                self._insist(lambda: self._coordinator.release([claim]))
            return None

    def _short(self, delivery: Delivery) -> Short:
        """Which of the ticks that its name promises a file lacks, as far as anybody looked."""
        step, there = self._coordinator.step, joined(delivery.there)
        has = ranges_of(there[there % step == 0], step)
        lacks = subtract([on_grid(delivery.ticks, step)], has, step) if delivery.there else []
        if not lacks:
            return WHOLE
        reason = f"it lacks ticks that its name promises: {', '.join(map(str, lacks[:5]))}{', …' * (len(lacks) > 5)}"
        self._monitor.errors.record("TICKS_MISSING", reason, delivery.file.key)
        log.warning("Batch %s: %s", delivery.file.key, reason)
        try:
            # One that was replaced since it was read is read again at the next start. The stamp first: if it is of the
            # file that was read, that is so whenever the file is replaced.
            stamp = self._storage.stamp(delivery.file.key) or ""
            is_same = self._storage.batch(delivery.file.key).size == delivery.file.size
            return Short(tuple(lacks), stamp if is_same else "")
        except (OSError, StoredFileMissing):
            return Short(tuple(lacks))

    def _insist(self, act: Callable[[], _Result]) -> _Result:
        return retry_while_unavailable(act, on_error=self._unavailable)

    def _unavailable(self, error: TickLakeError) -> None:
        self._doubt()
        self._monitor.errors.record("DATABASE_UNAVAILABLE", error)

    def _doubt(self) -> None:
        """Claims may be in the database that nobody here knows of, or be known here and undone in the database."""
        self._doubtful, self.exhausted = True, False

    def _settle_doubts(self) -> None:
        if self._doubtful:
            self._coordinator.release_unknown(self._in_hand)
            self._watch.forget()
            self._doubtful = False

    @contextmanager
    def _letting_go(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Whatever happens, nobody works on these any more. Only then may a poll give them back."""
        try:
            yield
        finally:
            self._in_hand.difference_update(claims)

    def _fail(self, claim: Claim, error: str) -> None:
        self._monitor.errors.record("BATCH_FAILED", error, claim.name)
        log.warning("Batch %s failed: %s", claim.name, error)
        self.failed[f"{self._run_id}/{claim.name}"] = error
        self._insist(lambda: self._coordinator.fail(claim, error))


def coordinated(
    database: Database, resources: IndexerResources, kind: type[BatchIndexer], options: IndexerOptions
) -> Callable[[str, Monitor], CoordinatedBatches]:
    """Opens the batches of a run for an indexer of this class, whose instances all share them."""

    def open_batches(run_id: str, monitor: Monitor) -> CoordinatedBatches:
        storage = resources.storage
        step = World.of(storage.read_metadata(run_id)).sampling_interval
        lease = options.claim_timeout
        run, table = database.run(run_id), _target(resources, kind, run_id)
        coordinator = Coordinator(run, kind.__name__, step=step, table=table, lease=lease, monitor=monitor)
        coordinator.register(id_at)
        damaged: list[DamagedTableFile] = []
        if kind.table is not None:
            ledger, changed = kind.ledger(resources.tables, run_id), changed_files(coordinator, storage, run_id)
            damaged = _believe_the_table(coordinator, ledger, changed, monitor)
        batches = CoordinatedBatches(
            coordinator,
            storage,
            run_id,
            monitor,
            poll_interval=options.poll_interval_ms / 1000,
            gap_warning_timeout_ms=options.gap_warning_timeout_ms,
            until_caught_up=options.until_caught_up,
        )
        batches.ticks_before = count(_completed(coordinator), step)
        batches.untold = _untold(coordinator, run_id, damaged)
        batches.failed = batches.untold | failed_files(coordinator, storage, run_id)
        return batches

    return open_batches


def _target(resources: IndexerResources, kind: type[BatchIndexer], run_id: str) -> Target:
    if kind.table is None:
        return NO_TABLE
    ledger = kind.ledger(resources.tables, run_id)
    return Target.at(ledger.id, ledger.directory)


def failed_files(
    coordinator: Coordinator, storage: Storage, run_id: str, named: Collection[str] = ()
) -> dict[str, str]:
    """Files that failed, whoever tried them, and are not tried again by themselves: those still there, or `named`."""
    failed = {f"{run_id}/{batch.name}": batch.error for batch in coordinator.failed()}
    return {key: error for key, error in failed.items() if key in named or storage.exists(key)}


def changed_files(coordinator: Coordinator, storage: Storage, run_id: str) -> set[str]:
    """The names of files that lacked ticks when they were read and are others by now."""
    short = {batch.name: batch.short.stamp for batch in coordinator.short()}
    return {name for name, stamp in short.items() if storage.stamp(f"{run_id}/{name}") not in (None, stamp)}


def _believe_the_table(
    coordinator: Coordinator, ledger: Ledger, changed: Collection[str], monitor: Monitor
) -> list[DamagedTableFile]:
    """A table may have been removed or restored since: what it lacks is not done, whatever the coordinator says.

    Returns the damaged files that stand in the way: what they hold cannot be told, and all else can.
    """
    missing, damaged = _lacks(ledger, _completed(coordinator, changed), coordinator.step)
    for error in damaged:
        monitor.errors.record("TABLE_DAMAGED", error)
        log.warning("%s", error)
    if missing and (names := coordinator.search_again(missing, changed)):
        monitor.errors.record("TABLE_LACKS_BATCHES", f"{len(names)} batches are indexed again", str(ledger.directory))
        log.warning("%d batches are done but not in %s: they are indexed again", len(names), ledger.directory)
    return damaged


def _lacks(ledger: Ledger, wanted: Iterable[TickRange], step: int) -> tuple[list[TickRange], list[DamagedTableFile]]:
    """Which of these ticks a table lacks, and its damaged files: ticks within those are left out."""
    asked = merged((on_grid(one, step) for one in wanted), step)
    damaged: list[DamagedTableFile] = []
    while True:
        try:
            there = ledger.present(asked)
            return subtract(asked, ranges_of(there[there % step == 0], step), step), damaged
        except DamagedTableFile as error:
            damaged.append(error)
            # In steps of 1, whatever is sampled: nothing that is left may touch the file.
            left = subtract(asked, [TickRange(error.first, error.last)], 1)
            asked = [inside for one in left if (inside := on_grid(one, step))]
        except OSError as error:
            raise TableUnreadable(table=ledger.directory, reason=one_line(error)) from error


def _untold(coordinator: Coordinator, run_id: str, damaged: Iterable[DamagedTableFile]) -> dict[str, str]:
    """The completed files whose ticks may be in a damaged file of the table, and its error, which says what to do."""
    return {
        f"{run_id}/{batch.name}": str(error)
        for error in damaged
        for batch in coordinator.batches(TickRange(error.first, error.last))
        if batch.status == "completed"
    }


def _completed(coordinator: Coordinator, changed: Collection[str] = ()) -> list[TickRange]:
    """What completed files have; of those that have changed, all that they may have."""
    done = [batch for batch in coordinator.batches() if batch.status == "completed"]
    return [part for one in done for part in ([one.ticks] if one.name in changed else one.has(coordinator.step))]


def _by_need(files: Iterable[tuple[TickRange, str]], searched: Searched) -> Iterator[tuple[bool, TickRange, str]]:
    for ticks, name in files:
        yield searched.gap_of(ticks) is None, ticks, name


def _claims(deliveries: Sequence[Delivery]) -> list[Claim]:
    return [one.claim for one in deliveries if isinstance(one, ClaimedDelivery) and one.claim is not None]


def _found(claim: Claim) -> Found:
    return Found(claim.name, claim.ticks)
