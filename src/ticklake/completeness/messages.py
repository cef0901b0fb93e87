"""The messages of a run: compares the announced batch files with the storage, and announces missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ticklake.completeness.errors import RunNeverAnnounced
from ticklake.completeness.files import Files
from ticklake.completeness.verdicts import MessagesVerdict
from ticklake.contracts import BatchInfo
from ticklake.coordination import (
    Announced,
    Destination,
    Topic,
    announced,
    compare,
    destination_of,
    publish,
    topics_with,
)
from ticklake.database.errors import DatabaseDamaged
from ticklake.defaults import BATCH_TOPIC
from ticklake.insights import groups_of
from ticklake.storage import Storage
from ticklake.topics import Database, runs_in


class Messages:
    """The topics of a run that announce its files, in all given databases.

    `runs` is the run in each database that has it; empty after a database was found damaged.
    """

    def __init__(self, run_id: str, databases: Sequence[Database], topic: str | None = None) -> None:
        """`topic` announces the batches; the default is the topic that has such messages."""
        self._run_id, self._databases, self._topic = run_id, databases, topic
        self.runs = runs_in(databases, run_id)

    @property
    def topic(self) -> str:
        """The topic to which new announcements are sent."""
        return self._destination.topic if self._databases else BATCH_TOPIC

    def examine(self, files: Files, *, deeply: bool) -> MessagesVerdict | None:
        """Compares the files with all topics; None without a database. With `deeply`, also checks the databases.

        A damaged database is not used further, because tables and files can be judged without it.
        """
        try:
            for run in self.runs if deeply else []:
                run.check()
            return self._compared(files, self._announcing_topics())
        except DatabaseDamaged as error:
            self.runs = []
            return MessagesVerdict(0, [], [], 0, [], str(error))

    def compare(self, files: Files, *, create: bool) -> MessagesVerdict | None:
        """Compares the files with the topic for announcements; None without a database.

        Raises `RunNeverAnnounced` if no database has the run, unless `create` is set.
        """
        if self._databases and not self.runs and not create:
            raise RunNeverAnnounced(run_id=self._run_id)
        return self._compared(files, self._destination.existing()) if self._databases else None

    def announce(self, storage: Storage, keys: Sequence[str]) -> None:
        """Announces these files. Does nothing without a database."""
        if self._databases and keys:
            run, topic = self._destination.create()
            publish(run, storage, keys, topic)

    def _compared(self, files: Files, topics: Sequence[Topic]) -> MessagesVerdict | None:
        if not self._databases:
            return None
        found = merged([announced(run, topic) for run, topic in topics])
        difference, end = compare(files.by_key, found), files.expected.last_tick
        now = files.list_files() if difference.vanished else {}
        return MessagesVerdict(
            messages=found.messages,
            unannounced=difference.unannounced,
            vanished=[key for key in difference.vanished if key not in now],
            undecodable=difference.undecodable,
            groups=groups_of(self._databases, self._run_id),
            beyond=[key for key, ticks in found.keys.items() if end is not None and ticks.end > end],
            removed=len(found.removed),
        )

    @cached_property
    def _destination(self) -> Destination:
        return destination_of(self._databases, self._run_id, BatchInfo, BATCH_TOPIC, self._topic)

    def _announcing_topics(self) -> list[Topic]:
        """Returns all topics that announce files."""
        if self._topic is not None:
            return [Topic(run, self._topic) for run in self.runs]
        default = [Topic(run, BATCH_TOPIC) for run in self.runs]
        return default + [one for one in topics_with(self.runs, BatchInfo) if one.name != BATCH_TOPIC]


def merged(topics: Sequence[Announced]) -> Announced:
    """Merges the announcements of several topics."""
    keys = {key: ticks for one in topics for key, ticks in one.keys.items()}
    removed = frozenset(key for one in topics for key in one.removed)
    return Announced(keys, sum(one.messages for one in topics), sum(one.undecodable for one in topics), removed)
