"""Errors of coordination."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class TopicUnknown(TickLakeError):
    message = (
        "Run {run_id} has no topic {topic!r} for {kind} messages, so no group might read them; it has {topics}. "
        "Name the right topic with --topic, or give the --config of the run."
    )
    run_id: str
    topic: str
    kind: str
    topics: str


class TopicAmbiguous(TickLakeError):
    message = (
        "Run {run_id} has more than one topic for {kind} messages: {topics}. Choose one with --topic, and with "
        "--database if several databases have it."
    )
    run_id: str
    kind: str
    topics: str


class GroupFillsAnotherTable(TickLakeError):
    message = (
        "Consumer group {group!r} of {topic} already fills another table ({filled}). With two tables, each would "
        "get only a part of the run. Give this indexer its own consumer group, or hand the group over to it: "
        "`ticklake groups release {topic} {group} --run {run_id}`."
    )
    topic: str
    group: str
    run_id: str
    filled: str


class TableCopied(TickLakeError):
    message = (
        "{table} is a copy of {original}, which still exists. The copy has the same table id, so each of the two would "
        "get only a part of run {run_id}. Remove one of them, or index the copy without this database: "
        "`ticklake index {run_id}`."
    )
    table: str
    original: str
    run_id: str


class SamplingIntervalCorrected(TickLakeError):
    message = (
        "The sampling interval of run {run_id} was corrected to {recorded}, but this {indexer_class} still uses "
        "{step}. Start the indexer again: it then reads the corrected metadata and continues."
    )
    run_id: str
    indexer_class: str
    recorded: int
    step: int


class BatchAlreadyClaimedError(TickLakeError):
    message = (
        "Batch {name} is already claimed or completed for {indexer_class}. That is normal if indexers share the work: "
        "try the next one."
    )
    name: str
    indexer_class: str
