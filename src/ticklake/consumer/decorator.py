"""The short way to a consumer: a decorated function."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from ticklake.consumer.idempotent import Handler, IdempotentConsumer
from ticklake.database import Transaction
from ticklake.topics import Run


class ConsumerFunction:
    """A function that is also a consumer: call it as it is, or open a consumer of a run with `on(run)`."""

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
        """A consumer of this run; use it in a `with` block."""
        return IdempotentConsumer(run, self.topic, self.group, self._function, self.publishes, **self._options)


def consumer(
    topic: str, *, group: str, publishes: str | None = None, **options: Any
) -> Callable[[Handler], ConsumerFunction]:
    """`@consumer("ingestion-topic", group="validation-consumer-group", publishes="validation-topic")`.

    Options are those of `IdempotentConsumer`.
    """
    return lambda function: ConsumerFunction(function, topic, group, publishes, options)
