"""Errors of completeness."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class RunNeverAnnounced(TickLakeError):
    message = (
        "No database that was given has run {run_id!r}, so nobody would read what is published there. Give the "
        "database of the run, or add --create to create the run in the first of them (if its own database was lost)."
    )
    run_id: str


class RunHasNoFiles(TickLakeError):
    message = "Run {run_id} has no batch files in {storage}, so it has no end. Check the run and the storage."
    run_id: str
    storage: str


class FilesPassedOver(TickLakeError):
    message = (
        "Run {run_id} has batch files that are passed over, in {places}: names of folders are made of letters, digits, "
        "dot, dash and underscore, and links are not followed. Rename the folders and put files in the place of links, "
        "or move them out of the run; then end it."
    )
    run_id: str
    places: str


class LastFileBad(TickLakeError):
    message = (
        "Run {run_id} cannot be ended with its last file {key!r}: it does not hold what its name promises: {reason}. "
        "Restore the file, or remove it; --last-tick N says what the end is without looking into the file."
    )
    run_id: str
    key: str
    reason: object


class RunGoesOn(TickLakeError):
    message = (
        "Run {run_id} does not end at tick {last_tick}: {key!r} goes on behind it. Leave --last-tick out to end it "
        "with its last file, or remove the file if its name is wrong."
    )
    run_id: str
    last_tick: int
    key: str


class RunNotSilent(TickLakeError):
    message = (
        "Run {run_id} may still go on: something came {seconds} seconds ago. Stop its producer, and end the run once "
        "it has been silent for {silent_for} seconds; --silent-for 0 does not wait."
    )
    run_id: str
    seconds: int
    silent_for: int


class SilenceUnknown(TickLakeError):
    message = (
        "{storage} does not tell when something last came for run {run_id}. Make sure that its producer has stopped, "
        "then give --silent-for 0."
    )
    run_id: str
    storage: str


class RunEndedBefore(TickLakeError):
    message = (
        "Run {run_id} has ended at tick {last_tick} already, and an end is recorded once. If that is wrong, remove "
        "completed.pb from the run's folder first."
    )
    run_id: str
    last_tick: int
