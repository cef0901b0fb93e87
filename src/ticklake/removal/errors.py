"""Errors of deleting and archiving runs."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class RunStillRunning(TickLakeError):
    message = (
        "Run {run_id} is running: its producer may still write. Stop the producer and close the run first: "
        "ticklake runs close {run_id}."
    )
    run_id: str


class RunInUse(TickLakeError):
    message = (
        "Run {run_id} is in use: {claims} claims, for example of {holder}. Wait until its indexers have caught up, or "
        "stop them. `ticklake claims` lists the claims; --force deletes the run all the same."
    )
    run_id: str
    claims: int
    holder: str


class ArchiveUnfinished(TickLakeError):
    message = (
        "Run {run_id} is being archived to {destination}. Finish that first: ticklake runs archive {run_id} "
        "{destination}."
    )
    run_id: str
    destination: str


class BadArchive(TickLakeError):
    message = "{destination} cannot be the archive of run {run_id}: {reason}. Choose another directory."
    run_id: str
    destination: object
    reason: str


class ArchiveConflict(TickLakeError):
    message = (
        "The archive has another file {path}: its content differs from that of run {run_id}. Nothing was deleted. "
        "Remove it, or choose another directory."
    )
    run_id: str
    path: object


class NotArchivable(TickLakeError):
    message = (
        "Run {run_id} has a file that cannot be archived: {path}. Nothing was deleted. Move it out of the folder first."
    )
    run_id: str
    path: object


class TablesChanging(TickLakeError):
    message = (
        "The tables of run {run_id} changed while they were copied. Nothing was deleted. Stop the services that write "
        "to them, such as compaction, and try again."
    )
    run_id: str
