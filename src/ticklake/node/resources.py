"""Resources that services share: databases, queues, storages, lakes and Spark sessions, each opened once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from ticklake.config import NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.database.names import check_name
from ticklake.lake.flush import Sharing
from ticklake.lake.session import open_session, stop_session
from ticklake.services import TickQueue
from ticklake.storage import Storage
from ticklake.topics import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Resources:
    """The resources of one configuration, opened on first use."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.databases: dict[str, Database] = {}
        self.queues: dict[str, TickQueue] = {}
        self._spark_lock = threading.Lock()
        self._sessions: dict[str, SparkSession] = {}
        self._sharings: dict[tuple[str, str], Sharing] = {}

    def close(self) -> None:
        """Closes the databases, but not the Spark sessions: a job may still be active."""
        for database in self.databases.values():
            database.close()

    def stop_sessions(self) -> None:
        for session in self._sessions.values():
            stop_session(session)

    def sharing(self, lake: str, share: str | None) -> Sharing | None:
        """Returns the sharing of a name. Names are per lake: indexers that share need the same Spark session."""
        return self._sharings.setdefault((lake, share), Sharing()) if share else None

    def session(self, lake: str, options: given.SparkOptions) -> SparkSession:
        with self._spark_lock:
            self._sessions[lake] = open_session(options.master, options.settings)
            return self._sessions[lake]

    def storage(self, service: ServiceSettings) -> Storage:
        options = cast(given.StorageOptions, self._settings.of_kind(service.name, "Storage").options)
        return Storage(options.path, options.compress)

    def queue(self, service: ServiceSettings) -> TickQueue:
        queue = self._settings.of_kind(service.name, "Queue")
        if queue.name not in self.queues:
            options = cast(given.QueueOptions, queue.options)
            self.queues[queue.name] = TickQueue(options.max_ticks, options.max_bytes)
        return self.queues[queue.name]

    def topic(self, service: ServiceSettings) -> tuple[Database, str]:
        """Returns the name of the topic that a service is bound to, and its database."""
        topic = self._settings.of_kind(service.name, "Topic")
        return self.database(self._settings.database_of(topic.name)), check_name("topic", topic.name)

    def database(self, options: given.DatabaseOptions) -> Database:
        url = options.dsn()
        if url not in self.databases:
            self.databases[url] = Database(
                url,
                max_pool_size=options.max_pool_size,
                min_idle=options.min_idle,
                metrics_window_seconds=options.metrics_window_seconds,
            )
        return self.databases[url]
