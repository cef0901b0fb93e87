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
from ticklake.topics.errors import NotAMessage, UndecodableMessage

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
    payloads = list(payloads)
    pen = _Pen(now_ms)
    return [pen.wrap(payload, id_) for payload, id_ in zip(payloads, _message_ids(now_ms, len(payloads)), strict=True)]


def wrap(payload: Message, now_ms: int, message_id: str | None = None) -> Envelope:
    return _Pen(now_ms).wrap(payload, message_id or new_message_id(now_ms))


class _Pen:
    """Writes envelope after envelope on the same sheet: making a message costs more than filling it in."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._sheet = TopicEnvelope(timestamp=now_ms)
        self._payload = self._sheet.payload

    def wrap(self, payload: Message, message_id: str) -> Envelope:
        if not isinstance(payload, Message):
            raise NotAMessage(kind=type(payload).__name__)
        self._sheet.message_id = message_id
        self._payload.type_url = _TYPE_PREFIX + payload.DESCRIPTOR.full_name
        self._payload.value = payload.SerializeToString()
        return Envelope(message_id, self._now_ms, self._sheet.SerializeToString())


def unwrap(data: bytes) -> Opened:
    try:
        envelope = TopicEnvelope.FromString(data)
        packed = envelope.payload
        payload = _message_class(packed.type_url).FromString(packed.value)
    except DecodeError as error:
        raise UndecodableMessage(reason=f"its bytes are broken ({error})") from error
    return Opened(envelope.message_id, envelope.timestamp, payload)


def new_message_id(now_ms: int) -> str:
    """A UUID of version 7: the time, a place among those of that time, and 48 random bits."""
    return _message_ids(now_ms, 1)[0]


def _message_ids(now_ms: int, count: int) -> list[str]:
    """The places go on from a random one, so that the ids of a batch keep its order."""
    time_digits = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}"
    head = f"{time_digits[:8]}-{time_digits[8:]}-7"
    first = random.getrandbits(_PLACE_BITS - 1)
    places = (place & ((1 << _PLACE_BITS) - 1) for place in range(first, first + count))
    tails = os.urandom(6 * count).hex()
    return [
        f"{head}{place >> 12:03x}-8{place & 0xFFF:03x}-{tails[at : at + 12]}"
        for place, at in zip(places, range(0, 12 * count, 12), strict=True)
    ]


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
