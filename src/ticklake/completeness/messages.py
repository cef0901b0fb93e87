"""The messages of a run: what its topics tell of batch files, and announcing files that no topic tells of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ticklake.completeness.errors import RunNeverAnnounced
from ticklake.completeness.files import Files
from ticklake.completeness.reports import MessagesVerdict
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
    """The topics of a run that tell of its files, in all databases that were given.

    `runs` is the run in each database that has it; it is empty once a database was found damaged.
    """

    def __init__(self, run_id: str, databases: Sequence[Database], topic: str | None = None) -> None:
        """`topic` is the one that batches are announced on; the default is the one that has such messages."""
        self._run_id, self._databases, self._topic = run_id, databases, topic
        self.runs = runs_in(databases, run_id)

    @property
    def topic(self) -> str:
        """The topic that files are announced on."""
        return self._announcing.topic if self._databases else BATCH_TOPIC

    def examine(self, files: Files, *, deeply: bool) -> MessagesVerdict | None:
        """Compares the files with every topic; None without a database. `deeply` checks the databases themselves.

        A damaged database is not asked any further: tables and files can be judged without it.
        """
        try:
            for run in self.runs if deeply else []:
                run.check()
            return self._compared(files, self._telling())
        except DatabaseDamaged as error:
            self.runs = []
            return MessagesVerdict(0, [], [], 0, [], str(error))

    def compare(self, files: Files, *, create: bool) -> MessagesVerdict | None:
        """Compares the files with the topic they are announced on; None without a database.

        Refused if no database has the run, unless `create` allows that.
        """
        if self._databases and not self.runs and not create:
            raise RunNeverAnnounced(run_id=self._run_id)
        return self._compared(files, self._announcing.existing()) if self._databases else None

    def announce(self, storage: Storage, keys: Sequence[str]) -> None:
        """Announces these files. Does nothing without a database."""
        if self._databases and keys:
            run, topic = self._announcing.create()
            publish(run, storage, keys, topic)

    def _compared(self, files: Files, topics: Sequence[Topic]) -> MessagesVerdict | None:
        if not self._databases:
            return None
        heard = together([announced(run, topic) for run, topic in topics])
        difference, end = compare(files.by_key, heard), files.expected.last_tick
        since = files.now() if difference.vanished else {}
        return MessagesVerdict(
            messages=heard.messages,
            unannounced=difference.unannounced,
            vanished=[key for key in difference.vanished if key not in since],
            undecodable=difference.undecodable,
            groups=groups_of(self._databases, self._run_id),
            beyond=[key for key, ticks in heard.keys.items() if end is not None and ticks.end > end],
            removed=len(heard.removed),
        )

    @cached_property
    def _announcing(self) -> Destination:
        return destination_of(self._databases, self._run_id, BatchInfo, BATCH_TOPIC, self._topic)

    def _telling(self) -> list[Topic]:
        """Every topic that tells of files."""
        if self._topic is not None:
            return [Topic(run, self._topic) for run in self.runs]
        usual = [Topic(run, BATCH_TOPIC) for run in self.runs]
        return usual + [one for one in topics_with(self.runs, BatchInfo) if one.name != BATCH_TOPIC]


def together(told: Sequence[Announced]) -> Announced:
    """What several topics tell, as if one did."""
    keys = {key: ticks for one in told for key, ticks in one.keys.items()}
    removed = frozenset(key for one in told for key in one.removed)
    return Announced(keys, sum(one.messages for one in told), sum(one.undecodable for one in told), removed)
