"""Publishes events to the subscribers in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import uuid4

from ticklake.events.event import Event


class Receipt(Protocol):
    """A handle to wait until a subscriber has stored events."""

    def wait(self) -> None:
        """Returns once the events are on disk. Raises if they cannot be stored."""


Subscriber = Callable[[Sequence[Event]], Receipt | None]
"""A function that accepts events in order. It may block while it has no room, and raises if it refuses events."""


class EventBus:
    """Passes every event to every subscriber. Can be used from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: dict[str, Subscriber] = {}

    def subscribe(self, subscriber: Subscriber) -> str:
        """Adds a subscriber, which gets every event from now on. Returns the id of the subscription."""
        subscription = str(uuid4())
        with self._lock:
            self._subscribers = {**self._subscribers, subscription: subscriber}
        return subscription

    def unsubscribe(self, subscription: str) -> bool:
        """Ends a subscription. Returns False if there is none with this id."""
        with self._lock:
            found = subscription in self._subscribers
            self._subscribers = {key: value for key, value in self._subscribers.items() if key != subscription}
        return found

    def publish(self, event: Event, wait: bool = True) -> None:
        """Publishes an event and waits until every subscriber has stored it. Without `wait`, a crash may lose it."""
        self.publish_many((event,), wait)

    def publish_many(self, events: Sequence[Event], wait: bool = True) -> None:
        """Publishes events in this order to all subscribers. Then raises the first error, if any."""
        receipts: list[Receipt] = []
        errors: list[Exception] = []
        for subscriber in self._subscribers.values():
            try:
                receipt = subscriber(events)
            except Exception as error:
                errors.append(error)
            else:
                receipts += [receipt] if receipt is not None else []
        for receipt in receipts if wait else ():
            try:
                receipt.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
