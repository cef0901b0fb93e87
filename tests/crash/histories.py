"""Could it have happened one step at a time? Checks what many processes did with a topic, as each of them saw it.

What one group did with one message is a history of its own: nothing in it depends on another message, so many short
searches stand for one that would never end. A search looks for an order in which every act (sent, claimed, extended, …)
has an effect at one moment between its beginning and its end, and answers as `step` says, which is the whole
specification. An act without an end is that of a process that was killed: it has happened or it has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

TOLERANCE = 0.02
"""Seconds by which the database's clock, in whole milliseconds, may disagree with the one that the times are of."""
UNKNOWN = 0


class Act(NamedTuple):
    """One act on one message. `ended` is the latest moment at which it can have had its effect."""

    kind: str  # send, claim, ack, extend, release; when nothing is left to claim, a last look: end, or absent
    by: str
    begun: float
    ended: float
    version: int = 0
    attempts: int = 0
    answer: bool | None = True  # None: nobody knows


class Unanswered(NamedTuple):
    """A claim whose answer got lost with the one who asked: any message may be among the `limit` it was for."""

    by: str
    begun: float
    ended: float
    limit: int


class State(NamedTuple):
    """A message as one group sees it. `free_at` is when its lease is over; `now` is the earliest this can be."""

    now: float = -inf
    sent: bool = False
    holder: str = ""
    version: int = 0
    attempts: int = 0
    free_at: float = -inf
    acked: bool = False


class Violation(NamedTuple):
    """A history that no order explains."""

    message: str
    reason: str
    acts: Sequence[Act] = ()

    def __str__(self) -> str:
        start = min((act.begun for act in self.acts), default=0.0)
        lines = [
            f"  {act.begun - start:9.4f} … {act.ended - start:9.4f}  {act.by:>12} {act.kind} "
            f"version {act.version}, attempt {act.attempts}: {act.answer}"
            for act in sorted(self.acts, key=lambda act: act.begun)
        ]
        return "\n".join([f"{self.message}: {self.reason}", *lines])


def check(
    histories: Mapping[str, Sequence[Act]], unanswered: Sequence[Unanswered], lease: float
) -> Iterator[Violation]:
    """The histories that cannot be; none where all is well."""
    hidden = 0
    for message, acts in histories.items():
        search = Search(acts, unanswered, lease)
        hidden += len(search.hidden)
        if reason := search.reason():
            yield Violation(message, reason, acts)
    if hidden > (room := sum(claim.limit for claim in unanswered)):
        yield Violation("all", f"{hidden} claims that nobody got, and only {room} can have got lost with a process")


def step(state: State, act: Act, lease: float) -> State | None:
    """The specification: what becomes of a message by an act, or None where it could not have been answered so."""
    if act.kind in ("send", "absent"):
        return None if state.sent else state._replace(sent=act.kind == "send")
    if act.kind == "end":
        return state if state.acked and act.answer else None
    return _claimed(state, act, lease) if act.kind == "claim" else _changed(state, act, lease)


def _claimed(state: State, act: Act, lease: float) -> State | None:
    """By one at a time, each as the next version; never before it is sent, nor after its ack."""
    if not state.sent or state.acked or act.version != state.version + 1:
        return None
    if act.attempts not in (UNKNOWN, state.attempts + 1):
        return None
    now = max(state.now, state.free_at - TOLERANCE) if state.holder else state.now
    return State(now, True, act.by, act.version, state.attempts + 1, act.begun + lease)


def _changed(state: State, act: Act, lease: float) -> State | None:
    """By its holder, and answered with whether it is; an ack can be repeated."""
    mine = state.version == act.version and state.holder == act.by
    held = mine and not state.acked
    if act.answer is not None and act.answer != (mine if act.kind == "ack" else held):
        return None
    if not held:
        return state
    if act.kind == "ack":
        return state._replace(acked=True)
    if act.kind == "extend":
        return state._replace(free_at=act.begun + lease)
    return state._replace(holder="", attempts=state.attempts - 1)


class Search:
    """For an order of one history. Each act is given the earliest moment that the acts before it leave."""

    def __init__(self, acts: Sequence[Act], unanswered: Sequence[Unanswered], lease: float) -> None:
        self._acts = sorted(acts, key=lambda act: (act.ended, act.begun))
        self._lease = lease
        self._claims = Counter(act.version for act in acts if act.kind == "claim")
        self.hidden = set(range(1, max(self._claims, default=0))) - self._claims.keys()
        self._unanswered = unanswered if self.hidden else ()
        self._seen: set[tuple[frozenset[int], State]] = set()
        self._longest = 0

    def reason(self) -> str:
        """Why there is no order; empty where there is one."""
        twice = [version for version, count in self._claims.items() if count > 1]
        if twice:
            return f"claimed more than once as version {twice[0]}"
        if self._ordered():
            return ""
        return f"no order explains more than {self._longest} of its {len(self._acts)} acts"

    def _ordered(self) -> bool:
        everything = frozenset(range(len(self._acts)))
        ways = [(everything, State())]
        while ways:
            left, state = ways.pop()
            self._longest = max(self._longest, len(self._acts) - len(left))
            if all(self._optional(self._acts[number]) for number in left):
                return True
            if (left, state) in self._seen:
                continue
            self._seen.add((left, state))
            ways += self._next(left, state)
        return False

    def _next(self, left: frozenset[int], state: State) -> Iterator[tuple[frozenset[int], State]]:
        """What can come next; what ended first comes last, to be tried first."""
        due = min(self._acts[number].ended for number in left if not self._optional(self._acts[number]))
        for act in self._lost(state):
            yield from ((left, after) for after in self._after(state, act, due))
        for number in sorted(left, reverse=True):
            if self._acts[number].begun > due:
                continue
            rest = left - {number}
            needed = (self._acts[other].ended for other in rest if not self._optional(self._acts[other]))
            yield from ((rest, after) for after in self._after(state, self._acts[number], min(needed, default=inf)))

    def _after(self, state: State, act: Act, due: float) -> Iterator[State]:
        """The state after an act, where it can come now and leaves the others their time."""
        later = step(state._replace(now=max(state.now, act.begun)), act, self._lease)
        if later and later.now <= act.ended and later.now <= due:
            yield later

    def _lost(self, state: State) -> Iterable[Act]:
        """The claims that nobody got and that can have come between."""
        if state.version + 1 not in self.hidden:
            return ()
        return (
            Act("claim", claim.by, claim.begun, claim.ended, state.version + 1, answer=None)
            for claim in self._unanswered
        )

    @staticmethod
    def _optional(act: Act) -> bool:
        return act.answer is None
