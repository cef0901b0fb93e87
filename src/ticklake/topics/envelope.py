"""The envelope around every message: its id, its time, and a payload whose type travels with it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from ticklake.contracts import TopicEnvelope
from ticklake.errors import NotAMessage, UndecodableMessage

_TYPE_PREFIX = "type.googleapis.com/"
_PLACE_BITS = 24


class Envelope(NamedTuple):
    """A message on its way into a topic."""

    message_id: str
    timestamp: int
    data: bytes


class Opened(NamedTuple):
    """A message as it comes out of a topic."""

    message_id: str
    timestamp: int
    payload: Message


def wrap_all(payloads: Iterable[Message], now_ms: int) -> list[Envelope]:
    """In this order, with ids that keep it: neighbours in a topic are neighbours in an index."""
    start = random.getrandbits(_PLACE_BITS - 1)
    return [wrap(payload, now_ms, new_message_id(now_ms, start + place)) for place, payload in enumerate(payloads)]


def wrap(payload: Message, now_ms: int, message_id: str | None = None) -> Envelope:
    if not isinstance(payload, Message):
        raise NotAMessage(kind=type(payload).__name__)
    envelope = TopicEnvelope(message_id=message_id or new_message_id(now_ms), timestamp=now_ms)
    envelope.payload.type_url = _TYPE_PREFIX + payload.DESCRIPTOR.full_name
    envelope.payload.value = payload.SerializeToString()
    return Envelope(envelope.message_id, now_ms, envelope.SerializeToString())


def unwrap(data: bytes) -> Opened:
    try:
        envelope = TopicEnvelope.FromString(data)
        payload = _message_class(envelope.payload.type_url).FromString(envelope.payload.value)
    except DecodeError as error:
        raise UndecodableMessage(reason=f"its bytes are broken ({error})") from error
    return Opened(envelope.message_id, envelope.timestamp, payload)


def new_message_id(now_ms: int, place: int = 0) -> str:
    """A UUID of version 7: the time, a place among those of that time, and 50 random bits."""
    place &= (1 << _PLACE_BITS) - 1
    rest = (place & 0xFFF) << 50 | int.from_bytes(os.urandom(7), "big") >> 6
    digits = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}7{place >> 12:03x}{1 << 63 | rest:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def client_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=256)
def _message_class(type_url: str) -> type[Message]:
    name = type_url.rpartition("/")[2]
    if not name:
        raise UndecodableMessage(reason="it has no payload")
    try:
        return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    except KeyError as error:
        raise UndecodableMessage(reason=f"its type {name!r} is unknown here; import it, then replay") from error
