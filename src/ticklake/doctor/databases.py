"""Checks of databases: availability, schema version, clock, claims, transactions, backlogs, gaps, dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ticklake.doctor.findings import OTHERS, Finding, error, ok, warning
from ticklake.doctor.subject import Store, Subject
from ticklake.insights import WORST, Backlog, gaps_of
from ticklake.lake.read import Catalog, Presence
from ticklake.text import age_text
from ticklake.topics import Run

MAX_CLOCK_DIFFERENCE_SECONDS = 2.0


def reachable(subject: Subject) -> Iterator[Finding]:
    for store in subject.stores:
        if store.failure:
            yield error("database", str(store.failure), f"Start it, or correct its url: {store.name}")
        else:
            yield from (error("database", reason, OTHERS) for reason in store.database.damaged)
            yield ok("database", f"{store.name} answers; it has {len(store.database.runs()):,} runs")


def versions(subject: Subject) -> Iterator[Finding]:
    for store in _answering(subject):
        read, failed = store.read_all("schema version", lambda run: (run.versions(), run.has_foreign_numbers()))
        yield from failed
        found = [one for versions, _ in read.values() for one in versions]
        newer = [one for one in found if one.state == "too new"]
        behind = [one for one in found if one.state == "behind"]
        if newer:
            one = newer[0]
            text = f"{one.package} in run {one.run_id} has version {one.version}, but this TickLake knows {one.wanted}."
            yield error("schema version", f"{store.name}: {text}", "pip install --upgrade ticklake")
        elif behind:
            count = len({one.run_id for one in behind})
            text = f"{store.name}: {count:,} runs{store.scope} have an older schema version."
            yield warning("schema version", text, f"ticklake db upgrade --database {store.name}")
        elif restored := sum(is_restored for _, is_restored in read.values()):
            text = (
                f"{store.name}: {restored:,} runs were restored from another server: claims are slow, lags are wrong."
            )
            yield warning("schema version", text, f"ticklake db upgrade --database {store.name}")
        else:
            yield ok("schema version", f"{store.name}: all runs{store.scope} have the current version")


def clock(subject: Subject) -> Iterator[Finding]:
    """Leases use the clock of the database; ages and the search for new runs also use the clock of this machine."""
    for store in _answering(subject):
        read, failed = ({}, []) if store.directory else store.read_current("clock", _clock_difference)
        yield from failed
        if not read:
            continue
        apart = next(iter(read.values()))
        text = f"{store.name} is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} this machine"
        if abs(apart) > MAX_CLOCK_DIFFERENCE_SECONDS:
            yield warning("clock", f"{text}.", "Synchronize both with a time server: timedatectl set-ntp true")
        else:
            yield ok("clock", text)


def stuck_claims(subject: Subject) -> Iterator[Finding]:
    for store in _answering(subject):
        stuck, failed = store.read_current("stuck claims", lambda run: len(run.claims.list(stuck=True, limit=None)))
        yield from failed
        command = "ticklake claims release --stuck --database {url} --run {run}"
        yield from _counted(store, "stuck claims", stuck, "messages claimed by a consumer that is gone", command)


def open_transactions(subject: Subject) -> Iterator[Finding]:
    """While any transaction is open, PostgreSQL cannot remove the dead rows of claims and acks."""
    for store in _answering(subject):
        read, failed = ({}, []) if store.directory else store.read_current("open transactions", Run.held_back_by)
        yield from failed
        held = next((one for one in read.values() if one is not None), None)
        if held is not None:
            yield warning("open transactions", f"{store.name}: {held}.", held.remedy)
        elif read:
            yield ok("open transactions", f"{store.name}: no long transaction")


def backlogs(subject: Subject) -> Iterator[Finding]:
    """Names runs whose messages wait while no consumer reads them, of all runs and not only the newest."""
    for store in _answering(subject):
        if (gone := _went_away(store, "backlog")) is not None:
            yield gone
            continue
        found, scope = store.backlogs, store.backlog_scope
        late = [one for one in found.runs if one.without_reader or one.is_unread]
        unindexed = [one for one in found.runs if one.without_indexer]
        if not late and not unindexed:
            files = ", no files that nobody indexes in runs that an indexer has begun" if store.counts_files else ""
            yield ok("backlog", f"{store.name}: no messages that nobody reads{files}{scope}")
        if unindexed:
            yield _files_finding(subject, store, unindexed)
        if late:
            count, worst = sum(map(_nobody_reads, late)), late[0]
            text = (
                f"{store.name}: {count:,} messages that nobody reads, of {len(late):,} runs{scope}. The oldest is "
                f"{age_text(worst.oldest_seconds or 0)} old, in run {worst.run_id}."
            )
            details = tuple(line for one in late[:WORST] for line in _lines(one))
            yield warning("backlog", text, _index(subject, store, worst), details)
        if found.unreadable:
            count, first = len(found.unreadable), found.unreadable[0]
            yield warning("backlog", f"{store.name}: {count:,} runs cannot be read, for example: {first}", OTHERS)


def _files_finding(subject: Subject, store: Store, unindexed: list[Backlog]) -> Finding:
    tables = [(run.run_id, one) for run in unindexed for one in run.without_indexer]
    count, oldest = sum(one.files for _, one in tables), max(one.oldest_seconds or 0 for _, one in tables)
    text = (
        f"{store.name}: {count:,} batch files that no indexer with a coordinator works on, of {len(unindexed):,} "
        f"runs that an indexer has begun{store.backlog_scope}. The oldest is {age_text(oldest)} old, in run "
        f"{unindexed[0].run_id}."
    )
    details = tuple(
        f"{run_id}: {one.files:,} files, {one.ticks:,} ticks of {one.indexer_class}, "
        f"{age_text(one.oldest_seconds or 0)} old"
        for run_id, one in tables[:WORST]
    )
    return warning("backlog", text, _index(subject, store, unindexed[0]), details)


def _nobody_reads(backlog: Backlog) -> int:
    return sum(one.lag for one in backlog.without_reader) + (backlog.unread if backlog.is_unread else 0)


def _lines(backlog: Backlog) -> Iterator[str]:
    for one in backlog.without_reader:
        yield f"{backlog.run_id}: {one.lag:,} of {one.group} on {one.topic}, {age_text(one.oldest_seconds or 0)} old"
    if backlog.is_unread:
        yield f"{backlog.run_id}: {backlog.unread:,} without a group, {age_text(backlog.unread_seconds or 0)} old"


def _index(subject: Subject, store: Store, backlog: Backlog) -> str:
    storage = subject.storages[0] if subject.storages else "DIR"
    lake = subject.lakes[0] if subject.lakes else "DIR"
    command = f"ticklake index {backlog.run_id} --storage {storage} --lake {lake} --database {store.name}"
    return f"Start the node or the consumers of this run again. An indexer's work is also done by: {command}"


def gaps(subject: Subject) -> Iterator[Finding]:
    """Counts gaps of all tables; with a lake, only gaps of its own tables."""
    catalogs, presence = [Catalog(lake) for lake in subject.lakes if lake.is_dir()], Presence()
    for store in _answering(subject):
        if (gone := _went_away(store, "gaps")) is not None:
            yield gone
            continue
        reports, failed = store.read_current(
            "gaps",
            lambda run: gaps_of([store.database], run.id, catalogs if subject.lakes else None, presence),  # noqa: B023  called here
            [one.run_id for one in store.backlogs.runs if one.gaps_pending or one.gaps_permanent],
        )
        yield from failed
        pending = {run: sum(one.pending for one in found) for run, found in reports.items()}
        permanent = {run: sum(one.permanent for one in found) for run, found in reports.items()}
        command = _reconcile(subject)
        scope = store.backlog_scope
        yield from _counted(store, "gaps", pending, "pending gaps", command, scope)
        if any(permanent.values()):
            yield from _counted(store, "gaps", permanent, "permanent gaps", command, scope)


def dead_letters(subject: Subject) -> Iterator[Finding]:
    for store in _answering(subject):
        if (gone := _went_away(store, "dead letters")) is not None:
            yield gone
            continue
        dead = {one.run_id: one.dead_letters for one in sorted(store.backlogs.runs, key=lambda one: one.run_id)}
        command = "ticklake dead-letters list --database {url} --run {run}"
        yield from _counted(store, "dead letters", dead, "dead letters", command, store.backlog_scope)


def _clock_difference(run: Run) -> float:
    """Returns the seconds that the clock of a run's database is ahead of this machine."""
    before = time.time()
    there = run.now_ms() / 1000
    return there - (before + time.time()) / 2


