"""Idempotent consumers: each event's work and its results happen once, however often its message is delivered."""

from __future__ import annotations

from ticklake.consumer.decorator import ConsumerFunction, consumer
from ticklake.consumer.idempotent import IdempotentConsumer
from ticklake.consumer.outbox import Outbox
from ticklake.consumer.processed import ProcessedMessages
from ticklake.consumer.relay import Relay

__all__ = ["ConsumerFunction", "IdempotentConsumer", "Outbox", "ProcessedMessages", "Relay", "consumer"]
