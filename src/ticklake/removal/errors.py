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


class DeletionUnfinished(TickLakeError):
    message = (
        "Run {run_id} is being deleted, so it may not be whole any more and cannot be archived. Finish that first: "
        "ticklake runs delete {run_id}."
    )
    run_id: str


class RemovalUnderWay(TickLakeError):
    message = (
        "Another command is deleting or archiving run {run_id} at this moment. Wait until it is done; `ticklake runs` "
        "shows whether the run is still there."
    )
    run_id: str


class DeletedMeanwhile(TickLakeError):
    message = (
        "Files of run {run_id} were deleted while it was archived. {destination} may not have all of its files; see "
        "what it has: ticklake status {run_id} --storage {destination}."
    )
    run_id: str
    destination: str


class RunIsLink(TickLakeError):
    message = (
        "{path} is a link, and links are not followed. Nothing was deleted. Replace it with the tables of run "
        "{run_id}, or remove the link and what it points to by hand."
    )
    run_id: str
    path: object


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
