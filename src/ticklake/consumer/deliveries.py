"""Messages in a consumer, with their event ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from google.protobuf.message import Message as Payload

from ticklake.consumer.errors import InvalidEventId
from ticklake.consumer.outbox import Result
from ticklake.topics import Message


class Delivery(NamedTuple):
    """A message and the id of its event."""

    event_id: str
    message: Message


@dataclass
class Outcome:
    """The result of a transaction. `left` were not started. Another consumer is processing `elsewhere`."""

    finished: list[Message] = field(default_factory=list)
    duplicates: list[Message] = field(default_factory=list)
    failed: list[tuple[Delivery, Exception]] = field(default_factory=list)
    left: list[Delivery] = field(default_factory=list)
    elsewhere: list[Message] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


def first_of_each_event(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Returns the first delivery of each event, and all other deliveries."""
    firsts = {delivery.event_id: delivery for delivery in reversed(deliveries)}
    others = [delivery for delivery in deliveries if firsts[delivery.event_id] is not delivery]
    return [delivery for delivery in deliveries if firsts[delivery.event_id] is delivery], others


def copied(payload: Payload) -> Payload:
    """Copies a payload for one attempt. The handler may change it, but the next attempt must get the original."""
    copy = type(payload)()
    copy.CopyFrom(payload)
    return copy


def payloads_of(returned: Any) -> Iterable[Payload]:
    """Returns the result of a handler as several payloads."""
    one = isinstance(returned, Payload) or not isinstance(returned, Iterable)  # a Struct is iterable, too
    return [returned] if one else returned


def uuid_of(event_id: str | UUID) -> str:
    """Returns the standard spelling of an event id. Raises `InvalidEventId` if it is not a UUID."""
    try:
        return str(event_id if isinstance(event_id, UUID) else UUID(event_id))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidEventId(event_id=event_id) from error
