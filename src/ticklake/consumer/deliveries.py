"""Messages on their way through a consumer, with the event that each is about."""

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
    event_id: str
    message: Message


@dataclass
class Outcome:
    """What became of some deliveries in one transaction; `left` were not begun, `elsewhere` another one is doing."""

    finished: list[Message] = field(default_factory=list)
    duplicates: list[Message] = field(default_factory=list)
    failed: list[tuple[Delivery, Exception]] = field(default_factory=list)
    left: list[Delivery] = field(default_factory=list)
    elsewhere: list[Message] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


def apart(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """The first delivery of each event, and its twins."""
    firsts = {delivery.event_id: delivery for delivery in reversed(deliveries)}
    twins = [delivery for delivery in deliveries if firsts[delivery.event_id] is not delivery]
    return [delivery for delivery in deliveries if firsts[delivery.event_id] is delivery], twins


def copied(payload: Payload) -> Payload:
    """For one attempt: a handler may change what it gets, and the next attempt begins with what was sent."""
    copy = type(payload)()
    copy.CopyFrom(payload)
    return copy


def payloads_of(returned: Any) -> Iterable[Payload]:
    one = isinstance(returned, Payload) or not isinstance(returned, Iterable)  # a Struct can be iterated over, too
    return [returned] if one else returned


def uuid_of(event_id: str) -> str:
    """One spelling for each id."""
    try:
        return str(UUID(event_id))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidEventId(event_id=event_id) from error
