"""Buffers slices of batch files: chooses those of the next flush, and finds the batches that are done after it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ticklake.indexers.batches import Delivery
from ticklake.lake.empty import Ticks
from ticklake.lake.slices import Slice
from ticklake.ticks import TickRange


@dataclass(eq=False)
class _Batch:
    """A delivered batch. `parts` is the number of its parts that are waiting or being flushed.

    It is proven once all its ticks were checked. Before that, no part of it is committed alone.
    """

    delivery: Delivery
    arrived: float
    parts: int = 1
    dropped: bool = False
    proven: bool = False
    remaining: Ticks | None = None
    """The ticks that were not indexed yet when the batch was checked; None before the check."""
    histories: set[int] = field(default_factory=set)
    """The histories of the table to which its parts were committed. With more than one, earlier parts may be lost."""

    def count(self, ticks: TickRange, step: int) -> int:
        """Returns the number of ticks within a range; an upper bound before the check."""
        if self.remaining is None:
            return ticks.count(step)
        return self._count_up_to(ticks.end) - self._count_up_to(ticks.start - 1)

    def cut(self, ticks: TickRange, room: int, step: int) -> tuple[TickRange, TickRange]:
        """Splits a range into a part with `room` ticks and the rest."""
        if self.remaining is None:
            head, tail = self.delivery.slice(ticks).cut(room, step)
            return head.ticks, tail.ticks
        last = int(self.remaining[self._count_up_to(ticks.start - 1) + room - 1])
        return TickRange(ticks.start, last), TickRange(last + 1, ticks.end)

    def _count_up_to(self, tick: int) -> int:
        return 0 if self.remaining is None else int(np.searchsorted(self.remaining, tick, "right"))

    def slice(self, ticks: TickRange) -> Slice:
        return self.delivery.slice(ticks, whole=None if self.proven else self.delivery.ticks)


class _Part(NamedTuple):
    """Ticks of a batch that wait for a flush."""

    batch: _Batch
    ticks: TickRange


class _Spans:
    """Ranges that do not overlap. Finds by bisection whether another range overlaps one of them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def overlap(self, ticks: TickRange) -> bool:
        place = bisect_right(self._starts, ticks.end)
        return place > 0 and self._ends[place - 1] >= ticks.start

    def add(self, ticks: TickRange) -> None:
        place = bisect_left(self._starts, ticks.start)
        self._starts.insert(place, ticks.start)
        self._ends.insert(place, ticks.end)

    def remove(self, ticks: TickRange) -> None:
        place = bisect_left(self._starts, ticks.start)
        del self._starts[place], self._ends[place]


@dataclass(frozen=True, eq=False)
class FlushInput:
    """The slices of one flush and, in the same order, their batches."""

    slices: list[Slice] = field(default_factory=list)
    batches: list[_Batch] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Delivery]:
        return [batch.delivery for batch in self.batches]


