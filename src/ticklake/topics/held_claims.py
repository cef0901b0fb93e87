"""The claims that a reader holds: neither acknowledged nor released yet. Their number is limited.

The leases themselves are in the database: see `TopicStore.extend`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable

from ticklake.topics.store import Claim


class HeldClaims:
    """Can be used from any thread. Expired claims are forgotten as soon as their room is needed."""

    def __init__(self, room: int, lease_ms: int) -> None:
        self._room = room
        self._lease_seconds = lease_ms / 1000 or math.inf
        self._lock = threading.Lock()
        self._claims: dict[str, tuple[Claim, float]] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def message_ids(self) -> list[str]:
        with self._lock:
            return list(self._claims)

    def room(self) -> int:
        """Returns how many more claims can be held."""
        with self._lock:
            if len(self._claims) >= self._room:
                now = time.monotonic()
                self._claims = {id_: held for id_, held in self._claims.items() if held[1] > now}
            return self._room - len(self._claims)

    def next_expiry_ms(self) -> int | None:
        """Returns the time until the next lease ends; None if no lease ends."""
        with self._lock:
            first = min((until for _, until in self._claims.values()), default=math.inf)
        return None if first == math.inf else max(1, math.ceil(1000 * (first - time.monotonic())))

    def add(self, claims: Iterable[Claim]) -> None:
        until = time.monotonic() + self._lease_seconds
        with self._lock:
            self._claims.update((claim.message_id, (claim, until)) for claim in claims)

    def renew(self, claims: Iterable[Claim]) -> None:
        """Starts the leases of claims again."""
        until = time.monotonic() + self._lease_seconds
        with self._lock:
            for claim in claims:
                if held := self._claims.get(claim.message_id):
                    self._claims[claim.message_id] = (held[0], until)

    def forget(self, claims: Iterable[Claim]) -> bool:
        """Forgets claims. Returns whether there was no room before."""
        with self._lock:
            full = len(self._claims) >= self._room
            for claim in claims:
                held = self._claims.get(claim.message_id)
                if held and held[0].version <= claim.version:
                    del self._claims[claim.message_id]
            return full

    def claims(self) -> list[Claim]:
        with self._lock:
            return [claim for claim, _ in self._claims.values()]
