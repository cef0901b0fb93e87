"""Idempotent consumers: each event is processed once, even if its message is delivered several times."""

from __future__ import annotations

from ticklake.consumer.decorator import ConsumerFunction, consumer
from ticklake.consumer.idempotent import IdempotentConsumer
from ticklake.consumer.outbox import Outbox
from ticklake.consumer.processed import ProcessedMessages
from ticklake.consumer.relay import Relay

__all__ = ["ConsumerFunction", "IdempotentConsumer", "Outbox", "ProcessedMessages", "Relay", "consumer"]
