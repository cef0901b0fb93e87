"""Errors of coordination."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class TopicUnknown(TickLakeError):
    message = (
        "Run {run_id} has no topic {topic!r} for {kind} messages, so nobody might read them; it has {topics}. Name the "
        "right topic with --topic, or give the --config of the run."
    )
    run_id: str
    topic: str
    kind: str
    topics: str


class TopicAmbiguous(TickLakeError):
    message = (
        "Run {run_id} has more than one topic for {kind} messages: {topics}. Say which with --topic, and with "
        "--database if several databases have it."
    )
    run_id: str
    kind: str
    topics: str


class GroupFillsAnotherTable(TickLakeError):
    message = (
        "Consumer group {group!r} of {topic} fills another table already ({filled}): with two, each would get a part "
        "of the run. Give this indexer a consumer group of its own, or hand the group over to it: "
        "`ticklake groups release {topic} {group} --run {run_id}`."
    )
    topic: str
    group: str
    run_id: str
    filled: str


class TableCopied(TickLakeError):
    message = (
        "{table} is a copy of {original}, which is still there: indexers that share run {run_id} cannot tell them "
        "apart, and each would get a part of it. Remove one of the two, or index the copy without this database: "
        "`ticklake index {run_id}`."
    )
    table: str
    original: str
    run_id: str


class BatchAlreadyClaimedError(TickLakeError):
    message = (
        "Batch {name} is claimed or done already for {indexer_class}. That is normal where indexers share the work: "
        "take the next one."
    )
    name: str
    indexer_class: str