def _answering(subject: Subject) -> list[Store]:
    return [store for store in subject.stores if not store.failure]


def _went_away(store: Store, check: str) -> Finding | None:
    """Returns a finding if the database stopped answering while its runs were read: then nothing is known of them."""
    reason = next(iter(store.backlogs.away.values()), None)
    return None if reason is None else error(check, f"{store.name}: {reason}", OTHERS)


def _reconcile(subject: Subject) -> str:
    places = [("--storage", subject.storages), ("--lake", subject.lakes)]
    given = "".join(f" {option} {found[0]}" for option, found in places if found)
    return "ticklake reconcile {run} --database {url}" + given


def _counted(
    store: Store, check: str, counts: dict[str, int], what: str, command: str, scope: str | None = None
) -> Iterator[Finding]:
    """Reports all runs in one line. The command is for the run with the highest count. `scope`: default the newest."""
    total, scope = sum(counts.values()), store.scope if scope is None else scope
    if not total:
        yield ok(check, f"{store.name}: no {what}{scope}")
        return
    worst = max(counts, key=lambda run: counts[run])
    remedy = command.format(url=store.name, run=worst)
    details = tuple(f"{run}: {count}" for run, count in counts.items() if count)
    yield warning(check, f"{store.name}: {total:,} {what}{scope}, most of them in run {worst}.", remedy, details)
