"""Checks whether the tables of a run have each tick once, from its files, messages, gaps and tables."""

from __future__ import annotations

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.ending import Ended, close_run, end_run
from ticklake.completeness.judging import Verdict
from ticklake.completeness.repair import Repair
from ticklake.completeness.verdicts import FilesVerdict, MessagesVerdict, RunVerdict, TableVerdict

__all__ = [
    "Completeness",
    "Ended",
    "FilesVerdict",
    "MessagesVerdict",
    "Repair",
    "RunVerdict",
    "TableVerdict",
    "Verdict",
    "close_run",
    "end_run",
]
