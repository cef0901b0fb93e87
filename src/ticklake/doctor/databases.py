"""Checks of databases: availability, schema version, clock, claims, transactions, gaps, dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ticklake.doctor.findings import OTHERS, Finding, error, ok, warning
from ticklake.doctor.subject import Store, Subject
from ticklake.insights import gaps_of
from ticklake.lake.read import Catalog, Presence
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


def gaps(subject: Subject) -> Iterator[Finding]:
    """Counts gaps of all tables; with a lake, only gaps of its own tables."""
    catalogs, presence = [Catalog(lake) for lake in subject.lakes if lake.is_dir()], Presence()
    for store in _answering(subject):
        reports, failed = store.read_current(
            "gaps",
            lambda run: gaps_of([store.database], run.id, catalogs if subject.lakes else None, presence),  # noqa: B023  called here
        )
        yield from failed
        pending = {run: sum(one.pending for one in found) for run, found in reports.items()}
        permanent = {run: sum(one.permanent for one in found) for run, found in reports.items()}
        command = _reconcile(subject)
        yield from _counted(store, "gaps", pending, "pending gaps", command)
        if any(permanent.values()):
            yield from _counted(store, "gaps", permanent, "permanent gaps", command)


def dead_letters(subject: Subject) -> Iterator[Finding]:
    for store in _answering(subject):
        dead, failed = store.read_current("dead letters", lambda run: run.dead_letters.count())
        yield from failed
        yield from _counted(
            store, "dead letters", dead, "dead letters", "ticklake dead-letters list --database {url} --run {run}"
        )


def _clock_difference(run: Run) -> float:
    """Returns the seconds that the clock of a run's database is ahead of this machine."""
    before = time.time()
    there = run.now_ms() / 1000
    return there - (before + time.time()) / 2


def _answering(subject: Subject) -> list[Store]:
    return [store for store in subject.stores if not store.failure]


def _reconcile(subject: Subject) -> str:
    places = [("--storage", subject.storages), ("--lake", subject.lakes)]
    given = "".join(f" {option} {found[0]}" for option, found in places if found)
    return "ticklake reconcile {run} --database {url}" + given


def _counted(store: Store, check: str, counts: dict[str, int], what: str, command: str) -> Iterator[Finding]:
    """Reports all runs in one line. The command is for the run with the highest count."""
    total = sum(counts.values())
    if not total:
        yield ok(check, f"{store.name}: no {what}{store.scope}")
        return
    worst = max(counts, key=lambda run: counts[run])
    remedy = command.format(url=store.name, run=worst)
    details = tuple(f"{run}: {count}" for run, count in counts.items() if count)
    yield warning(check, f"{store.name}: {total:,} {what}{store.scope}, most of them in run {worst}.", remedy, details)
