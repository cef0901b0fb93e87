"""Databases: whether they answer, which version their tables have, their clock, and what is stuck in them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ticklake.doctor.findings import Finding, error, ok, warning
from ticklake.doctor.subject import NEWEST_RUNS, Patient, Store
from ticklake.insights import gaps_of
from ticklake.lake.read import Catalog, Presence

CLOCKS_APART_SECONDS = 2.0


def reachable(patient: Patient) -> Iterator[Finding]:
    for store in patient.stores:
        if store.failure:
            yield error("database", str(store.failure), f"Start it, or mend its url: {store.name}")
        else:
            yield ok("database", f"{store.name} answers; it has {len(store.database.runs()):,} runs")


def versions(patient: Patient) -> Iterator[Finding]:
    for store in _answering(patient):
        runs = [store.database.run(run_id, create=False) for run_id in store.database.runs()[-NEWEST_RUNS:]]
        found = [one for run in runs for one in run.versions()]
        newer = [one for one in found if one.state == "too new"]
        behind = [one for one in found if one.state == "behind"]
        if newer:
            one = newer[0]
            text = f"{one.package} in run {one.run_id} has version {one.version}, this TickLake knows {one.wanted}."
            yield error("schema version", f"{store.name}: {text}", "pip install --upgrade ticklake")
        elif behind:
            count = len({one.run_id for one in behind})
            text = f"{store.name}: {count:,} runs{store.scope} have tables of an older version."
            yield warning("schema version", text, f"ticklake db upgrade --database {store.name}")
        elif restored := sum(run.has_foreign_numbers() for run in runs):
            text = f"{store.name}: {restored:,} runs were restored from another server: claims are slow, lags wrong."
            yield warning("schema version", text, f"ticklake db upgrade --database {store.name}")
        else:
            yield ok("schema version", f"{store.name}: all tables{store.scope} are of this version")


def clock(patient: Patient) -> Iterator[Finding]:
    """Leases run by the database's clock; ages and the search for new runs also by this machine's."""
    for store in _answering(patient):
        run = None if store.directory else next(store.runs(), None)
        if run is None:
            continue
        before = time.time()
        there = run.now_ms() / 1000
        apart = there - (before + time.time()) / 2
        text = f"{store.name} is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} this machine"
        if abs(apart) > CLOCKS_APART_SECONDS:
            yield warning("clock", f"{text}.", "Have both follow a time server: timedatectl set-ntp true")
        else:
            yield ok("clock", text)


def stuck_claims(patient: Patient) -> Iterator[Finding]:
    for store in _answering(patient):
        stuck = {run.id: len(run.claims.list(stuck=True, limit=None)) for run in store.runs()}
        command = "ticklake claims release --stuck --database {url} --run {run}"
        yield from _counted(store, "stuck claims", stuck, "messages in the hands of somebody who is gone", command)


def open_transactions(patient: Patient) -> Iterator[Finding]:
    """PostgreSQL keeps what claims and acks leave behind for as long as any transaction is open."""
    for store in _answering(patient):
        run = None if store.directory else next(store.runs(), None)
        held = run.held_back_by() if run is not None else None
        if held is not None:
            yield warning("open transactions", f"{store.name}: {held}.", held.remedy)
        elif run is not None:
            yield ok("open transactions", f"{store.name}: none is open for long")


def gaps(patient: Patient) -> Iterator[Finding]:
    """Without a lake, the gaps of all tables; with one, those of its own: others are another configuration's."""
    catalogs, presence = [Catalog(lake) for lake in patient.lakes if lake.is_dir()], Presence()
    for store in _answering(patient):
        reports = {
            run.id: gaps_of([store.database], run.id, catalogs if patient.lakes else None, presence)
            for run in store.runs()
        }
        pending = {run: sum(one.pending for one in found) for run, found in reports.items()}
        permanent = {run: sum(one.permanent for one in found) for run, found in reports.items()}
        command = _reconcile(patient)
        yield from _counted(store, "gaps", pending, "gaps that are still looked for", command)
        if any(permanent.values()):
            yield from _counted(store, "gaps", permanent, "gaps that nobody looks for any more", command)


def dead_letters(patient: Patient) -> Iterator[Finding]:
    for store in _answering(patient):
        dead = {run.id: run.dead_letters.count() for run in store.runs()}
        yield from _counted(
            store, "dead letters", dead, "dead letters", "ticklake dead-letters list --database {url} --run {run}"
        )


def _answering(patient: Patient) -> list[Store]:
    return [store for store in patient.stores if not store.failure]


def _reconcile(patient: Patient) -> str:
    places = [("--storage", patient.storages), ("--lake", patient.lakes)]
    given = "".join(f" {option} {found[0]}" for option, found in places if found)
    return "ticklake reconcile {run} --database {url}" + given


def _counted(store: Store, check: str, counts: dict[str, int], what: str, command: str) -> Iterator[Finding]:
    """One line for all runs; the command is for the one that has most."""
    total = sum(counts.values())
    if not total:
        yield ok(check, f"{store.name}: no {what}{store.scope}")
        return
    worst = max(counts, key=lambda run: counts[run])
    remedy = command.format(url=store.name, run=worst)
    details = tuple(f"{run}: {count}" for run, count in counts.items() if count)
    yield warning(check, f"{store.name}: {total:,} {what}{store.scope}, most of them in run {worst}.", remedy, details)
