"""Splits messages into parts for one statement. PostgreSQL closes the connection if a statement has a gigabyte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile

from ticklake.topics.envelope import Envelope
from ticklake.topics.errors import MessageTooLarge

LARGEST_MESSAGE = 256 * 1024 * 1024
LARGEST_PART = 64 * 1024 * 1024
AT_ONCE = 16 * 1024 * 1024
"""The number of bytes that are read at once, because they are in memory. A larger message is read alone."""


def check_size(envelope: Envelope) -> Envelope:
    """Returns the envelope. Raises `MessageTooLarge` if a database cannot store it."""
    if len(envelope.data) > LARGEST_MESSAGE:
        raise MessageTooLarge(size=f"{len(envelope.data):,}", most=f"{LARGEST_MESSAGE:,}")
    return envelope


def count_fitting(sizes: Iterable[int], most: int | None = None) -> int:
    """Returns how many of the first sizes have at most `most` (16 MiB) bytes together. The first one always fits."""
    totals, limit = list(accumulate(sizes)), AT_ONCE if most is None else most
    return max(min(1, len(totals)), sum(1 for _ in takewhile(lambda total: total <= limit, totals)))


def in_parts(envelopes: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
    """Yields parts of at most LARGEST_PART bytes, in order. A larger message is a separate part."""
    start = total = 0
    for place, envelope in enumerate(envelopes):
        size = len(envelope.data)
        if place > start and total + size > LARGEST_PART:
            yield envelopes[start:place]
            start, total = place, 0
        total += size
    if start < len(envelopes):
        yield envelopes[start:]
