"""Events, and how they are stored."""

from __future__ import annotations

import json
import math
import re
import reprlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ticklake.database.errors import InvalidName
from ticklake.database.names import check_name
from ticklake.events.errors import BadEvent

DEEPEST = 100
"""The most levels of a payload. Python's own limit depends on the depth of the caller's stack."""

LARGEST = 64 * 1024 * 1024
"""The most bytes of a stored event. A batch is one value, and SQLite limits a value to a thousand million bytes."""

_NESTED = (dict, list, tuple)
_TEXT = frozenset((str,))
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


@dataclass(frozen=True, slots=True)
class Event:
    """An event. Events with the same id are duplicates. The payload is anything that JSON can represent."""

    event_id: str
    type: str
    payload: Any = None
    timestamp: float = field(default_factory=time.time)

    @classmethod
    def new(cls, type_: str, payload: Any = None) -> Event:
        """Creates an event with a new id. It begins with the time, because such ids are cheap to store."""
        from ticklake.topics.envelope import client_clock_ms, new_message_id

        return cls(new_message_id(client_clock_ms()), type_, payload)


class Line(NamedTuple):
    """An event as it is stored."""

    event_id: str
    text: bytes


def encode(event: Event) -> Line:
    """Encodes an event. Raises `BadEvent` if it cannot be stored."""
    try:
        check_name("event id", event.event_id)
        check_name("event type", event.type)
        timestamp = float(event.timestamp)
        if not math.isfinite(timestamp):
            raise ValueError(f"its timestamp is {timestamp}")
        text = _encoder.encode((event.event_id, event.type, timestamp, event.payload))
        if text.count("[") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
            raise ValueError(f"its payload is nested more than {DEEPEST} levels deep")
        _check_keys(event.payload)
        if len(text) >= LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes as JSON")
    except (InvalidName, AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadEvent(
            event=reprlib.repr(getattr(event, "event_id", event)), reason=str(error) or type(error).__name__
        ) from error
    return Line(event.event_id, text.encode("ascii") + b"\n")


def decode(lines: bytes) -> list[Event]:
    """Decodes the events of a batch. Raises `BadEvent`."""
    try:
        stored = json.loads(b"[" + lines.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        return [Event(event_id, type_, payload, timestamp) for event_id, type_, timestamp, payload in stored]
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEvent(event=reprlib.repr(lines), reason=str(error) or type(error).__name__) from error


def _depth(text: str) -> int:
    """Returns the number of nested levels of the payload in a JSON row."""
    deepest = depth = -1
    for found in _BRACKETS.finditer(text):
        mark = found[0]
        depth += mark in "[{"
        deepest = max(deepest, depth)
        depth -= mark in "]}"
    return deepest


def _check_keys(payload: object) -> None:
    """Raises `ValueError` if two keys become the same text in JSON. Only one of their values would be stored."""
    if isinstance(payload, dict):
        if not _TEXT.issuperset(map(type, payload)):
            names = json.loads(_encoder.encode(dict.fromkeys(payload)))
            if len(names) < len(payload):
                raise ValueError(f"two keys of its payload are the same as text: {reprlib.repr(list(payload))}")
        payload = payload.values()
    elif not isinstance(payload, _NESTED):
        return
    for inner in payload:
        if isinstance(inner, _NESTED):
            _check_keys(inner)


def joined(lines: Iterable[Line]) -> bytes:
    return b"".join(line.text for line in lines)


_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
