"""What a reader holds: claims that are neither acknowledged nor given back, and room for so many."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence

from ticklake.topics.store import Claim


class InHand:
    """From any thread. A claim whose lease is over is another's to take: it stays only as long as there is room."""

    def __init__(self, room: int, lease_ms: int) -> None:
        self._room = room
        self._lease_seconds = lease_ms / 1000 or math.inf
        self._lock = threading.Lock()
        self._claims: dict[str, Claim] = {}
        self._until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def message_ids(self) -> list[str]:
        with self._lock:
            return list(self._claims)

    def room(self) -> int:
        with self._lock:
            if len(self._claims) >= self._room:
                self._drop([message_id for message_id, until in self._until.items() if until <= time.monotonic()])
            return self._room - len(self._claims)

    def room_in_ms(self) -> int | None:
        """When the next lease is over; None where none ever is."""
        with self._lock:
            first = min(self._until.values(), default=math.inf)
        return None if first == math.inf else max(1, math.ceil(1000 * (first - time.monotonic())))

    def take(self, claims: Iterable[Claim]) -> None:
        until = time.monotonic() + self._lease_seconds
        with self._lock:
            for claim in claims:
                self._claims[claim.message_id] = claim
                self._until[claim.message_id] = until

    def renew(self, claims: Iterable[Claim]) -> None:
        until = time.monotonic() + self._lease_seconds
        with self._lock:
            self._until |= {claim.message_id: until for claim in claims if claim.message_id in self._claims}

    def let_go(self, claims: Sequence[Claim]) -> bool:
        """True where there was no room before."""
        with self._lock:
            full = len(self._claims) >= self._room
            held = [(claim, self._claims.get(claim.message_id)) for claim in claims]
            self._drop([mine.message_id for claim, mine in held if mine and mine.version <= claim.version])
            return full

    def let_go_all(self) -> list[Claim]:
        with self._lock:
            claims = list(self._claims.values())
            self._drop([claim.message_id for claim in claims])
            return claims

    def _drop(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            self._claims.pop(message_id, None)
            self._until.pop(message_id, None)
