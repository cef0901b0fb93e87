"""Reports on runs, tables, groups and gaps, which commands and pages share."""

from __future__ import annotations

from ticklake.insights.backlogs import WORST, Backlog, BacklogReport, Backlogs
from ticklake.insights.files import files_of
from ticklake.insights.lake_tables import gone_tables, names_by_id
from ticklake.insights.places import (
    Places,
    announced_of,
    chosen_run,
    gaps_of,
    groups_of,
    held_back_of,
    rows_per_second,
    tables_of,
    with_missing,
)
from ticklake.insights.reports import (
    Announcement,
    CoordinatedReport,
    FilesReport,
    GapsReport,
    Glance,
    GroupReport,
    RunReport,
    TableReport,
    merged_groups,
)

__all__ = [
    "WORST",
    "Announcement",
    "Backlog",
    "BacklogReport",
    "Backlogs",
    "CoordinatedReport",
    "FilesReport",
    "GapsReport",
    "Glance",
    "GroupReport",
    "Places",
    "RunReport",
    "TableReport",
    "announced_of",
    "chosen_run",
    "files_of",
    "gaps_of",
    "gone_tables",
    "groups_of",
    "held_back_of",
    "merged_groups",
    "names_by_id",
    "rows_per_second",
    "tables_of",
    "with_missing",
]
