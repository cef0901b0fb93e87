"""An event, and its line in a batch."""

from __future__ import annotations

import json
import math
import reprlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ticklake.database.names import check_name
from ticklake.errors import BadEvent, InvalidName


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Two with the same id are one; the payload is anything that JSON can say."""

    event_id: str
    type: str
    payload: Any = None
    timestamp: float = field(default_factory=time.time)

    @classmethod
    def new(cls, type_: str, payload: Any = None) -> Event:
        """One with an id that begins with the time: such ids are the cheapest to store."""
        from ticklake.topics.envelope import client_clock_ms, new_message_id

        return cls(new_message_id(client_clock_ms()), type_, payload)


class Line(NamedTuple):
    """An event as it is stored."""

    event_id: str
    text: bytes


def encode(event: Event) -> Line:
    try:
        check_name("event id", event.event_id)
        check_name("event type", event.type)
        if not math.isfinite(event.timestamp):
            raise ValueError(f"its timestamp is {event.timestamp}")
        text = _encoder.encode((event.event_id, event.type, event.timestamp, event.payload))
    except (InvalidName, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise BadEvent(
            event=reprlib.repr(getattr(event, "event_id", event)), reason=str(error) or type(error).__name__
        ) from error
    return Line(event.event_id, text.encode("ascii") + b"\n")


def decode(lines: bytes) -> list[Event]:
    try:
        stored = json.loads(b"[" + lines.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        return [Event(event_id, type_, payload, timestamp) for event_id, type_, timestamp, payload in stored]
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEvent(event=reprlib.repr(lines), reason=str(error) or type(error).__name__) from error


def joined(lines: Iterable[Line]) -> bytes:
    return b"".join(line.text for line in lines)


_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
