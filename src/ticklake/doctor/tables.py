"""Checks of tables: whether each has its log, belongs to its run, is not a copy, and agrees with the run's metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ticklake.doctor.findings import Finding, of_each, ok, warning
from ticklake.doctor.subject import NEWEST_RUNS, Subject, in_newest
from ticklake.indexers.components import stored_metadata
from ticklake.insights import gone_tables, names_by_id
from ticklake.lake.errors import TableGone, TableOfAnotherRun, TableUnreadable, TableWithoutLog
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import disagreement
from ticklake.lake.read import Catalog, lost_metadata
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile, UnsafeStorageKey


def tables(subject: Subject) -> Iterator[Finding]:
    storages = [Storage(place) for place in subject.storages if place.is_dir()]
    for lake in filter(Path.is_dir, subject.lakes):
        catalog = Catalog(lake)
        runs = catalog.runs()
        scope = in_newest(len(runs))
        gone, found = _gone(catalog, subject)
        newest = sorted({*runs[-NEWEST_RUNS:], *gone})
        read, failed = of_each("tables", newest, lambda run: list(_of_run(catalog, run, storages, gone.get(run, {}))))  # noqa: B023  called here
        found += [*failed.values(), *(one for findings in read.values() for one in findings)]
        yield from found or [ok("tables", f"all tables in {lake} belong to their runs, without copies{scope}")]


def _gone(catalog: Catalog, subject: Subject) -> tuple[dict[str, dict[str, TableGone]], list[Finding]]:
    """Returns the tables that are gone, by run and name, and a finding for each run that cannot be read."""
    gone: dict[str, dict[str, TableGone]] = {}
    findings: list[Finding] = []
    for store in subject.stores:
        read, failed = store.read_current("tables", lambda run: gone_tables(catalog, run.id, [run]))
        findings += failed
        for run_id, found in read.items():
            gone.setdefault(run_id, {}).update(found)
    return {run_id: found for run_id, found in gone.items() if found}, findings


def _of_run(catalog: Catalog, run_id: str, storages: list[Storage], gone: dict[str, TableGone]) -> Iterator[Finding]:
    for error in gone.values():
        place = "".join(f" --storage {storage.url}" for storage in storages[:1])
        remedy = f"Move it back, or: ticklake index {run_id} --table {error.name}{place} --lake {catalog.root}"
        text = f"Table {error.table}, which {error.writer} has filled, is gone."
        yield warning("tables", text, remedy)
    metadata = list(_of_metadata(catalog, run_id, storages, gone))
    for table in catalog.tables(run_id):
        try:
            catalog.open(run_id, table)
        except TableOfAnotherRun as error:
            remedy = f"Move {catalog.location(run_id, table)} away, then: ticklake index {run_id}"
            yield warning("tables", str(error), remedy)
        except TableWithoutLog as error:
            if table != METADATA or not metadata:
                yield warning("tables", str(error), f"Copy its _delta_log back, or: ticklake index {run_id}")
        except TableUnreadable:
            continue  # `verify` reports it
    for names in names_by_id(catalog, run_id).values():
        if len(names) > 1:
            text = f"{' and '.join(names)} in {catalog.root.folder(run_id)} are copies with one table id."
            yield warning("tables", text, "Move all but one of them out of the run's folder.")
    yield from metadata


def _of_metadata(
    catalog: Catalog, run_id: str, storages: list[Storage], gone: dict[str, TableGone]
) -> Iterator[Finding]:
    if text := lost_metadata(catalog, run_id, gone):
        place = "".join(f" --storage {storage.url}" for storage in storages[:1])
        yield warning("tables", f"{text}.", f"ticklake index {run_id}{place} --lake {catalog.root}")
    for storage in storages if METADATA in catalog.tables(run_id) else ():
        if text := _disagreement(catalog, run_id, storage):
            remedy = f"ticklake index {run_id} --storage {storage.url} --lake {catalog.root}"
            yield warning("tables", f"{text.rstrip('.')}.", remedy)


def _disagreement(catalog: Catalog, run_id: str, storage: Storage) -> str:
    try:
        metadata = stored_metadata(storage, run_id)
    except BadFile:
        return ""  # the check of the files of runs reports it
    except UnsafeStorageKey:
        return ""  # its folder is a link, which `passed-over files` names
    return disagreement(catalog.location(run_id, METADATA), metadata) if metadata is not None else ""