class TickBuffer:
    """Holds slices, not ticks, so its memory does not depend on the data. The caller passes the time."""

    def __init__(self, insert_batch_size: int, flush_timeout: float, step: int) -> None:
        self._insert_batch_size = insert_batch_size
        self.flush_timeout = flush_timeout
        self._step = step
        self._waiting: deque[_Part] = deque()
        self._under_way: list[FlushInput] = []
        self._spans = _Spans()
        self._last_flush = float("-inf")
        self.ticks = 0

    def __len__(self) -> int:
        """Returns the number of batches that are buffered, wholly or partly."""
        return len({id(part.batch) for part in self._waiting})

    @property
    def held(self) -> list[Delivery]:
        """All batches that are not done: buffered or being flushed."""
        under_way = chain.from_iterable(popped.batches for popped in self._under_way)
        return [batch.delivery for batch in dict.fromkeys([*under_way, *(part.batch for part in self._waiting)])]

    @property
    def isolates(self) -> bool:
        """Whether a batch is held that must be flushed alone. Until it is done, no other may be added."""
        return any(delivery.alone for delivery in self.held)

    @property
    def waits_for_others(self) -> bool:
        """Whether the next batch must be flushed alone, and others are still being flushed."""
        return bool(self._waiting) and self._waiting[0].batch.delivery.alone and bool(self._under_way)

    @property
    def full(self) -> bool:
        return self.ticks >= self._insert_batch_size

    def add(self, delivery: Delivery, now: float) -> None:
        self._waiting.append(_Part(_Batch(delivery, now), delivery.ticks))
        self.ticks += delivery.ticks.count(self._step)

    def due_at(self) -> float:
        """Returns when the next flush is due: now if full, else a timeout after the last flush or the oldest arrival.

        Infinite if the first slice overlaps one that is being flushed, because those ticks are not in the table yet.
        """
        if not self._waiting or self._spans.overlap(self._waiting[0].ticks):
            return float("inf")
        if self.full or self.isolates:
            return float("-inf")
        return max(self._last_flush, self._waiting[0].batch.arrived) + self.flush_timeout

    def pop(self, now: float, only_first: bool = False) -> FlushInput:
        """Pops the oldest slices, up to the insert batch size or to a slice that overlaps one being flushed."""
        popped = FlushInput()
        room = self._insert_batch_size
        while self._waiting and room > 0 and not (only_first and popped.slices):
            if self._spans.overlap(self._waiting[0].ticks) or (popped.slices and self._waiting[0].batch.delivery.alone):
                break
            batch, ticks = self._pop_part(room)
            room -= batch.count(ticks, self._step)
            popped.slices.append(batch.slice(ticks))
            popped.batches.append(batch)
            self._spans.add(ticks)
        self._under_way.append(popped)
        self._last_flush = now
        return popped

    def first_failures(self, popped: FlushInput, failed: Collection[int]) -> list[int]:
        """Returns the first failed slice of each batch, except batches that were dropped before."""
        first = {id(popped.batches[number]): number for number in sorted(failed, reverse=True)}
        return sorted(number for number in first.values() if not popped.batches[number].dropped)

    def finish(
        self,
        popped: FlushInput,
        failed: Collection[int],
        proven: Collection[int] = (),
        remaining: Mapping[int, Ticks] = MappingProxyType({}),
        present: Mapping[int, Ticks] = MappingProxyType({}),
        history: int = 0,
    ) -> list[Delivery]:
        """Ends a flush and returns the batches that are done. A batch with a failed slice is dropped completely.

        `remaining` has, for a proven slice, the other ticks of its batch. `present` has the ticks of a slice that are
        in the table now. A batch whose parts are in different histories of the table is flushed again completely.
        """
        self._remove_under_way(popped)
        for number in proven:
            popped.batches[number].proven = True
            popped.batches[number].remaining = remaining.get(number, popped.batches[number].remaining)
        for number, ticks in present.items():
            popped.batches[number].delivery.present.append(ticks)
        if remaining:
            self.ticks = sum(part.batch.count(part.ticks, self._step) for part in self._waiting)
        for number in failed:
            self._drop(popped.batches[number])
        for batch in popped.batches:
            batch.parts -= 1
            batch.histories.add(history)
        ended = [batch for batch in dict.fromkeys(popped.batches) if batch.parts == 0 and not batch.dropped]
        for batch in ended:
            if len(batch.histories) > 1:
                batch.delivery.present.clear()
                self.add(batch.delivery, batch.arrived)
        return [batch.delivery for batch in ended if len(batch.histories) == 1]

    def requeue(self, popped: FlushInput) -> None:
        """Puts the slices of a failed flush back at the front of the buffer."""
        self._remove_under_way(popped)
        for batch, slice_ in reversed(list(zip(popped.batches, popped.slices, strict=True))):
            if not batch.dropped:
                self._waiting.appendleft(_Part(batch, slice_.ticks))
                self.ticks += batch.count(slice_.ticks, self._step)

    def clear(self) -> list[Delivery]:
        """Empties the buffer and returns its batches."""
        removed = list(dict.fromkeys(part.batch.delivery for part in self._waiting))
        self._waiting.clear()
        self.ticks = 0
        return removed

    def drop(self, lost: Collection[Delivery]) -> None:
        """Drops batches whose claims were lost. Slices that are being flushed continue."""
        under_way = chain.from_iterable(popped.batches for popped in self._under_way)
        for batch in [*(part.batch for part in self._waiting), *under_way]:
            if batch.delivery in lost:
                self._drop(batch)

    def _remove_under_way(self, popped: FlushInput) -> None:
        self._under_way.remove(popped)
        for slice_ in popped.slices:
            self._spans.remove(slice_.ticks)

    def _pop_part(self, room: int) -> _Part:
        """Pops the first part. If it has more than `room` ticks, its rest stays in the buffer."""
        batch, ticks = self._waiting.popleft()
        self.ticks -= batch.count(ticks, self._step)
        if batch.count(ticks, self._step) > room:
            ticks, rest = batch.cut(ticks, room, self._step)
            batch.parts += 1
            self._waiting.appendleft(_Part(batch, rest))
            self.ticks += batch.count(rest, self._step)
        return _Part(batch, ticks)

    def _drop(self, batch: _Batch) -> None:
        batch.dropped = True
        for part in [part for part in self._waiting if part.batch is batch]:
            self._waiting.remove(part)
            self.ticks -= batch.count(part.ticks, self._step)
