"""Coordination of indexers: claims of batch files, gaps, and the table that a consumer group fills."""

from __future__ import annotations

from ticklake.coordination.claims import LOST_OFTEN, Batch, Claim, CoordinatorStatus, FoundFile
from ticklake.coordination.coordinator import Coordinator, frontiers
from ticklake.coordination.destination import Destination, Topic, destination_of, topics_with
from ticklake.coordination.gaps import (
    NOTHING_MISSING,
    PENDING,
    PERMANENT,
    End,
    Gap,
    GapIndex,
    MissingTicks,
)
from ticklake.coordination.groups import BoundGroup, bind, groups_of_table, unbind
from ticklake.coordination.overview import (
    RecordedGap,
    RecordedTable,
    completed_batches,
    files_left,
    live_claims,
    recorded_end,
    recorded_gaps,
    recorded_tables,
)
from ticklake.coordination.reconcile import (
    Announced,
    announced,
    compare,
    publish,
    stored,
)
from ticklake.coordination.target import NO_TABLE, Target

__all__ = [
    "LOST_OFTEN",
    "NOTHING_MISSING",
    "NO_TABLE",
    "PENDING",
    "PERMANENT",
    "Announced",
    "Batch",
    "BoundGroup",
    "Claim",
    "Coordinator",
    "CoordinatorStatus",
    "Destination",
    "End",
    "FoundFile",
    "Gap",
    "GapIndex",
    "MissingTicks",
    "RecordedGap",
    "RecordedTable",
    "Target",
    "Topic",
    "announced",
    "bind",
    "compare",
    "completed_batches",
    "destination_of",
    "files_left",
    "frontiers",
    "groups_of_table",
    "live_claims",
    "publish",
    "recorded_end",
    "recorded_gaps",
    "recorded_tables",
    "stored",
    "topics_with",
    "unbind",
]
