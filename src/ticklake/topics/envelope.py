"""The envelope of a message: its id, its time, and the payload with its type."""

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
_COUNTER_BITS = 24


class Envelope(NamedTuple):
    """A message before it is stored in a topic."""

    message_id: str
    timestamp: int
    data: bytes


class Opened(NamedTuple):
    """A decoded message of a topic."""

    message_id: str
    timestamp: int
    payload: Message


def wrap_all(payloads: Iterable[Message], now_ms: int) -> list[Envelope]:
    """Wraps payloads. Their ids have the same order, so that neighbours in a topic are neighbours in its index."""
    payloads = list(payloads)
    wrapper = _Wrapper(now_ms)
    return [
        wrapper.wrap(payload, id_) for payload, id_ in zip(payloads, _message_ids(now_ms, len(payloads)), strict=True)
    ]


def wrap(payload: Message, now_ms: int, message_id: str | None = None) -> Envelope:
    """Wraps a payload. It gets a new id unless `message_id` is given."""
    return _Wrapper(now_ms).wrap(payload, message_id or new_message_id(now_ms))


class _Wrapper:
    """Reuses one protobuf object for all envelopes, because creating one is slower than changing one."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._envelope = TopicEnvelope(timestamp=now_ms)
        self._payload = self._envelope.payload

    def wrap(self, payload: Message, message_id: str) -> Envelope:
        if not isinstance(payload, Message):
            raise NotAMessage(kind=type(payload).__name__)
        self._envelope.message_id = message_id
        self._payload.type_url = _TYPE_PREFIX + payload.DESCRIPTOR.full_name
        self._payload.value = payload.SerializeToString()
        return Envelope(message_id, self._now_ms, self._envelope.SerializeToString())


def unwrap(data: bytes) -> Opened:
    """Decodes an envelope. Raises `UndecodableMessage`."""
    try:
        envelope = TopicEnvelope.FromString(data)
        packed = envelope.payload
        payload = _message_class(packed.type_url).FromString(packed.value)
    except DecodeError as error:
        raise UndecodableMessage(reason=f"its bytes are broken ({error})") from error
    return Opened(envelope.message_id, envelope.timestamp, payload)


def new_message_id(now_ms: int) -> str:
    """Returns a UUID of version 7: the time, a counter, and 48 random bits."""
    return _message_ids(now_ms, 1)[0]


def _message_ids(now_ms: int, count: int) -> list[str]:
    """Returns ids in ascending order. Their counter starts at a random number."""
    time_digits = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}"
    head = f"{time_digits[:8]}-{time_digits[8:]}-7"
    first = random.getrandbits(_COUNTER_BITS - 1)
    counters = (number & ((1 << _COUNTER_BITS) - 1) for number in range(first, first + count))
    tails = os.urandom(6 * count).hex()
    return [
        f"{head}{counter >> 12:03x}-8{counter & 0xFFF:03x}-{tails[at : at + 12]}"
        for counter, at in zip(counters, range(0, 12 * count, 12), strict=True)
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
