"""A decorator that makes a function a consumer."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from ticklake.checks.numbers import check_function
from ticklake.consumer.idempotent import Handler, IdempotentConsumer
from ticklake.database import Transaction
from ticklake.topics import Run


class ConsumerFunction:
    """A decorated function. It can still be called, and `on(run)` opens a consumer."""

    def __init__(self, function: Handler, topic: str, group: str, publishes: str | None, options: Any) -> None:
        update_wrapper(self, function)
        self.topic = topic
        self.group = group
        self.publishes = publishes
        self._function = function
        self._options = options

    def __call__(self, payload: Any, transaction: Transaction) -> Any:
        return self._function(payload, transaction)

    def on(self, run: Run) -> IdempotentConsumer:
        """Opens a consumer of this run. Use it in a `with` block."""
        return IdempotentConsumer(run, self.topic, self.group, self._function, self.publishes, **self._options)


def consumer(
    topic: str, *, group: str, publishes: str | None = None, **options: Any
) -> Callable[[Handler], ConsumerFunction]:
    """Makes a handler a consumer. Accepts the options of `IdempotentConsumer`, and refuses a wrong `event_id` at once.

    Example: `@consumer("ingestion-topic", group="validation-consumer-group", publishes="validation-topic")`.
    """
    if "event_id" in options:
        check_function("event_id", options["event_id"])
    return lambda function: ConsumerFunction(function, topic, group, publishes, options)
