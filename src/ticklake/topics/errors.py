"""Errors of topics."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class SchemaOutdated(TickLakeError):
    message = (
        "The tables of {package} in run {run_id!r} have version {found}, but this TickLake needs {known}. Stop all "
        "processes of an older TickLake that use them, then call `ticklake db upgrade`."
    )
    package: str
    run_id: str
    found: int
    known: int


class MissingConsumerGroup(TickLakeError):
    message = "A reader of topic {topic!r} must name its consumer group: write topic-read:{topic}?consumerGroup=GROUP."
    topic: str


class NoClaimsNamed(TickLakeError):
    message = "Say which claims to release: the stuck ones, or those of a topic, a group or a message."


class NotAMessage(TickLakeError):
    message = "A topic stores protobuf messages, but this is a {kind}. Send for example BatchInfo(simulation_run_id=…)."
    kind: str


class MessageTooLarge(TickLakeError):
    message = (
        "A message has {size} bytes, but a topic stores at most {most}. "
        "Write the data to a file and send a message that names it."
    )
    size: str
    most: str


class UndecodableMessage(TickLakeError):
    message = "The message cannot be decoded: {reason}."
    reason: object


class TopicClosed(TickLakeError):
    message = "The {end} of topic {topic!r} was closed before this call. Open a new one with `run.{end}(…)`."
    end: str
    topic: str


class UnknownGroup(TickLakeError):
    message = "Topic {topic!r} has no consumer group {group!r}. `ticklake groups` lists the groups."
    topic: str
    group: str


class ReservedTopic(TickLakeError):
    message = "Only relays write to {topic!r}: topics of outboxes begin with outbox/. Choose another name."
    topic: str


class BatonPassedOver(TickLakeError):
    message = (
        "The only message of {topic!r} decides who relays. After a reset past it, no relay would publish to {outbox!r} "
        "any more. The only reset of this group is `--to earliest`."
    )
    topic: str
    outbox: str


class UnknownMessage(TickLakeError):
    message = "Topic {topic!r} has no message {message_id!r}. `ticklake topics tail` shows the messages."
    topic: str
    message_id: object


class TimeOutOfRange(TickLakeError):
    message = "{time} is not between the years 1 and 9999 in UTC. Give another time, or `earliest` or `end`."
    time: str


class OtherDatabase(TickLakeError):
    message = "A transaction in {other} cannot be used for {database}. Begin it in the run that it is used for."
    database: str
    other: str


class OtherRun(TickLakeError):
    message = (
        "This belongs to run {bound!r}, but the transaction to run {run_id!r}. Begin the transaction with "
        "`database.run({bound!r}).transaction()`."
    )
    bound: str
    run_id: str
