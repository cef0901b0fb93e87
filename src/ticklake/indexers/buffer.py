"""Buffering across batch files: which slices the next flush takes, and which batches are done after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ticklake.indexers.batches import Delivery
from ticklake.lake.slices import Slice
from ticklake.ticks import TickRange


@dataclass(eq=False)
class _Entry:
    """A delivered batch: what of it is still to be taken, and how many of its slices are on their way."""

    delivery: Delivery
    rest: TickRange
    arrived: float
    under_way: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Taken:
    """The slices of one flush and, in the same order, the batches they are of."""

    slices: list[Slice] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Delivery]:
        return [entry.delivery for entry in self.entries]


class TickBuffer:
    """Holds slices, never ticks: its size does not depend on the data. The caller has the clock."""

    def __init__(self, insert_batch_size: int, flush_timeout: float, step: int) -> None:
        self._insert_batch_size = insert_batch_size
        self.flush_timeout = flush_timeout
        self._step = step
        self._waiting: deque[_Entry] = deque()
        self._under_way: list[_Entry] = []
        self._last_flush = float("-inf")
        self.ticks = 0

    def __len__(self) -> int:
        """How many batches are buffered, in part or whole."""
        return len(self._waiting)

    @property
    def held(self) -> list[Delivery]:
        """Every batch that is not done: buffered or under way."""
        return [entry.delivery for entry in dict.fromkeys([*self._under_way, *self._waiting])]

    @property
    def full(self) -> bool:
        return self.ticks >= self._insert_batch_size

    def add(self, delivery: Delivery, now: float) -> None:
        self._waiting.append(_Entry(delivery, delivery.ticks, now))
        self.ticks += delivery.ticks.count(self._step)

    def due_at(self) -> float:
        """When the next flush is due: at once if full, else the timeout after the last flush or the oldest arrival."""
        if self.full:
            return float("-inf")
        if not self._waiting:
            return float("inf")
        return max(self._last_flush, self._waiting[0].arrived) + self.flush_timeout

    def take(self, now: float, only_first: bool = False) -> Taken:
        """At most the insert batch size in ticks, oldest first, up to the first slice that overlaps another."""
        taken = Taken()
        room = self._insert_batch_size
        while self._waiting and room > 0 and not (only_first and taken.slices):
            entry = self._waiting[0]
            if any(entry.rest.overlaps(piece.ticks) for piece in _possible_overlaps(taken.slices, entry.rest)):
                break
            piece = entry.delivery.slice(entry.rest)
            count = entry.rest.count(self._step)
            if count > room:
                piece, rest = piece.cut(room, self._step)
                entry.rest = rest.ticks
                count = room
            else:
                self._waiting.popleft()
            room -= count
            self._depart(taken, entry, piece)
        self.ticks -= self._insert_batch_size - room
        self._last_flush = now
        return taken

    def settle(self, taken: Taken, failed: Collection[int]) -> list[Delivery]:
        """The flush is over: gives the batches that are now done. A batch with a failed slice is dropped whole."""
        done = []
        for number, entry in enumerate(taken.entries):
            entry.under_way -= 1
            self._under_way.remove(entry)
            if number in failed:
                entry.failed = True
                self._drop(entry)
            elif not entry.under_way and entry not in self._waiting and not entry.failed:
                done.append(entry.delivery)
        return done

    def put_back(self, taken: Taken) -> None:
        """The flush did not happen: its slices are the first of the next one."""
        for entry, piece in reversed(list(zip(taken.entries, taken.slices, strict=True))):
            entry.under_way -= 1
            self._under_way.remove(entry)
            self.ticks += piece.ticks.count(self._step)
            if self._waiting and self._waiting[0] is entry:
                entry.rest = TickRange(piece.ticks.start, entry.rest.end)
            else:
                entry.rest = piece.ticks
                self._waiting.appendleft(entry)

    def clear(self) -> list[Delivery]:
        """Gives up everything that is buffered."""
        given_up = [entry.delivery for entry in self._waiting]
        self._waiting.clear()
        self.ticks = 0
        return given_up

    def drop(self, lost: Collection[Delivery]) -> None:
        """Somebody else has these batches by now: what of them is not under way is theirs to do."""
        for entry in [*self._waiting, *self._under_way]:
            if entry.delivery in lost:
                entry.failed = True
                self._drop(entry)

    def _depart(self, taken: Taken, entry: _Entry, piece: Slice) -> None:
        taken.slices.append(piece)
        taken.entries.append(entry)
        entry.under_way += 1
        self._under_way.append(entry)

    def _drop(self, entry: _Entry) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            self.ticks -= entry.rest.count(self._step)


def _possible_overlaps(taken: list[Slice], ticks: TickRange) -> Iterable[Slice]:
    """Nothing to compare where files come in tick order, as they nearly always do."""
    return taken if taken and ticks.start <= max(piece.ticks.end for piece in taken) else ()
