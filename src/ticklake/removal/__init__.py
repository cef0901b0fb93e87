"""Deletes and archives runs: batch files, tables and databases, in an order that a crash cannot spoil."""

from __future__ import annotations

from ticklake.removal.archive import Archived, archive_run, check_destination
from ticklake.removal.contents import RunContents, RunPlaces, contents_of
from ticklake.removal.deletion import check_removable, delete_run

__all__ = [
    "Archived",
    "RunContents",
    "RunPlaces",
    "archive_run",
    "check_destination",
    "check_removable",
    "contents_of",
    "delete_run",
]
