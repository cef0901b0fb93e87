"""Messages in parts that a database takes in one statement. PostgreSQL ends the connection when one has a gigabyte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile

from ticklake.topics.envelope import Envelope
from ticklake.topics.errors import MessageTooLarge

LARGEST_MESSAGE = 256 * 1024 * 1024
LARGEST_PART = 64 * 1024 * 1024
AT_ONCE = 16 * 1024 * 1024
"""So many bytes of messages are read at once, or one message: whoever reads them has them in memory."""


def check_size(envelope: Envelope) -> Envelope:
    """The envelope itself, if every database can hold it."""
    if len(envelope.data) > LARGEST_MESSAGE:
        raise MessageTooLarge(size=f"{len(envelope.data):,}", most=f"{LARGEST_MESSAGE:,}")
    return envelope


def fitting(sizes: Iterable[int], most: int | None = None) -> int:
    """How many of these, from the first on, have at most so many bytes (16 MiB) together. The first one always fits."""
    totals, limit = list(accumulate(sizes)), AT_ONCE if most is None else most
    return max(min(1, len(totals)), sum(1 for _ in takewhile(lambda total: total <= limit, totals)))


def in_parts(envelopes: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
    """In this order, at most LARGEST_PART bytes together; a message that has more is a part of its own."""
    start = total = 0
    for place, envelope in enumerate(envelopes):
        size = len(envelope.data)
        if place > start and total + size > LARGEST_PART:
            yield envelopes[start:place]
            start, total = place, 0
        total += size
    if start < len(envelopes):
        yield envelopes[start:]
