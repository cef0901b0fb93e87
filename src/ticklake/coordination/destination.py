"""Finds the topic for messages of a type: the named topic, or the one that already has such messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from ticklake.contracts import BatchInfo
from ticklake.coordination.errors import TopicAmbiguous, TopicUnknown
from ticklake.defaults import BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC
from ticklake.storage import parse_batch_name
from ticklake.topics import Database, Run, runs_in

_SAMPLE_SIZE = 20
_DEFAULTS = {BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC}


class Topic(NamedTuple):
    """A topic of a run in one database."""

    run: Run
    name: str


class Destination(NamedTuple):
    """A topic and its database. Neither has to exist yet."""

    database: Database
    run_id: str
    topic: str

    def existing(self) -> list[Topic]:
        """Returns the topic if the database has the run. Creates nothing."""
        return [Topic(run, self.topic) for run in runs_in([self.database], self.run_id)]

    def create(self) -> Topic:
        """Returns the topic. Creates the run if necessary."""
        return Topic(self.database.run(self.run_id), self.topic)


def topics_with(runs: Sequence[Run], kind: type[Message]) -> list[Topic]:
    """Returns the topics that have messages of this type, or had them before retention removed them.

    Only the first and the last messages of each topic are read.
    """
    return [Topic(run, topic) for run in runs for topic in _topics_of(run) if _has_messages(run, topic, kind)]


def destination_of(
    databases: Sequence[Database], run_id: str, kind: type[Message], default: str, named: str | None = None
) -> Destination:
    """Returns the topic for messages of this type. Raises if it is ambiguous, because no group might read them.

    A named topic that does not exist belongs to the first database. Without a name, the topic is `default` if the run
    has it, or if all topics of the run have default names.
    """
    runs = {database: run for database in databases for run in runs_in([database], run_id)}
    existing = [Destination(at, run_id, topic) for at, run in runs.items() for topic in _topics_of(run)]
    with_messages = [one for one in existing if _has_messages(runs[one.database], one.topic, kind)]
    found = [one for one in with_messages if named in (None, one.topic)]
    found = found or [one for one in existing if one.topic == (named or default)]
    if len(found) > 1:
        raise TopicAmbiguous(run_id=run_id, kind=kind.DESCRIPTOR.name, topics=_topic_names(found))
    if found:
        return found[0]
    if with_messages or (named is None and any(one.topic not in _DEFAULTS for one in existing)):
        kind_name = kind.DESCRIPTOR.name
        topics = _topic_names(with_messages or existing)
        raise TopicUnknown(run_id=run_id, topic=named or default, kind=kind_name, topics=topics)
    first = databases[0] if named else next(iter(runs), databases[0])
    return Destination(first, run_id, named or default)


def _topics_of(run: Run) -> list[str]:
    """Returns the topics of a run, including those whose messages retention has removed."""
    return sorted({*run.topic_names(), *run.topics_with_removed_files()})


def _has_messages(run: Run, topic: str, kind: type[Message]) -> bool:
    messages = run.browse(topic, limit=_SAMPLE_SIZE) + run.browse_last(topic, _SAMPLE_SIZE)
    if any((opened := message.opened()) and isinstance(opened.payload, kind) for message in messages):
        return True
    return kind is BatchInfo and any(map(_is_batch, run.removed_files(topic)))


def _is_batch(key: str) -> bool:
    return parse_batch_name(key.rpartition("/")[2]) is not None


def _topic_names(found: Sequence[Destination]) -> str:
    return ", ".join(sorted(one.topic for one in found))
