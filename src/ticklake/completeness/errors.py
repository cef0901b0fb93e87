"""Errors of completeness."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class RunNeverAnnounced(TickLakeError):
    message = (
        "None of the given databases has run {run_id!r}, so no group would read new messages. Give the database of the "
        "run. If it is lost, add --create to create the run in the first given database."
    )
    run_id: str


class RunHasNoFiles(TickLakeError):
    message = "Run {run_id} has no batch files in {storage}, so it has no end. Check the run and the storage."
    run_id: str
    storage: str


class FilesPassedOver(TickLakeError):
    message = (
        "Run {run_id} has places that are passed over and may hold batch files: {places}. Folder names may have only "
        "letters, digits, dots, dashes and underscores, and links are not followed. Rename the folders and replace "
        "links with files, or move them out of the run. Then end it."
    )
    run_id: str
    places: str


class LastFileBad(TickLakeError):
    message = (
        "Run {run_id} cannot be ended with its last file {key!r}: it does not have the ticks of its name: {reason}. "
        "Restore or remove the file. With --last-tick N the file is not checked."
    )
    run_id: str
    key: str
    reason: object


class RunNotSilent(TickLakeError):
    message = (
        "Run {run_id} may still continue: a file or a message arrived {seconds} seconds ago. Stop its producer, and "
        "end the run after {silent_for} seconds of silence. With --silent-for 0 it is ended all the same."
    )
    run_id: str
    seconds: int
    silent_for: str


class SilenceUnknown(TickLakeError):
    message = (
        "{storage} has no time of the last change of run {run_id}. Make sure that its producer has stopped, then add "
        "--silent-for 0."
    )
    run_id: str
    storage: str
