"""The coordinator: which indexer has which batch file, how far the files reach, and where they leave gaps."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from ticklake.checks.numbers import check_count, check_seconds
from ticklake.coordination.claims import Batch, Claim, Found, Look
from ticklake.coordination.errors import BatchAlreadyClaimedError, TableCopied
from ticklake.coordination.gaps import PENDING, WHOLE, Gap, Short, discover, few
from ticklake.coordination.target import NO_TABLE, IdAt, Target
from ticklake.database.names import check_name
from ticklake.database.schema import Row, Statements
from ticklake.monitoring import Monitor
from ticklake.text import storable
from ticklake.ticks import TickRange, hull, subtract
from ticklake.topics import Run
from ticklake.topics.reader import new_consumer_id

PACKAGE = "ticklake.coordination"
EVERYTHING = TickRange(0, 2**63 - 1)

log = logging.getLogger(__name__)


_COUNTERS = ("claim_attempts", "claim_successes", "batches_claimed", "batches_completed", "batches_failed",
             "stuck_batches_reassigned", "gaps_released", "permanent_gaps_detected")  # fmt: skip
_LATENCIES = ("try_claim_latency", "mark_completed_latency", "mark_failed_latency", "mark_gap_pending_latency",
              "has_gap_before_latency", "release_gap_pending_latency")  # fmt: skip


class Coordinator:
    """One table in one run. Any number of indexers of a class, in any number of processes, share the work on it.

    A file is claimed by its name, whatever ticks the name promises: names overlap, and some lie. Gaps and the frontier
    tell what is missing, and never keep a file from being claimed. They change in the transaction of the claim, under
    one lock: at every moment the batches that have not failed, less what they lack, and the gaps make up all ticks up
    to the frontier, which is the last tick that the name of such a batch, or the end of the run, reaches.
    """

    def __init__(
        self,
        run: Run,
        indexer_class: str,
        *,
        step: int,
        table: Target = NO_TABLE,
        lease: float = 300.0,
        instance: str | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        check_count("sampling_interval", step, least=1)
        check_seconds("claim_timeout", lease, above_zero=True)
        self.indexer_class = check_name("indexer class", indexer_class)
        self.step, self.lease = step, lease
        self._table = table
        self._who = {"indexer_class": self.indexer_class, "table_id": table.table_id}
        self._run = run
        self._instance = instance or new_consumer_id()
        self._monitor = monitor or Monitor(indexer_class)
        self._monitor.gauge("claim_success_rate", self._success_rate)
        for counter in _COUNTERS:
            self._monitor.counter(counter)
        for latency in _LATENCIES:
            self._monitor.percentiles(latency)
        run.prepare(PACKAGE)

    def register(self, id_at: IdAt) -> None:
        """Says which table this is about, before the first claim. Raises `TableCopied` for a copy of one that is there.

        What was recorded before tables had identities becomes this table's. What was recorded of a table that was in
        the same place before is forgotten: it is not there any more.
        """
        registered = not self._table.table_id
        while not registered:
            with self._run.reading() as transaction:
                known = self._place(transaction.sql(PACKAGE))
            # Outside of any transaction: a file system that does not answer must not hold the lock of the database.
            if self._table.is_copy_of(known, id_at):
                raise TableCopied(table=self._table.location, original=known.place, run_id=self._run.id)
            with self._locked() as (sql, _):
                registered = self._place(sql) == known
                if registered:
                    self._register(sql, known)

    def _register(self, sql: Statements, known: Target) -> None:
        if not known.location and sql.adopt_frontier(indexer_class=self.indexer_class):
            sql.adopt_batches(**self._who)
            sql.adopt_gaps(**self._who)
            for batch in map(_batch, sql.failed(**self._who)):
                self._uncover(sql, batch.ticks)
            self._settle_frontier(sql)
        who = self._who | {"location": self._table.location, "host": self._table.host}
        sql.forget_batches(**who)
        sql.forget_gaps(**who)
        sql.forget_frontier(**who)
        sql.locate(**who)

    def _place(self, sql: Statements) -> Target:
        """The table, and where it was seen last; nowhere if nobody has registered it."""
        ((location, host),) = sql.location(**self._who) or [("", "")]
        return Target(self._table.table_id, location, host)

    def try_claim(self, found: Found) -> Claim:
        """Claims one batch, or raises `BatchAlreadyClaimedError`: normal, try the next."""
        claims = self.claim([found], 1)
        if not claims:
            raise BatchAlreadyClaimedError(name=found.name, indexer_class=self.indexer_class)
        return claims[0]

    def claim(self, found: Sequence[Found], limit: int) -> list[Claim]:
        """Claims the first `limit` of these that nobody has had yet, and records what gaps they leave or fill."""
        started = time.monotonic()
        with self._locked() as (sql, reached):
            fresh = self._unknown(sql, [one.name for one in found])
            chosen = list(dict.fromkeys(one for one in found if one.name in fresh))[:limit]
            frontier = reached
            for one in chosen:
                frontier = self._discover(sql, frontier, one.ticks)
            if chosen:
                self._insert(sql, chosen)
                sql.set_frontier(**self._who, frontier=frontier)
        self._monitor.counter("claim_attempts").add(len(chosen) or 1)
        self._count_claims(len(chosen), started)
        return [Claim(one.name, one.ticks, 1) for one in chosen]

    def unknown(self, names: Sequence[str]) -> set[str]:
        """Those of these files that nobody has claimed yet."""
        with self._run.reading() as transaction:
            return self._unknown(transaction.sql(PACKAGE), names)

    def take_over(self, limit: int) -> list[Claim]:
        """Claims that were given back, or whose holder let the lease run out: a dead or stuck indexer's."""
        started = time.monotonic()
        who = self._who | {"lease_ms": self._lease_ms}
        with self._locked() as (sql, _):
            rows = sql.expired(**who, limit=limit)
            if rows:
                names = json.dumps([row[0] for row in rows])
                sql.take_over(**who, instance=self._instance, filenames=names)
        for name, _, _, _, holder in rows:
            if holder is not None:
                self._monitor.counter("stuck_batches_reassigned").add()
                self._monitor.errors.record("STUCK_BATCH_REASSIGNED", f"claimed by {holder}, whose lease ran out", name)
                log.warning("STUCK_BATCH_REASSIGNED: %s was claimed by %s, whose lease ran out", name, holder)
        self._monitor.counter("claim_attempts").add(len(rows))
        self._count_claims(len(rows), started)
        return [Claim(name, TickRange(first, last), version + 1) for name, first, last, version, _ in rows]

    def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Keeps these for another lease; gives those that somebody else has by now."""
        values = {"instance": self._instance, "lease_ms": self._lease_ms, "claims": _fence(claims)}
        with self._sql() as sql:
            held = {name for (name,) in sql.renew(**self._who, **values)}
        return [claim for claim in claims if claim.name not in held]

    def release(self, claims: Sequence[Claim]) -> None:
        """Gives claims back: the next one to look may have them at once."""
        with self._sql() as sql:
            sql.release(**self._who, instance=self._instance, claims=_fence(claims))

    def release_unknown(self, in_hand: Collection[Claim]) -> None:
        """Gives back what this indexer has claimed without knowing: the answer was lost with the connection."""
        with self._sql() as sql:
            sql.release_unknown(**self._who, instance=self._instance, claims=_fence(in_hand))

    def claimed_outside(self, in_hand: Collection[Claim]) -> int:
        """The number of claimed batches that are not in these hands: others have them, or nobody knows of them."""
        with self._run.reading() as transaction:
            values = {"instance": self._instance, "claims": _fence(in_hand)}
            ((found,),) = transaction.sql(PACKAGE).claimed_outside(**self._who, **values)
        return int(found)

    def complete(self, claims: Sequence[Claim], short: Mapping[str, Short] = MappingProxyType({})) -> int:
        """Marks these done; how many were still this indexer's to mark. Doing it twice is harmless.

        `short` are those files, by name, that lack ticks: these are a gap then, except those that other batches have.
        """
        started = time.monotonic()
        with self._locked() as (sql, frontier):
            done = sql.complete(**self._who, instance=self._instance, claims=_fence(claims))
            for name, lacked in done:
                self._set_short(sql, frontier, name, lacked, short.get(name, WHOLE))
        self._monitor.counter("batches_completed").add(len(done))
        self._monitor.percentiles("mark_completed_latency").record(time.monotonic() - started)
        return len(done)

    def fail(self, claim: Claim, error: str) -> bool:
        """Sets a batch aside with its error, for the eye: it is not tried again by itself.

        Its ticks are a gap then, except those that other batches have.
        """
        fence = {"filename": claim.name, "version": claim.version, "instance": self._instance}
        with self._monitor.percentiles("mark_failed_latency").timed(), self._locked() as (sql, _):
            failed = bool(sql.fail(**self._who, **fence, error=storable(error)))
            if failed:
                self._uncover(sql, claim.ticks)
                self._settle_frontier(sql)
        self._monitor.counter("batches_failed").add(int(failed))
        return failed

    def expect_end(self, last_tick: int) -> bool:
        """The run ends with this tick: what is missing before it is a gap like any other. False if that was known.

        Durable, because nobody finds it again: an indexer that has caught up ends after this.
        """
        with self._locked(durable=True) as (sql, frontier):
            ((_, known),) = sql.reached(**self._who)
            if known == last_tick:
                return False
            reach = -1 if frontier is None else frontier
            whole = TickRange(0 if frontier is None else frontier + self.step, last_tick)
            if whole:
                beyond = [gap.ticks for gap in self._touched(sql, TickRange(reach + 1, last_tick))]
                for gap in subtract([whole], beyond, self.step):
                    self._add_gap(sql, Gap(gap, 0), new=True)
            sql.set_end(**self._who, last_tick=last_tick)
            self._settle_frontier(sql)
        return True

    def look(self) -> Look:
        with self._run.reading() as transaction:
            sql = transaction.sql(PACKAGE)
            (row,) = sql.look(**self._who, instance=self._instance, lease_ms=self._lease_ms)
        return Look(*row)

    def gaps(self) -> list[Gap]:
        with self._run.reading() as transaction:
            return list(map(_gap, transaction.sql(PACKAGE).gaps(**self._who)))

    def oldest_pending_gap(self) -> Gap | None:
        """The one that is searched first: of those still looked for, the one with the lowest ticks."""
        return next((gap for gap in self.gaps() if gap.status == PENDING), None)

    def frontier(self) -> int | None:
        """The last tick that a batch which has not failed, or the end of the run, reaches; None before the first."""
        return frontiers(self._run).get((self.indexer_class, self._table.table_id))

    def batches(self, ticks: TickRange = EVERYTHING) -> list[Batch]:
        """The batches known that overlap these ticks."""
        return self._batches("batches", first=ticks.start, last=ticks.end)

    def short(self) -> list[Batch]:
        """The batches that lack some of the ticks that their names promise."""
        return self._batches("short")

    def failed(self) -> list[Batch]:
        return self._batches("failed")

    def make_permanent(self, timeout_ms: int) -> list[Gap]:
        """Gives up gaps that are older than this, by the database's clock: one warning and one count each."""
        with self._locked() as (sql, _):
            old = list(map(_gap, sql.age_gaps(**self._who, timeout_ms=timeout_ms)))
        for gap in sorted(old):
            self._monitor.counter("permanent_gaps_detected").add()
            self._monitor.errors.record("PERMANENT_GAP", "data lost", str(gap.ticks))
            log.warning("Permanent gap in %s (data lost): %s", self.indexer_class, gap.ticks)
        return old

    def search_again(self, missing: Sequence[TickRange], changed: Collection[str] = ()) -> list[str]:
        """The table lacks these ticks: has the batches that have them indexed again, and records the rest as gaps.

        Claimed batches are under way. Failed ones are left alone, but another file with their ticks is looked for.
        `changed` are files that may by now have what they lacked. Gives the names of those reopened.
        """
        reopened: list[str] = []
        with self._locked() as (sql, frontier):
            for ticks in missing:
                reach = -1 if frontier is None else frontier
                reopened += self._search_again(sql, TickRange(ticks.start, min(ticks.end, reach)), changed)
        return list(dict.fromkeys(reopened))

    def retry_failed(self) -> list[str]:
        """Gives failed batches another try; their ticks are no gap meanwhile."""
        with self._locked() as (sql, reached):
            failed = list(map(_batch, sql.failed(**self._who)))
            names = [batch.name for batch in failed]
            frontier = reached
            for batch in failed:
                frontier = self._discover(sql, frontier, batch.ticks)
            sql.reopen(**self._who, filenames=json.dumps(names))
            sql.set_frontier(**self._who, frontier=frontier)
        return names

    def _batches(self, statement: str, **values: int) -> list[Batch]:
        with self._run.reading() as transaction:
            return list(map(_batch, getattr(transaction.sql(PACKAGE), statement)(**self._who, **values)))

    def _search_again(self, sql: Statements, ticks: TickRange, changed: Collection[str]) -> list[str]:
        if not ticks:
            return []
        known = map(_batch, sql.batches(**self._who, first=ticks.start, last=ticks.end))
        completed = [batch for batch in known if batch.status == "completed"]
        done = [one.name for one in completed if one.name in changed or any(map(ticks.overlaps, one.has(self.step)))]
        sql.reopen(**self._who, filenames=json.dumps(done))
        self._uncover(sql, ticks)
        return done

    def _uncover(self, sql: Statements, ticks: TickRange) -> None:
        """Records those of these ticks as a gap that no good batch has, and no gap yet; very many holes as one gap."""
        known = map(_batch, sql.batches(**self._who, first=ticks.start, last=ticks.end))
        good = [part for batch in known if batch.status != "failed" for part in batch.has(self.step)]
        gaps = [gap.ticks for gap in self._touched(sql, ticks)]
        missing = few(subtract([ticks], [*gaps, *good], self.step))
        for gap in subtract(missing, gaps, self.step):
            self._add_gap(sql, Gap(gap, 0), new=True)

    def _set_short(self, sql: Statements, frontier: int | None, name: str, before: str | None, short: Short) -> None:
        """A file was read: what it has by now and lacked before is no gap, what it lacks is one."""
        lacks = json.dumps(short.lacks) if short.lacks else None
        if lacks or before:
            sql.set_short(**self._who, filename=name, lacks=lacks, stamp=short.stamp)
        lacked = Short.stored(before, None).lacks
        if lacked and lacked != short.lacks:
            for ticks in few(subtract([hull(lacked)], short.lacks, self.step)):
                self._discover(sql, frontier, ticks)
        if short.lacks:
            self._uncover(sql, hull(short.lacks))

    def _settle_frontier(self, sql: Statements) -> None:
        """Puts the frontier where the good batches and the end of the run say."""
        ((reached, last_tick),) = sql.reached(**self._who)
        ends = [end for end in (reached, last_tick) if end is not None]
        sql.set_frontier(**self._who, frontier=max(ends, default=None))

    def _touched(self, sql: Statements, ticks: TickRange) -> list[Gap]:
        return list(map(_gap, sql.touched_gaps(**self._who, first=ticks.start, last=ticks.end)))

    def _discover(self, sql: Statements, frontier: int | None, ticks: TickRange) -> int:
        reach = -1 if frontier is None else frontier
        with self._monitor.percentiles("has_gap_before_latency").timed():
            near = self._touched(sql, TickRange(min(ticks.start, reach + 1), ticks.end))
        change = discover(frontier, near, ticks, self.step)
        for gap in change.closed:
            with self._monitor.percentiles("release_gap_pending_latency").timed():
                sql.remove_gap(**self._who, first=gap.ticks.start)
            self._monitor.counter("gaps_released").add()
        for gap in change.left:
            self._add_gap(sql, gap)
        for opened in change.opened:
            self._add_gap(sql, Gap(opened, 0), new=True)
        return change.frontier

    def _unknown(self, sql: Statements, names: Sequence[str]) -> set[str]:
        return {name for (name,) in sql.unknown(**self._who, filenames=json.dumps(names))}

    def _add_gap(self, sql: Statements, gap: Gap, *, new: bool = False) -> None:
        with self._monitor.percentiles("mark_gap_pending_latency").timed():
            sql.add_gap(
                **self._who,
                first=gap.ticks.start,
                last=gap.ticks.end,
                first_detected=None if new else gap.first_detected_ms,
                status=gap.status,
            )
        log.debug("Gap in %s: %s", self.indexer_class, gap.ticks)

    def _insert(self, sql: Statements, chosen: Sequence[Found]) -> None:
        batches = json.dumps([(one.name, one.ticks.start, one.ticks.end) for one in chosen])
        sql.add_claims(**self._who, instance=self._instance, lease_ms=self._lease_ms, batches=batches)

    def _count_claims(self, won: int, started: float) -> None:
        self._monitor.counter("claim_successes").add(won)
        self._monitor.counter("batches_claimed").add(won)
        self._monitor.percentiles("try_claim_latency").record(time.monotonic() - started)

    def _success_rate(self) -> float:
        # In this order: a claim that is counted meanwhile must not have more successes than attempts.
        successes = self._monitor.counter("claim_successes").value
        attempts = self._monitor.counter("claim_attempts").value
        return successes / attempts if attempts else 0.0

    @property
    def _lease_ms(self) -> int:
        return math.ceil(self.lease * 1000)

    @contextmanager
    def _locked(self, *, durable: bool = False) -> Iterator[tuple[Statements, int | None]]:
        """The frontier, held so that nobody else moves it or splits a gap meanwhile."""
        with self._sql(durable=durable) as sql:
            sql.add_frontier(**self._who)
            ((frontier,),) = sql.lock_frontier(**self._who)
            yield sql, frontier

    @contextmanager
    def _sql(self, *, durable: bool = False) -> Iterator[Statements]:
        # What a power cut takes back is found and done again, and the table knows what it has.
        with self._run.transaction(durable=durable) as transaction:
            yield transaction.sql(PACKAGE)


def frontiers(run: Run) -> dict[tuple[str, str], int | None]:
    """The frontier of each indexer class and table id that is coordinated in a run. Creates no tables."""
    if not run.has_tables_of(PACKAGE):
        return {}
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        return {(kind, table_id): frontier for kind, table_id, frontier in transaction.sql(PACKAGE).classes()}


def _fence(claims: Collection[Claim]) -> str:
    return json.dumps([(claim.name, claim.version) for claim in claims])


def _gap(row: Row) -> Gap:
    first, last, detected, status = row
    return Gap(TickRange(first, last), detected, status)


def _batch(row: Row) -> Batch:
    name, first, last, status, error, *short = row
    return Batch(name, TickRange(first, last), status, error, Short.stored(*short))
