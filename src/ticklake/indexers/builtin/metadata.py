"""The metadata indexer: the run's `metadata` table, which every batch indexer waits for."""

from __future__ import annotations

import logging
import time
from typing import ClassVar

from ticklake.contracts import MetadataInfo
from ticklake.defaults import METADATA_TOPIC
from ticklake.errors import TickLakeError
from ticklake.indexers.base import Indexer
from ticklake.indexers.batches import check_run_of_key
from ticklake.indexers.components import stored_metadata
from ticklake.indexers.errors import DatabaseNeeded, MetadataNotAnnounced, NotAMetadataMessage
from ticklake.indexers.subscription import open_reader
from ticklake.lake.errors import LakeUnreadable, MetadataUnreadable
from ticklake.lake.metadata import TABLE, Written, read_metadata, write_metadata
from ticklake.topics import Message, Run, TopicReader
from ticklake.world import World

log = logging.getLogger(__name__)


LOST_SECONDS = 2.0
"""If the file is there and no message comes for so long, the message is lost: a crash came before it."""


class MetadataIndexer(Indexer):
    """Waits for one message, writes one table, and ends."""

    default_topic: ClassVar[str] = METADATA_TOPIC
    _reader: TopicReader | None = None

    def has_work(self, run: Run) -> bool:
        """Returns whether a run has a message, or a file without a table, whose message may be lost."""
        return super().has_work(run) or (not self._is_indexed(run.id) and self._has_file(run.id))

    def wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    def index_run(self, run_id: str) -> None:
        topic = self.resources.topic or METADATA_TOPIC
        if self.resources.database is None:
            raise DatabaseNeeded(name=self.name, topic=topic)
        run = self.resources.database.run(run_id)
        group = self.resources.group or self.name
        seconds = self.options.topic_poll_timeout_ms / 1000
        deadline = time.monotonic() + seconds
        self._rewrite_if_outdated(run_id)
        with open_reader(self.resources, run, topic, group, self.options) as self._reader:
            while self.proceed():
                # If the table exists, do not wait for a message.
                left = 0.0 if self._is_indexed(run_id) else deadline - time.monotonic()
                message = self._reader.poll(max(0.0, min(left, LOST_SECONDS)))
                if message is not None:
                    self._index(self._reader, message, run_id)
                elif not self.stopping and not self._is_indexed(run_id) and self._has_file(run_id):
                    log.info("Run %s: its metadata file was not announced; indexing it", run_id)
                    self.write(run_id)
                if self._is_indexed(run_id):
                    break
                if time.monotonic() >= deadline:
                    raise MetadataNotAnnounced(topic=topic, run_id=run_id, seconds=seconds)

    def _index(self, reader: TopicReader, message: Message, run_id: str) -> None:
        try:
            self.write(run_id, _storage_key(message, run_id))
        except TickLakeError as error:
            reader.fail(message, error)
            raise
        reader.ack(message)

    def write(self, run_id: str, key: str | None = None) -> None:
        """Writes the table from the metadata file with this key. Default: the file of the run."""
        storage = self.resources.storage
        metadata = storage.read_metadata(run_id) if key is None else storage.read_metadata_file(key)
        World.of(metadata)
        location = self.resources.tables.location(run_id, TABLE)
        written = write_metadata(location, metadata)
        if written is not None:
            self.monitor.counter("metadata_written").add()
        if written in (Written.CHANGED, Written.REPAIRED):
            event = f"METADATA_{written.name}"
            self.monitor.errors.record(event, f"{location} was written again from the run's metadata.pb")
            log.warning("%s: %s was written again from the run's metadata.pb", event, location)

    def _rewrite_if_outdated(self, run_id: str) -> None:
        """Writes an existing table again if it is damaged, or if the metadata file was corrected.

        No message announces a correction.
        """
        exists = self.resources.tables.location(run_id, TABLE).exists()
        if exists and self._has_file(run_id):
            self.write(run_id)

    def _has_file(self, run_id: str) -> bool:
        return stored_metadata(self.resources.storage, run_id) is not None

    def _is_indexed(self, run_id: str) -> bool:
        try:
            return read_metadata(self.resources.tables.location(run_id, TABLE), run_id) is not None
        except (LakeUnreadable, MetadataUnreadable):
            # A power cut may have damaged its first commit. Writing repairs this or raises the error.
            return False


def _storage_key(message: Message, run_id: str) -> str:
    info = message.payload
    if not isinstance(info, MetadataInfo) or info.simulation_run_id != run_id:
        raise NotAMetadataMessage(message_id=message.id, topic=message.topic, run_id=run_id)
    check_run_of_key(message, info.storage_key, run_id)
    return info.storage_key
