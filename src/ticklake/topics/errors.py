"""Errors of topics."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class SchemaOutdated(TickLakeError):
    message = (
        "The tables of {package} in run {run_id!r} have version {found}, this TickLake needs {known}. Stop what an "
        "older TickLake runs on them, then upgrade them: `ticklake db upgrade`."
    )
    package: str
    run_id: str
    found: int
    known: int


class MissingConsumerGroup(TickLakeError):
    message = "A reader of topic {topic!r} must name its consumer group: write topic-read:{topic}?consumerGroup=GROUP."
    topic: str


class NoClaimsNamed(TickLakeError):
    message = "Say which claims to release: those that are stuck, or those of a topic, a group or a message."


class NotAMessage(TickLakeError):
    message = (
        "A topic carries protobuf messages, and this is a {kind}. Send for example BatchInfo(simulation_run_id=…)."
    )
    kind: str


class MessageTooLarge(TickLakeError):
    message = (
        "A message has {size} bytes, and a topic takes at most {most}. "
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
    message = "Topic {topic!r} has no consumer group {group!r}. `ticklake groups` lists those that are there."
    topic: str
    group: str


class BatonPassedOver(TickLakeError):
    message = (
        "{topic!r} has one message, which decides who relays. Past it, nobody would relay to {outbox!r} any more; "
        "set the group to it with `--to earliest`, or nowhere."
    )
    topic: str
    outbox: str


class UnknownMessage(TickLakeError):
    message = "Topic {topic!r} has no message {message_id!r}. `ticklake topics tail` shows what is there."
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
        "This belongs to run {bound!r} and cannot be used for run {run_id!r}. Open one with `database.run({run_id!r})`."
    )
    bound: str
    run_id: str
