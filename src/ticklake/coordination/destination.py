"""Where messages of a kind go: the topic that was named, or the one of the run that has such messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from ticklake.contracts import BatchInfo
from ticklake.coordination.errors import TopicAmbiguous, TopicUnknown
from ticklake.defaults import BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC
from ticklake.storage import parse_batch_name
from ticklake.topics import Database, Run, runs_in

_LOOKED_AT = 20
_USUAL = {BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC}


class Topic(NamedTuple):
    """A topic of a run in one database."""

    run: Run
    name: str


class Destination(NamedTuple):
    """A topic, and the database to open it in. Looking for it makes nothing."""

    database: Database
    run_id: str
    topic: str

    def existing(self) -> list[Topic]:
        """The topic, if the database has the run."""
        return [Topic(run, self.topic) for run in runs_in([self.database], self.run_id)]

    def made(self) -> Topic:
        return Topic(self.database.run(self.run_id), self.topic)


def topics_with(runs: Sequence[Run], kind: type[Message]) -> list[Topic]:
    """Every topic that has messages of a kind, or had them until retention removed them.

    Only the first and the last few messages of each are looked at.
    """
    return [Topic(run, topic) for run in runs for topic in _known(run) if _has(run, topic, kind)]


def destination_of(
    databases: Sequence[Database], run_id: str, kind: type[Message], usual: str, named: str | None = None
) -> Destination:
    """The one topic that messages of a kind go to. Refused if that is unclear: nobody might read them.

    A named topic that no database has is made in the first; without a name, the topic is `usual` if the run has it
    or has no topics with names of the user's own.
    """
    runs = {database: run for database in databases for run in runs_in([database], run_id)}
    existing = [Destination(at, run_id, topic) for at, run in runs.items() for topic in _known(run)]
    telling = [one for one in existing if _has(runs[one.database], one.topic, kind)]
    found = [one for one in telling if named in (None, one.topic)]
    found = found or [one for one in existing if one.topic == (named or usual)]
    if len(found) > 1:
        raise TopicAmbiguous(run_id=run_id, kind=kind.DESCRIPTOR.name, topics=_names(found))
    if found:
        return found[0]
    if telling or (named is None and any(one.topic not in _USUAL for one in existing)):
        kind_name = kind.DESCRIPTOR.name
        raise TopicUnknown(run_id=run_id, topic=named or usual, kind=kind_name, topics=_names(telling or existing))
    first = databases[0] if named else next(iter(runs), databases[0])
    return Destination(first, run_id, named or usual)


def _known(run: Run) -> list[str]:
    """The topics of a run. Retention may have left nothing of one but what it told of."""
    return sorted({*run.topic_names(), *run.topics_with_removed_files()})


def _has(run: Run, topic: str, kind: type[Message]) -> bool:
    messages = run.browse(topic, limit=_LOOKED_AT) + run.browse_last(topic, _LOOKED_AT)
    if any((opened := message.opened()) and isinstance(opened.payload, kind) for message in messages):
        return True
    return kind is BatchInfo and any(map(_is_batch, run.removed_files(topic)))


def _is_batch(key: str) -> bool:
    return parse_batch_name(key.rpartition("/")[2]) is not None


def _names(found: Sequence[Destination]) -> str:
    return ", ".join(sorted(one.topic for one in found))
