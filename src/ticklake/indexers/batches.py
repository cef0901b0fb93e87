"""Sources of batches: a topic, from which they are claimed, or a storage, in which they are listed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self

from ticklake.backoff import pause_after
from ticklake.contracts import BatchInfo
from ticklake.database import OUTAGES
from ticklake.errors import TickLakeError
from ticklake.indexers.errors import KeyOfAnotherRun, NotABatchMessage
from ticklake.indexers.suspects import Suspects
from ticklake.lake.delta import Location
from ticklake.lake.empty import Ticks
from ticklake.lake.errors import StorageUnavailable, TableUnreadable
from ticklake.lake.slices import Slice
from ticklake.lake.verify import table_id
from ticklake.monitoring import Monitor
from ticklake.storage import BatchFile, Storage, check_key, parse_batch_name
from ticklake.ticks import TickRange
from ticklake.topics import Database, Message, ProcessedBatches, Run, TopicReader

log = logging.getLogger(__name__)

_STORAGE_DELAY = 5.0
_FIRST_DELAY = 1.0
_MAX_DELAY = 60.0
_PAGE = 50_000

HasTicks = Callable[[TickRange], bool]
"""Returns whether a table has all of these ticks."""


@dataclass(frozen=True, eq=False)
class Delivery:
    """A batch file for an indexer: the ticks to index, and the message that announced it, if any."""

    file: BatchFile
    ticks: TickRange
    message: Message | None = None
    alone: bool = False
    """Whether its process may die of it. Then it is flushed while nothing else is held."""
    present: list[Ticks] = field(default_factory=list)
    """The ticks that are in the table, one array per flushed part. Complete once the batch is done."""

    def slice(self, ticks: TickRange, whole: TickRange | None = None) -> Slice:
        if self.message is None:
            return Slice(self.file, ticks, whole=whole)
        message_id, claim_version = self.message.id, self.message.claim_version
        return Slice(self.file, ticks, whole=whole, message_id=message_id, claim_version=claim_version)


class Batches(Protocol):
    """A source of batches for the flush loop."""

    def poll(self, limit: int, timeout: float) -> Sequence[Delivery]: ...

    @property
    def exhausted(self) -> bool:
        """Whether all remaining batches are held by this indexer: none is left to claim, and others hold none."""

    @property
    def lease(self) -> float:
        """Seconds after which another indexer may claim a batch that was not renewed; 0: never."""

    def done(self, deliveries: Sequence[Delivery]) -> None: ...

    def fail(self, delivery: Delivery, error: str) -> None: ...

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Extends the leases. Returns the deliveries whose claims were lost."""

    def release(self, deliveries: Sequence[Delivery]) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Pending(Protocol):
    """Tells which runs have work."""

    asks_again: ClassVar[bool]
    """Whether work can appear some time after a change. Then a run is asked again for a while."""

    def stamps(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Returns a value for each run that may have work. It changes if the run does; None: it has just changed."""

    def is_left(self, run_id: str) -> bool:
        """Returns whether a run has work."""


class RunsSource(ABC):
    """A source of batches other than a topic, from which an indexer can work on many runs."""

    gauges: ClassVar[Sequence[str]] = ()
    """The metrics of one run that are added up."""

    @abstractmethod
    def __call__(self, run_id: str, monitor: Monitor) -> Batches:
        """Opens the batches of a run."""

    @abstractmethod
    def on(self, database: Database) -> RunsSource:
        """Returns the same source with another connection to its database."""

    @abstractmethod
    def count(self, run_id: str) -> int:
        """Returns the number of files of a run that are not indexed. Failed files do not count."""

    @property
    @abstractmethod
    def pending(self) -> Pending: ...


class TopicBatches(AbstractContextManager["TopicBatches"]):
    """Batches that a topic announces. A batch is marked as processed in the transaction of its ack."""

    def __init__(
        self,
        run: Run,
        reader: TopicReader,
        lease: float,
        storage: Storage,
        monitor: Monitor,
        processed: ProcessedBatches | None,
        has_ticks: HasTicks | None = None,
    ) -> None:
        """A batch that is marked as processed is skipped if the table `has_ticks` of it, or if there is no table."""
        self._run, self._reader, self._storage, self._monitor = run, reader, storage, monitor
        self._processed, self._has_ticks = processed, has_ticks
        self._held: set[str] = set()
        self._found_nothing = False
        self._suspects = Suspects(monitor)
        self.lease = lease

    @property
    def exhausted(self) -> bool:
        lag = self._run.groups.lag
        return self._found_nothing and lag(self._reader.topic, self._reader.group) <= len(self._held)

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        messages = self._reader.poll_many(limit, timeout)
        self._found_nothing = not messages
        found = [delivery for message in messages if (delivery := self._delivery(message)) is not None]
        self._held.update(delivery.message.id for delivery in found if delivery.message)
        return found

    def done(self, deliveries: Sequence[Delivery]) -> None:
        messages = self._remove_held(deliveries)
        if not messages:
            return
        if self._processed is None or not self._mark_and_ack(self._processed, deliveries, messages):
            self._reader.ack_many(messages)

    def fail(self, delivery: Delivery, error: str) -> None:
        for message in self._remove_held([delivery]):
            self._fail(message, error)

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        held = self._reader.extend([delivery.message for delivery in deliveries if delivery.message is not None])
        lost = [delivery for delivery, mine in zip(deliveries, held, strict=True) if not mine]
        self._remove_held(lost)
        return lost

    def release(self, deliveries: Sequence[Delivery]) -> None:
        self._reader.release(self._remove_held(deliveries))

    def wake(self) -> None:
        self._reader.wake()

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mark_and_ack(
        self, processed: ProcessedBatches, deliveries: Sequence[Delivery], messages: Sequence[Message]
    ) -> bool:
        """Marks and acknowledges in one transaction. Returns False if this fails; the mark only saves work."""
        try:
            with self._run.transaction() as transaction:
                processed.limit_waiting(transaction)
                processed.mark([delivery.file.key for delivery in deliveries], connection=transaction)
                self._reader.ack_many(messages, connection=transaction)
        except TickLakeError as error:
            self._monitor.errors.record("MARK_FAILED", error)
            log.warning("Acknowledging %d batches that could not be marked as processed: %s", len(deliveries), error)
            return False
        return True

    def _remove_held(self, deliveries: Sequence[Delivery]) -> list[Message]:
        messages = [delivery.message for delivery in deliveries if delivery.message is not None]
        self._held.difference_update(message.id for message in messages)
        return messages

    def _delivery(self, message: Message) -> Delivery | None:
        """Returns the announced batch; None if it is already processed or cannot be read."""
        try:
            info = self._info(message)
            if self._is_processed(info.storage_key):
                self._monitor.counter("batches_skipped").add()
                self._reader.ack(message)
                return None
            file = self._storage.batch(info.storage_key)
            if alone := self._reader.is_suspect(message):
                losses = message.claim_version - message.attempts
                if seconds := self._suspects.seconds_until_try(losses):
                    self._reader.release([message], delay=seconds)
                    return None
                self._suspects.report(file.key, losses, message.claim_version)
            return Delivery(file, file.ticks, message, alone=alone)
        except OUTAGES as error:
            self._monitor.errors.record("DATABASE_UNAVAILABLE", error)
            log.warning("%s", error)
            with suppress(*OUTAGES):  # if it is not released, the claim expires
                self._reader.release([message])
            return None
        except (TickLakeError, OSError) as error:
            if self._storage.reachable(self._run.id):
                self._fail(message, str(error))
            else:
                self._release_with_delay(message, error)
            return None

    def _release_with_delay(self, message: Message, error: Exception) -> None:
        """Releases a message while the storage is unavailable. This does not count as a delivery attempt."""
        unavailable = StorageUnavailable(storage=self._storage.url, reason=error)
        self._monitor.errors.record("STORAGE_UNAVAILABLE", unavailable)
        log.warning("%s", unavailable)
        self._reader.release([message], delay=_STORAGE_DELAY)

    def _info(self, message: Message) -> BatchInfo:
        info = message.payload
        if not isinstance(info, BatchInfo) or info.simulation_run_id != self._run.id:
            raise NotABatchMessage(message_id=message.id, topic=message.topic, run_id=self._run.id)
        check_run_of_key(message, info.storage_key, self._run.id)
        return info

    def _is_processed(self, key: str) -> bool:
        if self._processed is None:
            return False
        try:
            return self._processed.contains(key) and (self._has_ticks is None or _has_ticks_of(key, self._has_ticks))
        except (TickLakeError, OSError) as error:
            # A mark only saves work. The flush finds out which ticks the table has.
            log.debug("Could not check whether %s is processed, so it is read: %s", key, error)
            return False

    def _fail(self, message: Message, error: str) -> None:
        self._monitor.counter("batches_failed").add()
        self._monitor.errors.record("BATCH_FAILED", error, f"message {message.id}, delivery {message.attempts}")
        delay = pause_after(message.attempts, first=_FIRST_DELAY, longest=_MAX_DELAY)
        if not self._reader.fail(message, error, delay=delay):
            log.warning("Batch of message %s failed, trying again in %g seconds: %s", message.id, delay, error)


def _has_ticks_of(key: str, has_ticks: HasTicks) -> bool:
    """Returns whether the table has the ticks of a file. It may have lost them: it can be restored from an old copy."""
    ticks = parse_batch_name(key.rpartition("/")[2])
    return ticks is not None and has_ticks(ticks)


def check_run_of_key(message: Message, key: str, run_id: str) -> None:
    """Raises `KeyOfAnotherRun` for a file of another run. No later check would find it: its ticks look the same."""
    if check_key(key)[0] != run_id:
        raise KeyOfAnotherRun(message_id=message.id, topic=message.topic, run_id=run_id, key=key)


class StoredBatches(AbstractContextManager["StoredBatches"]):
    """The batch files of a run as the storage lists them, in tick order, each once. Needs no topic."""

    lease = 0.0
    ticks_before = 0

    def __init__(self, storage: Storage, run_id: str, monitor: Monitor, ticks: TickRange | None = None) -> None:
        self._storage, self._run_id, self._monitor, self._ticks = storage, run_id, monitor, ticks
        self._token: str | None = None
        self._listed: deque[BatchFile] = deque()
        self._all_listed = False
        self.failed: dict[str, str] = {}

    def poll(self, limit: int, timeout: float) -> list[Delivery]:  # noqa: ARG002  listing does not wait
        if not self._listed and not self._all_listed:
            page = self._storage.batches(self._run_id, after=self._token, ticks=self._ticks, limit=_PAGE)
            self._listed.extend(page.files)
            self._token = page.token
            self._all_listed = page.token is None
        files = [self._listed.popleft() for _ in range(min(limit, len(self._listed)))]
        return [Delivery(file, file.ticks.within(self._ticks)) for file in files]

    @property
    def exhausted(self) -> bool:
        return self._all_listed and not self._listed

    def done(self, deliveries: Sequence[Delivery]) -> None:
        """Does nothing: the table records its ticks."""

    def fail(self, delivery: Delivery, error: str) -> None:
        self._monitor.counter("batches_failed").add()
        self._monitor.errors.record("BATCH_FAILED", error, delivery.file.key)
        log.warning("Batch %s failed: %s", delivery.file.key, error)
        self.failed[delivery.file.key] = error

    def renew(self, deliveries: Sequence[Delivery]) -> list[Delivery]:  # noqa: ARG002  there are no claims
        return []

    def release(self, deliveries: Sequence[Delivery]) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def id_at(url: str, own: str = "") -> str | None:
    """Returns the id of the table at a location; None if there is no readable table, or if `own` is the same place."""
    location = Location.of(url)
    try:
        found = table_id(location)
    except TableUnreadable:
        return None
    return None if own and location.is_same(Location.of(own)) else found
