"""The coordinator: shares batch files among indexers, and records the frontier and the gaps."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from ticklake import defaults
from ticklake.checks.numbers import check_count, check_seconds
from ticklake.coordination.claims import LOST_OFTEN, Batch, Claim, CoordinatorStatus, FoundFile
from ticklake.coordination.errors import BatchAlreadyClaimedError, SamplingIntervalCorrected, TableCopied
from ticklake.coordination.gap_records import ALL_TICKS, GapRecords, read_batch, read_gap
from ticklake.coordination.gaps import (
    NOTHING_MISSING,
    PENDING,
    End,
    Gap,
    MissingTicks,
)
from ticklake.coordination.target import NO_TABLE, IdAt, Target
from ticklake.database.names import check_name
from ticklake.database.schema import Statements
from ticklake.monitoring import Monitor
from ticklake.text import storable
from ticklake.ticks import TickRange
from ticklake.topics import Run
from ticklake.topics.reader import new_consumer_id

PACKAGE = "ticklake.coordination"

log = logging.getLogger(__name__)


_COUNTERS = ("claim_attempts", "claim_successes", "batches_claimed", "batches_completed", "batches_failed",
             "stuck_batches_reassigned", "gaps_released", "permanent_gaps_detected")  # fmt: skip
_LATENCIES = ("try_claim_latency", "mark_completed_latency", "mark_failed_latency", "mark_gap_pending_latency",
              "has_gap_before_latency", "release_gap_pending_latency")  # fmt: skip


class Coordinator:
    """Shares the batch files of one run among all indexers that fill one table, in any number of processes.

    A file is claimed by its name and not by its ticks, because names can overlap or be wrong. Gaps and the frontier
    record what is missing; they never prevent a claim. They change under one lock, in the transaction of the claim.
    The frontier is the last tick in the names of all batches that have not failed, or the end of the run. Every tick up
    to the frontier is in a gap or in a batch that has not failed and is not known to miss it.
    """

    def __init__(
        self,
        run: Run,
        indexer_class: str,
        *,
        step: int,
        first_tick: int = 0,
        table: Target = NO_TABLE,
        lease: float = defaults.CLAIM_TIMEOUT_SECONDS,
        instance: str | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        check_count("sampling_interval", step, least=1)
        check_seconds("claim_timeout", lease, above_zero=True)
        self.indexer_class = check_name("indexer class", indexer_class)
        self.step, self.lease = step, lease
        self._step_recorded = False
        self._table = table
        self._key = {"indexer_class": self.indexer_class, "table_id": table.table_id}
        self._run = run
        self._instance = instance or new_consumer_id()
        self._monitor = monitor or Monitor(indexer_class)
        self._monitor.gauge("claim_success_rate", self._success_rate)
        for counter in _COUNTERS:
            self._monitor.counter(counter)
        for latency in _LATENCIES:
            self._monitor.percentiles(latency)
        self._gaps = GapRecords(self._key, step, first_tick, self._monitor)
        run.prepare(PACKAGE)

    def register(self, id_at: IdAt) -> None:
        """Records the location of the table, before the first claim. Raises `TableCopied` if its original still exists.

        Records from before tables had ids become this table's. Records of a previous table at this location are
        deleted, because that table no longer exists. Records on the grid of another sampling interval are put on the
        grid of this one, also without a table.
        """
        registered = not self._table.table_id
        if registered:
            with self._locked():
                pass
        while not registered:
            with self._run.reading() as transaction:
                known = self._registered(transaction.sql(PACKAGE))
            # Outside of a transaction: a slow file system must not hold the database lock.
            if self._table.is_copy_of(known, id_at):
                raise TableCopied(table=self._table.location, original=known.place, run_id=self._run.id)
            with self._locked() as (sql, _):
                registered = self._registered(sql) == known
                if registered:
                    self._record_table(sql, known)

    def _record_table(self, sql: Statements, known: Target) -> None:
        adopted = [] if known.location else sql.adopt_frontier(indexer_class=self.indexer_class)
        for (recorded,) in adopted:
            sql.adopt_batches(**self._key)
            sql.adopt_gaps(**self._key)
            self._gaps.put_on_grid(sql, recorded)
            self._recompute_frontier(sql)
        values = self._key | {"location": self._table.location, "host": self._table.host}
        sql.forget_batches(**values)
        sql.forget_gaps(**values)
        sql.forget_frontier(**values)
        sql.set_location(**values)

    def _registered(self, sql: Statements) -> Target:
        """Returns the table with its recorded location, which is empty before it is registered."""
        ((location, host),) = sql.location(**self._key) or [("", "")]
        return Target(self._table.table_id, location, host)

    def try_claim(self, found: FoundFile) -> Claim:
        """Claims one batch. Raises `BatchAlreadyClaimedError` if it was claimed before, which is normal."""
        claims = self.claim([found], 1)
        if not claims:
            raise BatchAlreadyClaimedError(name=found.name, indexer_class=self.indexer_class)
        return claims[0]

    def claim(self, found: Sequence[FoundFile], limit: int) -> list[Claim]:
        """Claims the first `limit` of these files that were never claimed, and updates the gaps."""
        started = time.monotonic()
        with self._locked() as (sql, reached):
            fresh = self._never_claimed(sql, [one.name for one in found])
            chosen = list(dict.fromkeys(one for one in found if one.name in fresh))[:limit]
            frontier = reached
            for one in chosen:
                frontier = self._gaps.update(sql, frontier, one.ticks)
            if chosen:
                self._insert_claims(sql, chosen)
                sql.set_frontier(**self._key, frontier=frontier)
        self._monitor.counter("claim_attempts").add(len(chosen) or 1)
        self._count_claims(len(chosen), started)
        return [Claim(one.name, one.ticks, 1) for one in chosen]

    def never_claimed(self, names: Sequence[str]) -> set[str]:
        """Returns those of these files that no indexer has ever claimed."""
        with self._run.reading() as transaction:
            return self._never_claimed(transaction.sql(PACKAGE), names)

    def take_over(self, limit: int, is_due: Callable[[int], bool] = lambda _: True) -> list[Claim]:
        """Claims batches that were released or whose lease has expired, because their indexer died or is stuck.

        A batch whose claims were lost often may be what ends its process. It is claimed alone, and only if there is no
        other. `is_due` returns whether a batch that was lost so often is tried now.
        """
        started = time.monotonic()
        values = self._key | {"lease_ms": self._lease_ms}
        with self._locked() as (sql, _):
            rows = sql.expired(**values, limit=limit)
            rows = [row for row in rows if row[-1] < LOST_OFTEN] or [row for row in rows[:1] if is_due(row[-1])]
            if rows:
                names = json.dumps([row[0] for row in rows])
                sql.take_over(**values, instance=self._instance, filenames=names)
        for name, *_, holder, _ in rows:
            if holder is not None:
                self._monitor.counter("stuck_batches_reassigned").add()
                self._monitor.errors.record(
                    "STUCK_BATCH_REASSIGNED", f"claimed by {holder}, whose lease has expired", name
                )
                log.warning("STUCK_BATCH_REASSIGNED: %s was claimed by %s, whose lease has expired", name, holder)
        self._monitor.counter("claim_attempts").add(len(rows))
        self._count_claims(len(rows), started)
        return [Claim(name, TickRange(first, last), version + 1, lost) for name, first, last, version, _, lost in rows]

    def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Extends the leases of these claims. Returns the claims that this indexer no longer holds."""
        values = {"instance": self._instance, "lease_ms": self._lease_ms, "claims": _fence(claims)}
        with self._sql() as sql:
            held = {name for (name,) in sql.renew(**self._key, **values)}
        return [claim for claim in claims if claim.name not in held]

    def release(self, claims: Sequence[Claim]) -> None:
        """Releases claims, so that any indexer can claim the batches at once."""
        with self._sql() as sql:
            sql.release(**self._key, instance=self._instance, claims=_fence(claims))

    def release_except(self, held: Collection[Claim]) -> None:
        """Releases all claims of this indexer except these. It may hold others if the answer to a claim was lost."""
        with self._sql() as sql:
            sql.release_except(**self._key, instance=self._instance, claims=_fence(held))

    def release_earlier(self, life: str) -> int:
        """Releases the claims of ended processes of a node. `life`, as NODE/LIFE, is the one that is running."""
        with self._sql() as sql:
            return len(sql.release_earlier(**self._key, node=f"{life.partition('/')[0]}/", life=f"{life}:"))

    def claimed_except(self, held: Collection[Claim]) -> int:
        """Returns the number of claimed batches of all indexers, without these claims."""
        with self._run.reading() as transaction:
            values = {"instance": self._instance, "claims": _fence(held)}
            ((found,),) = transaction.sql(PACKAGE).claimed_except(**self._key, **values)
        return int(found)

    def complete(self, claims: Sequence[Claim], missing: Mapping[str, MissingTicks] = MappingProxyType({})) -> int:
        """Marks these batches as completed. Returns how many of the claims this indexer still held.

        `missing` has the missing ticks of incomplete files, by name. They become gaps, unless other batches have them.
        """
        started = time.monotonic()
        with self._locked() as (sql, frontier):
            done = sql.complete(**self._key, instance=self._instance, claims=_fence(claims))
            for name, before in done:
                self._gaps.set_missing(sql, frontier, name, before, missing.get(name, NOTHING_MISSING))
            if any(missing.get(name, NOTHING_MISSING).reach is not None for name, _ in done):
                self._recompute_frontier(sql)
        self._monitor.counter("batches_completed").add(len(done))
        self._monitor.percentiles("mark_completed_latency").record(time.monotonic() - started)
        return len(done)

    def fail(self, claim: Claim, error: str) -> bool:
        """Marks a batch as failed, with its error. It is not retried automatically.

        Its ticks become a gap, unless other batches have them. Returns False if this indexer no longer holds the claim.
        """
        fence = {"filename": claim.name, "version": claim.version, "instance": self._instance}
        with self._monitor.percentiles("mark_failed_latency").timed(), self._locked() as (sql, _):
            failed = bool(sql.fail(**self._key, **fence, error=storable(error)))
            if failed:
                self._gaps.record(sql, claim.ticks)
                self._recompute_frontier(sql)
        self._monitor.counter("batches_failed").add(int(failed))
        return failed

    def record_end(self, last_tick: int | None, never_written: Sequence[TickRange] = ()) -> bool:
        """Records the last tick of the run; missing ticks before it become gaps. Returns False if it was recorded.

        Ticks that were never written to an abandoned run are no gaps. If another end was recorded, all gaps are found
        again; None is a run that was closed and goes on. Durable, because an indexer that has caught up ends after
        this, and no other would record it again.
        """
        end = End(last_tick, tuple(never_written))
        with self._locked(durable=True) as (sql, frontier):
            known = self._gaps.known_end(sql)
            if known == end:
                return False
            sql.set_end(**self._key, **end.columns)
            if known.last_tick is not None or last_tick is None:
                self._gaps.find_again(sql)
            else:
                self._gaps.record_tail(sql, frontier, last_tick)
                self._gaps.close(sql, never_written)
            self._recompute_frontier(sql)
        return True

    def status(self) -> CoordinatorStatus:
        with self._run.reading() as transaction:
            sql = transaction.sql(PACKAGE)
            (row,) = sql.status(**self._key, instance=self._instance, lease_ms=self._lease_ms)
        return CoordinatorStatus(*row)

    def gaps(self) -> list[Gap]:
        """Returns the recorded gaps. Before an indexer starts with a corrected sampling interval, these are old."""
        with self._run.reading() as transaction:
            return list(map(read_gap, transaction.sql(PACKAGE).gaps(**self._key)))

    def oldest_pending_gap(self) -> Gap | None:
        """Returns the pending gap with the lowest ticks."""
        return next((gap for gap in self.gaps() if gap.status == PENDING), None)

    def frontier(self) -> int | None:
        """Returns the frontier; None before the first batch."""
        return frontiers(self._run).get((self.indexer_class, self._table.table_id))

    def batches(self, ticks: TickRange = ALL_TICKS) -> list[Batch]:
        """Returns the recorded batches that overlap these ticks."""
        return self._batches("batches", first=ticks.start, last=ticks.end)

    def incomplete(self) -> list[Batch]:
        """Returns the batches whose files lack ticks that their names promise."""
        return self._batches("incomplete")

    def failed(self) -> list[Batch]:
        return self._batches("failed")

    def make_permanent(self, timeout_ms: int) -> list[Gap]:
        """Marks older gaps as permanent, by the clock of the database. Logs and counts each gap once."""
        with self._locked() as (sql, _):
            old = list(map(read_gap, sql.make_gaps_permanent(**self._key, timeout_ms=timeout_ms)))
        for gap in sorted(old):
            self._monitor.counter("permanent_gaps_detected").add()
            self._monitor.errors.record("PERMANENT_GAP", "data lost", str(gap.ticks))
            log.warning("Permanent gap in %s (data lost): %s", self.indexer_class, gap.ticks)
        return old

    def reopen_missing(self, missing: Sequence[TickRange], changed: Collection[str] = ()) -> list[str]:
        """Reopens the completed batches that have these ticks, which the table lacks. The other ticks become gaps.

        Claimed and failed batches do not change. `changed` are incomplete files that have changed since they were read,
        so they may have the ticks now. Returns the names of the reopened batches.
        """
        reopened: list[str] = []
        with self._locked() as (sql, frontier):
            for ticks in missing:
                reach = -1 if frontier is None else frontier
                reopened += self._reopen(sql, TickRange(ticks.start, min(ticks.end, reach)), changed)
        return list(dict.fromkeys(reopened))

    def retry_failed(self) -> list[str]:
        """Reopens failed batches; their ticks are no longer gaps. Returns the names of the batches."""
        with self._locked() as (sql, reached):
            failed = list(map(read_batch, sql.failed(**self._key)))
            names = [batch.name for batch in failed]
            frontier = reached
            for batch in failed:
                frontier = self._gaps.update(sql, frontier, batch.ticks)
            sql.reopen(**self._key, filenames=json.dumps(names))
            sql.set_frontier(**self._key, frontier=frontier)
        return names

    def _batches(self, statement: str, **values: int) -> list[Batch]:
        with self._run.reading() as transaction:
            return list(map(read_batch, getattr(transaction.sql(PACKAGE), statement)(**self._key, **values)))

    def _reopen(self, sql: Statements, ticks: TickRange, changed: Collection[str]) -> list[str]:
        if not ticks:
            return []
        known = map(read_batch, sql.batches(**self._key, first=ticks.start, last=ticks.end))
        completed = [batch for batch in known if batch.status == "completed"]
        done = [
            one.name
            for one in completed
            if one.name in changed or any(map(ticks.overlaps, one.present_ticks(self.step)))
        ]
        sql.reopen(**self._key, filenames=json.dumps(done))
        self._gaps.record(sql, ticks)
        return done

    def _check_step(self, sql: Statements, recorded: int | None) -> None:
        """Puts the records on the grid of this sampling interval, if they are on another one.

        Raises `SamplingIntervalCorrected` if this has happened before: then the other sampling interval is newer.
        """
        if recorded == self.step:
            return
        if self._step_recorded and recorded is not None:
            raise SamplingIntervalCorrected(
                run_id=self._run.id, indexer_class=self.indexer_class, recorded=recorded, step=self.step
            )
        self._gaps.put_on_grid(sql, recorded)
        sql.set_step(**self._key, step=self.step)
        if recorded is not None:
            log.info("%s: the sampling interval was corrected from %d to %d", self.indexer_class, recorded, self.step)

    def _recompute_frontier(self, sql: Statements) -> None:
        """Sets the frontier from the good batches and the end of the run."""
        ((reached, last_tick),) = sql.reached(**self._key)
        ends = [end for end in (reached, last_tick) if end is not None]
        sql.set_frontier(**self._key, frontier=max(ends, default=None))

    def _never_claimed(self, sql: Statements, names: Sequence[str]) -> set[str]:
        return {name for (name,) in sql.never_claimed(**self._key, filenames=json.dumps(names))}

    def _insert_claims(self, sql: Statements, chosen: Sequence[FoundFile]) -> None:
        batches = json.dumps([(one.name, one.ticks.start, one.ticks.end) for one in chosen])
        sql.add_claims(**self._key, instance=self._instance, lease_ms=self._lease_ms, batches=batches)

    def _count_claims(self, won: int, started: float) -> None:
        self._monitor.counter("claim_successes").add(won)
        self._monitor.counter("batches_claimed").add(won)
        self._monitor.percentiles("try_claim_latency").record(time.monotonic() - started)

    def _success_rate(self) -> float:
        # Read the successes first: a claim that is counted meanwhile must not push the rate above 1.
        successes = self._monitor.counter("claim_successes").value
        attempts = self._monitor.counter("claim_attempts").value
        return successes / attempts if attempts else 0.0

    @property
    def _lease_ms(self) -> int:
        return math.ceil(self.lease * 1000)

    @contextmanager
    def _locked(self, *, durable: bool = False) -> Iterator[tuple[Statements, int | None]]:
        """Locks the frontier and the gaps against changes by others. Yields the statements and the frontier.

        All records are on the grid of this sampling interval then.
        """
        with self._sql(durable=durable) as sql:
            sql.add_frontier(**self._key)
            ((frontier, step),) = sql.lock_frontier(**self._key)
            self._check_step(sql, step)
            yield sql, frontier
        self._step_recorded = True

    @contextmanager
    def _sql(self, *, durable: bool = False) -> Iterator[Statements]:
        # Not durable by default: work that a power cut undoes is found and done again.
        with self._run.transaction(durable=durable) as transaction:
            yield transaction.sql(PACKAGE)


def frontiers(run: Run) -> dict[tuple[str, str], int | None]:
    """Returns the frontier of each indexer class and table id of a run. Creates no tables."""
    if not run.has_tables_of(PACKAGE):
        return {}
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        return {(kind, table_id): frontier for kind, table_id, frontier in transaction.sql(PACKAGE).classes()}


def _fence(claims: Collection[Claim]) -> str:
    return json.dumps([(claim.name, claim.version) for claim in claims])
