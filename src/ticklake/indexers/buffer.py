"""Buffering across batch files: which slices the next flush takes, and which batches are done after it."""

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
    """A delivered batch, and how many parts of it are waiting or under way.

    It is proven once all of its ticks are known to be good: before that no part of it is committed alone.
    """

    delivery: Delivery
    arrived: float
    parts: int = 1
    dropped: bool = False
    proven: bool = False
    left: Ticks | None = None
    """Its ticks that were left to do when all of it was checked. Before that, its range is all that is known."""
    histories: set[int] = field(default_factory=set)
    """In which histories of the table its parts are. In more than one: the first parts may be gone."""

    def count(self, ticks: TickRange, step: int) -> int:
        """How many ticks there are within a range; at most so many if it has not been checked."""
        if self.left is None:
            return ticks.count(step)
        return self._place_after(ticks.end) - self._place_after(ticks.start - 1)

    def cut(self, ticks: TickRange, room: int, step: int) -> tuple[TickRange, TickRange]:
        """As much of a range as there is room for, and the rest."""
        if self.left is None:
            head, tail = self.delivery.slice(ticks).cut(room, step)
            return head.ticks, tail.ticks
        last = int(self.left[self._place_after(ticks.start - 1) + room - 1])
        return TickRange(ticks.start, last), TickRange(last + 1, ticks.end)

    def _place_after(self, tick: int) -> int:
        return 0 if self.left is None else int(np.searchsorted(self.left, tick, "right"))

    def slice(self, ticks: TickRange) -> Slice:
        return self.delivery.slice(ticks, whole=None if self.proven else self.delivery.ticks)


class _Part(NamedTuple):
    """Ticks of a batch that wait for a flush."""

    batch: _Batch
    ticks: TickRange


class _Spans:
    """Ranges that do not overlap each other: whether another one would is found by bisection."""

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
class Taken:
    """The slices of one flush and, in the same order, the batches they are of."""

    slices: list[Slice] = field(default_factory=list)
    batches: list[_Batch] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Delivery]:
        return [batch.delivery for batch in self.batches]


class TickBuffer:
    """Holds slices, never ticks: its size does not depend on the data. The caller has the clock."""

    def __init__(self, insert_batch_size: int, flush_timeout: float, step: int) -> None:
        self._insert_batch_size = insert_batch_size
        self.flush_timeout = flush_timeout
        self._step = step
        self._waiting: deque[_Part] = deque()
        self._under_way: list[Taken] = []
        self._spans = _Spans()
        self._last_flush = float("-inf")
        self.ticks = 0

    def __len__(self) -> int:
        """How many batches are buffered, in part or whole."""
        return len({id(part.batch) for part in self._waiting})

    @property
    def held(self) -> list[Delivery]:
        """Every batch that is not done: buffered or under way."""
        under_way = chain.from_iterable(taken.batches for taken in self._under_way)
        return [batch.delivery for batch in dict.fromkeys([*under_way, *(part.batch for part in self._waiting)])]

    @property
    def full(self) -> bool:
        return self.ticks >= self._insert_batch_size

    def add(self, delivery: Delivery, now: float) -> None:
        self._waiting.append(_Part(_Batch(delivery, now), delivery.ticks))
        self.ticks += delivery.ticks.count(self._step)

    def due_at(self) -> float:
        """When the next flush is due: at once if full, else the timeout after the last flush or the oldest arrival.

        Never while what is first in line overlaps what is under way: that is not in the table yet.
        """
        if not self._waiting or self._spans.overlap(self._waiting[0].ticks):
            return float("inf")
        if self.full:
            return float("-inf")
        return max(self._last_flush, self._waiting[0].batch.arrived) + self.flush_timeout

    def take(self, now: float, only_first: bool = False) -> Taken:
        """At most the insert batch size in ticks, oldest first, up to a slice that overlaps another one under way."""
        taken = Taken()
        room = self._insert_batch_size
        while self._waiting and room > 0 and not (only_first and taken.slices):
            if self._spans.overlap(self._waiting[0].ticks):
                break
            batch, ticks = self._next(room)
            room -= batch.count(ticks, self._step)
            taken.slices.append(batch.slice(ticks))
            taken.batches.append(batch)
            self._spans.add(ticks)
        self._under_way.append(taken)
        self._last_flush = now
        return taken

    def blamed(self, taken: Taken, failed: Collection[int]) -> list[int]:
        """Of the slices that failed, one a batch, and none of a batch that was given up before."""
        first = {id(taken.batches[number]): number for number in sorted(failed, reverse=True)}
        return sorted(number for number in first.values() if not taken.batches[number].dropped)

    def settle(
        self,
        taken: Taken,
        failed: Collection[int],
        proven: Collection[int] = (),
        left: Mapping[int, Ticks] = MappingProxyType({}),
        there: Mapping[int, Ticks] = MappingProxyType({}),
        history: int = 0,
    ) -> list[Delivery]:
        """The flush is over: gives the batches that are now done. A batch with a failed slice is dropped whole.

        `left` are the ticks that the batch of a proven slice has beside it: the rest is cut by those, not by its range.
        `there` are the ticks of a slice that are in the table now. A batch whose parts are in different histories of
        the table waits for another flush of all of it.
        """
        self._end(taken)
        for number in proven:
            taken.batches[number].proven = True
            taken.batches[number].left = left.get(number, taken.batches[number].left)
        for number, ticks in there.items():
            taken.batches[number].delivery.there.append(ticks)
        if left:
            self.ticks = sum(part.batch.count(part.ticks, self._step) for part in self._waiting)
        for number in failed:
            self._drop(taken.batches[number])
        for batch in taken.batches:
            batch.parts -= 1
            batch.histories.add(history)
        ended = [batch for batch in dict.fromkeys(taken.batches) if batch.parts == 0 and not batch.dropped]
        for batch in ended:
            if len(batch.histories) > 1:
                batch.delivery.there.clear()
                self.add(batch.delivery, batch.arrived)
        return [batch.delivery for batch in ended if len(batch.histories) == 1]

    def put_back(self, taken: Taken) -> None:
        """The flush did not happen: its slices are the first of the next one."""
        self._end(taken)
        for batch, piece in reversed(list(zip(taken.batches, taken.slices, strict=True))):
            if not batch.dropped:
                self._waiting.appendleft(_Part(batch, piece.ticks))
                self.ticks += batch.count(piece.ticks, self._step)

    def clear(self) -> list[Delivery]:
        """Gives up everything that is buffered."""
        given_up = list(dict.fromkeys(part.batch.delivery for part in self._waiting))
        self._waiting.clear()
        self.ticks = 0
        return given_up

    def drop(self, lost: Collection[Delivery]) -> None:
        """Somebody else has these batches by now: what of them is not under way is theirs to do."""
        under_way = chain.from_iterable(taken.batches for taken in self._under_way)
        for batch in [*(part.batch for part in self._waiting), *under_way]:
            if batch.delivery in lost:
                self._drop(batch)

    def _end(self, taken: Taken) -> None:
        self._under_way.remove(taken)
        for piece in taken.slices:
            self._spans.remove(piece.ticks)

    def _next(self, room: int) -> _Part:
        """The first part that waits, or as much of it as there is room for."""
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
