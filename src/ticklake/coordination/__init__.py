"""Which batch file an indexer gets, gaps, and which table a consumer group fills."""

from __future__ import annotations

from ticklake.coordination.claims import Batch, Claim, Found, Look
from ticklake.coordination.coordinator import Coordinator, frontiers
from ticklake.coordination.destination import Destination, Topic, destination_of, topics_with
from ticklake.coordination.gaps import (
    PENDING,
    PERMANENT,
    WHOLE,
    Gap,
    Searched,
    Short,
)
from ticklake.coordination.groups import bind, release
from ticklake.coordination.overview import OpenGap, open_gaps
from ticklake.coordination.reconcile import (
    Announced,
    announced,
    compare,
    publish,
    stored,
)
from ticklake.coordination.target import NO_TABLE, Target

__all__ = [
    "NO_TABLE",
    "PENDING",
    "PERMANENT",
    "WHOLE",
    "Announced",
    "Batch",
    "Claim",
    "Coordinator",
    "Destination",
    "Found",
    "Gap",
    "Look",
    "OpenGap",
    "Searched",
    "Short",
    "Target",
    "Topic",
    "announced",
    "bind",
    "compare",
    "destination_of",
    "frontiers",
    "open_gaps",
    "publish",
    "release",
    "stored",
    "topics_with",
]
