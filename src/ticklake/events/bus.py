"""Publishing events to whoever has subscribed in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import uuid4

from ticklake.events.event import Event


class Receipt(Protocol):
    """A subscriber's promise to make events durable."""

    def wait(self) -> None:
        """Return once they are on disk; raise where they are not."""


Subscriber = Callable[[Sequence[Event]], Receipt | None]
"""Takes events in order. It may block while it has no room, and raises what it cannot take."""


class EventBus:
    """Hands every event to every subscriber, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: dict[str, Subscriber] = {}

    def subscribe(self, subscriber: Subscriber) -> str:
        """From now on `subscriber` gets every event. Returns the subscription's id."""
        subscription = str(uuid4())
        with self._lock:
            self._subscribers = {**self._subscribers, subscription: subscriber}
        return subscription

    def unsubscribe(self, subscription: str) -> bool:
        """End a subscription. False if there is none with this id."""
        with self._lock:
            found = subscription in self._subscribers
            self._subscribers = {key: value for key, value in self._subscribers.items() if key != subscription}
        return found

    def publish(self, event: Event, wait: bool = True) -> None:
        """Returns once every subscriber has the event on disk. `wait=False` accepts that a crash may lose it."""
        self.publish_many((event,), wait)

    def publish_many(self, events: Sequence[Event], wait: bool = True) -> None:
        """All of them, in this order; every subscriber is asked before the first error is raised."""
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
