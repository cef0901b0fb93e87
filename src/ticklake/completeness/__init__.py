"""Checks whether the tables of a run have each tick once, from its files, messages, gaps and tables."""

from __future__ import annotations

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.ending import end_run
from ticklake.completeness.repair import Repair
from ticklake.completeness.reports import FilesVerdict, MessagesVerdict, RunVerdict, TableVerdict
from ticklake.completeness.verdict import Verdict

__all__ = [
    "Completeness",
    "FilesVerdict",
    "MessagesVerdict",
    "Repair",
    "RunVerdict",
    "TableVerdict",
    "Verdict",
    "end_run",
]
