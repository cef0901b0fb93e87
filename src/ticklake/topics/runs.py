"""The entry point: a database, its runs, and their topics."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import TracebackType

from ticklake import defaults
from ticklake.checks.numbers import InvalidOption, check_count, check_seconds
from ticklake.database import Backend, Listener, Schema, Transaction, open_backend
from ticklake.database.errors import DatabaseDamaged, DatabaseUnavailable, RunNotInDatabase, TransactionAborted
from ticklake.database.names import check_name
from ticklake.database.versions import PackageVersion, package_versions
from ticklake.monitoring import METRICS_WINDOW_SECONDS, Monitor
from ticklake.topics.admin import (
    Claims,
    DeadLetters,
    Groups,
    Retention,
    StoredMessage,
    TopicStatus,
    count_after,
    list_topics,
    position_before_last,
    position_of,
    remove_outdated,
    stored_messages,
    topic_names,
)
from ticklake.topics.errors import MissingConsumerGroup, SchemaOutdated
from ticklake.topics.metrics import TopicEnd, TopicMetrics
from ticklake.topics.publisher import Publisher
from ticklake.topics.reader import TopicReader, new_consumer_id
from ticklake.topics.removed import files as removed_files
from ticklake.topics.removed import topics as topics_of_removed_files
from ticklake.topics.store import (
    PACKAGE,
    Consumer,
    OpenTransaction,
    TopicStore,
    check_not_reserved,
    has_foreign_numbers,
)
from ticklake.topics.writer import TopicWriter

_log = logging.getLogger(__name__)
HELD_BACK_SECONDS = 60.0
MIN_IDLE = 2
MOST_ATTEMPTS = 2_000_000_000


class Database:
    """`sqlite:///DIRECTORY` (one file a run) or `postgresql://…` (one schema a run). Connects on first use."""

    def __init__(
        self,
        url: str,
        *,
        max_pool_size: int = 10,
        min_idle: int | None = None,
        metrics_window_seconds: float = METRICS_WINDOW_SECONDS,
        backend: Backend | None = None,
    ) -> None:
        check_count("max_pool_size", max_pool_size, least=1)
        min_idle = min(MIN_IDLE, max_pool_size) if min_idle is None else min_idle
        check_count("min_idle", min_idle, most=max_pool_size)
        check_seconds("metrics_window_seconds", metrics_window_seconds, above_zero=True)
        self.url = url
        self._backend = backend or open_backend(url, max_pool_size=max_pool_size, min_idle=min_idle)
        self._window_seconds = metrics_window_seconds
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}

    def run(self, run_id: str, *, create: bool = True) -> Run:
        """Returns a run. Its tables are created or upgraded on first use.

        With `create=False`, raises `RunNotInDatabase` if there is no such run. Then only writers and readers upgrade
        its tables; all other methods raise `SchemaOutdated` for tables of an older version.
        """
        schema = self._backend.schema(run_id, create=create)
        with self._lock:
            if run_id not in self._runs:
                self._runs[run_id] = Run(schema, self._window_seconds, upgrades=create)
            run = self._runs[run_id]
            run.upgrades = run.upgrades or create
            return run

    def runs(self) -> list[str]:
        """Returns the ids of all runs in the database."""
        return self._backend.runs()

    def stamps(self, run_ids: Sequence[str]) -> dict[str, object]:
        """Returns a value for each of these runs that is there. It changes, sooner or later, after every write to it.

        None means that it was written to just now. A look at 10,000 runs costs little, because no run is opened.
        """
        return self._backend.stamps(run_ids)

    def drop(self, run_id: str) -> bool:
        """Removes a run with all of its topics, groups and other tables. Returns whether there was one.

        Readers and writers of the run fail afterwards.
        """
        with self._lock:
            self._runs.pop(run_id, None)
        return self._backend.drop(run_id)

    def branch(self) -> Database:
        """Returns the same database with runs of its own. Closing it frees what they use and leaves this one open."""
        return Database(self.url, metrics_window_seconds=self._window_seconds, backend=self._backend.branch())

    @property
    def damaged(self) -> list[str]:
        """Why runs are missing in the last result of `runs`: their files cannot be read."""
        return self._backend.damaged

    @property
    def opened(self) -> list[Run]:
        """The runs that were opened with `run` so far."""
        with self._lock:
            return list(self._runs.values())

    def close(self) -> None:
        """Closes all connections. Readers and writers of its runs cannot be used any more."""
        self._backend.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def runs_in(databases: Iterable[Database], run_id: str) -> list[Run]:
    """Opens a run in each database that has it. The topics of a run may be in several databases."""
    found = []
    for database in databases:
        with suppress(RunNotInDatabase):
            found.append(database.run(run_id, create=False))
    return found


class Run:
    """A run: its topics, and transactions in its tables."""

    def __init__(
        self, schema: Schema, window_seconds: float = METRICS_WINDOW_SECONDS, *, upgrades: bool = True
    ) -> None:
        """`upgrades`: whether tables of an older version are upgraded. Code that only reads must not do that."""
        self.id = schema.run_id
        self.upgrades = upgrades
        self._current: set[str] = set()
        self._numbers_checked = False
        self._metrics = TopicMetrics(schema, window_seconds)
        self._schema = schema
        self._lock = threading.Lock()
        self._opened: tuple[TopicStore, Publisher] | None = None

    def writer(self, topic: str, *, patience: float = defaults.SEND_PATIENCE_SECONDS) -> TopicWriter:
        """Opens a writer to a topic. The topic exists once it has a message.

        While the database is away, `send` retries for `patience` seconds, then it raises.
        """
        check_seconds("patience", patience)
        return self._writer(check_not_reserved(check_name("topic", topic)), patience)

    def baton_writer(self, topic: str) -> TopicWriter:
        """Opens a writer to the topic of a baton. Only relays use it: any other message there confuses operators."""
        return self._writer(topic, defaults.SEND_PATIENCE_SECONDS)

    def _writer(self, topic: str, patience: float) -> TopicWriter:
        self.upgrades = True
        store, publisher = self._topics()
        return TopicWriter(store, publisher, topic, self._metrics, patience)

    def reader(
        self,
        topic: str,
        *,
        group: str,
        claim_timeout: float = defaults.CLAIM_TIMEOUT_SECONDS,
        max_delivery_attempts: int = defaults.MAX_DELIVERY_ATTEMPTS,
        consumer: str | None = None,
        max_unacknowledged: int = 10_000,
        start: str = "earliest",
        redeliver_alone: bool = False,
    ) -> TopicReader:
        """Opens a consumer of `group`. A new group starts at the `earliest` message or at the `end`.

        `redeliver_alone`: a poll returns a message alone if it may be what ends its process: its claim was lost after
        its second delivery, or it was delivered before and has only two deliveries left. So it cannot make other
        messages dead letters, unless `max_delivery_attempts` is 1: then the first delivery is the last.
        """
        check_name("topic", topic)
        if not isinstance(group, str) or not group.strip():
            raise MissingConsumerGroup(topic=topic)
        check_seconds("claim_timeout", claim_timeout)
        check_count("max_delivery_attempts", max_delivery_attempts, least=1, most=MOST_ATTEMPTS)
        check_count("max_unacknowledged", max_unacknowledged, least=1)
        if start not in ("earliest", "end"):
            raise InvalidOption(option="start", value=start, allowed="earliest or end")
        identity = Consumer(
            topic=topic,
            group=check_name("consumer group", group),
            id=check_name("consumer", consumer or new_consumer_id()),
            lease_ms=math.ceil(claim_timeout * 1000),
            max_attempts=max_delivery_attempts,
            alone=redeliver_alone,
        )
        self.upgrades = True
        store, _ = self._topics()
        store.join(topic, group, at_end=start == "end")
        return TopicReader(store, identity, self._metrics, max_unacknowledged=max_unacknowledged)

    def transaction(self, *, durable: bool = True, patient: bool = True) -> AbstractContextManager[Transaction]:
        """Begins a transaction in all tables of this run. Pass it to other methods as `connection=`.

        `durable=False` is faster, but a power cut may undo it: use it for work that is then repeated.
        `patient=False` raises `DatabaseUnavailable` at once if the server does not answer, instead of after a while.
        """
        self._topics()
        return self._schema.transaction(durable=durable, patient=patient)

    def reading(self) -> AbstractContextManager[Transaction]:
        """Opens a consistent snapshot of this run. It cannot write and creates no tables: see `prepare`."""
        self._schema.check_process()
        return self._schema.reading()

    def prepare(self, package: str) -> None:
        """Creates or upgrades the tables of a package (`<package>/sql/<dialect>/schema/001_….sql`) in this run."""
        if not self.upgrades and self._is_current(package):
            return
        self._schema.prepare(package)

    def _is_current(self, package: str) -> bool:
        """Returns whether the tables of a package exist. Raises `SchemaOutdated` if they have an older version."""
        if package not in self._current:
            for found in self.versions():
                if found.package == package and found.wanted is not None and found.state == "behind":
                    raise SchemaOutdated(package=package, run_id=self.id, found=found.version, known=found.wanted)
                if found.package == package and found.state == "current":
                    self._current.add(package)
        return package in self._current

    def has_tables_of(self, package: str) -> bool:
        """Returns whether this run has the tables of a package. Creates none."""
        return any(found.package == package for found in self.versions())

    def versions(self) -> list[PackageVersion]:
        """Returns the version of the tables of each package. Upgrades none."""
        return package_versions(self._schema)

    def has_foreign_numbers(self) -> bool:
        """Returns whether the run was restored from a PostgreSQL server with higher transaction numbers. Only reads."""
        return has_foreign_numbers(self._schema)

    @property
    def monitor(self) -> Monitor:
        """The metrics of all readers and writers of this run in this process."""
        return self._metrics.monitor

    def ends(self) -> list[TopicEnd]:
        """Returns the metrics of the readers and writers of each topic in this process."""
        return self._metrics.ends()

    def check(self) -> None:
        """Reads the whole SQLite file and raises `DatabaseDamaged` if it is damaged. Does nothing for a server."""
        if flaws := self._schema.flaws():
            raise DatabaseDamaged(database=self._schema.name, reason="; ".join(flaws[:3]))

    def now_ms(self) -> int:
        """Returns the time of the database, in milliseconds since 1970."""
        self._topics()
        return self._schema.now_ms()

    @property
    def groups(self) -> Groups:
        """The consumer groups: their lag and their positions."""
        return Groups(self._topics()[0])

    @property
    def claims(self) -> Claims:
        """The messages that consumers hold."""
        return Claims(self._topics()[0])

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that groups do not try any more."""
        return DeadLetters(self._topics()[0])

    def held_back_by(self, seconds: float = HELD_BACK_SECONDS) -> OpenTransaction | None:
        """Returns the transaction that blocks PostgreSQL's vacuum for more than `seconds`; None if there is none."""
        check_seconds("seconds", seconds)
        oldest = self._topics()[0].oldest_transaction()
        return oldest if oldest is not None and oldest.seconds > seconds else None

    def topics(self) -> list[TopicStatus]:
        """Returns all topics and the number of their messages."""
        return list_topics(self._topics()[0])

    def topic_names(self) -> list[str]:
        """Returns the names of all topics. Counts nothing, so it is cheap."""
        return topic_names(self._topics()[0])

    def browse(
        self, topic: str, *, after: int = 0, limit: int | None = None, group: str | None = None
    ) -> list[StoredMessage]:
        """Returns all messages after an id, without claiming them; with `group`, also their state for that group.

        A topic may have more messages than memory. With `limit` this is a page; the next one is after its last id.
        """
        return stored_messages(self._topics()[0], topic, after=after, limit=limit, group=group)

    def browse_last(self, topic: str, count: int, *, group: str | None = None) -> list[StoredMessage]:
        """Returns the last `count` messages, without claiming them."""
        return self.browse(topic, after=self.position_before_last(topic, count), limit=count, group=group)

    def position_before_last(self, topic: str, count: int) -> int:
        """Returns the id before the last `count` messages, for `browse`. If `count` is 0, the end."""
        return position_before_last(self._topics()[0], topic, count)

    def position_of(self, topic: str, message_id: str) -> int:
        """Returns the id of a message, for `browse`; of `earliest`, the one before the first message."""
        return position_of(self._topics()[0], topic, message_id)

    def count_after(self, topic: str, position: int) -> int:
        """Returns the number of messages after an id."""
        return count_after(self._topics()[0], topic, position)

    def listen(self, topic: str) -> Listener:
        """Opens a listener that waits for the next message, without claiming it."""
        return self._topics()[0].listen(topic)

    def remove_outdated(
        self,
        topic: str,
        *,
        max_age: float | None = None,
        max_count: int | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Removes messages that are older than `max_age` seconds or not among the newest `max_count`. Returns how many.

        Messages with an open claim or a dead letter are kept. So are, unless forced, messages that a group still needs.
        """
        keep = Retention(max_age, max_count)
        return remove_outdated(self._topics()[0], topic, keep, force=force, dry_run=dry_run)

    def removed_files(self, topic: str) -> frozenset[str]:
        """Returns the keys of the files whose messages were removed by retention."""
        return removed_files(self._schema, topic)

    def topics_with_removed_files(self) -> list[str]:
        """Returns the topics of removed messages. They may have no messages and no groups any more."""
        return topics_of_removed_files(self._schema)

    def processed(self, indexer_class: str) -> ProcessedBatches:
        """Returns the batches that an indexer class has processed."""
        store, _ = self._topics()
        return ProcessedBatches(store, check_name("indexer class", indexer_class))

    def _topics(self) -> tuple[TopicStore, Publisher]:
        self._schema.check_process()
        with self._lock:
            if self._opened is None:
                self.prepare(PACKAGE)
                store = open_store(self._schema)
                on_error = partial(self._metrics.monitor.errors.record, "DATABASE_UNAVAILABLE")
                self._opened = (store, Publisher(store, on_error))
            if self.upgrades and not self._numbers_checked:
                self._renumber(self._opened[0])
                self._numbers_checked = True
            return self._opened

    def _renumber(self, store: TopicStore) -> None:
        """After a restore, makes claims fast and the lag correct. If that fails, the next process tries again."""
        try:
            messages = store.renumber()
        except (DatabaseUnavailable, TransactionAborted) as error:
            self.monitor.errors.record("FOREIGN_NUMBERS", error, f"run {self.id}")
            _log.warning("FOREIGN_NUMBERS run=%s: claims are slow, and the lag may be too high: %s", self.id, error)
            return
        if messages is not None:
            _log.info("Run %s was restored from another server: renumbered %d messages", self.id, messages)


class ProcessedBatches:
    """The batches that an indexer class has processed (`idempotency_tracking`). They only save work."""

    def __init__(self, store: TopicStore, indexer_class: str) -> None:
        self._store = store
        self._indexer_class = indexer_class

    def contains(self, batch_id: str) -> bool:
        """Returns whether a batch is marked."""
        return self._store.processed(self._indexer_class, batch_id)

    def limit_waiting(self, connection: Transaction) -> None:
        """Makes the transaction fail with `TransactionAborted` if it has to wait long for a lock."""
        self._store.limit_waiting(connection)

    def mark(self, batch_ids: Iterable[str], connection: Transaction | None = None) -> None:
        """Marks batches, with `connection` in that transaction."""
        self._store.mark_processed(self._indexer_class, list(batch_ids), connection)


def open_store(schema: Schema) -> TopicStore:
    if schema.dialect == "sqlite":
        from ticklake.topics.store import SqliteTopicStore

        return SqliteTopicStore(schema)
    from ticklake.topics.store import PostgresTopicStore

    return PostgresTopicStore(schema)
