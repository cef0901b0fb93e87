"""An event, and its line in a batch."""

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
"""Levels of a payload. Python's own limit depends on how deep the caller's stack is."""

LARGEST = 64 * 1024 * 1024
"""Bytes of an event as it is stored. SQLite takes a thousand million in a value, and a batch is one."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


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
    try:
        stored = json.loads(b"[" + lines.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        return [Event(event_id, type_, payload, timestamp) for event_id, type_, timestamp, payload in stored]
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEvent(event=reprlib.repr(lines), reason=str(error) or type(error).__name__) from error


def _depth(text: str) -> int:
    """How deep the payload of a JSON row is nested."""
    deepest = depth = -1
    for found in _BRACKETS.finditer(text):
        mark = found[0]
        depth += mark in "[{"
        deepest = max(deepest, depth)
        depth -= mark in "]}"
    return deepest


def _check_keys(payload: object) -> None:
    """Keys become text. If two become the same text, only one of their values would be delivered."""
    if isinstance(payload, dict):
        if any(type(key) is not str for key in payload):
            names = json.loads(_encoder.encode(dict.fromkeys(payload)))
            if len(names) < len(payload):
                raise ValueError(f"two keys of its payload are the same as text: {reprlib.repr(list(payload))}")
        payload = payload.values()
    elif not isinstance(payload, list | tuple):
        return
    for inner in payload:
        if isinstance(inner, dict | list | tuple):
            _check_keys(inner)


def joined(lines: Iterable[Line]) -> bytes:
    return b"".join(line.text for line in lines)


_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
