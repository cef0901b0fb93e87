"""Waits for sockets with any file descriptor. `select.select` refuses numbers above 1023."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import Protocol


class _Socket(Protocol):
    def fileno(self) -> int: ...


def readable(sockets: Sequence[_Socket], seconds: float) -> list[object]:
    """Waits until a socket is readable and returns all readable ones; none after `seconds`."""
    with selectors.PollSelector() as watched:
        for socket in sockets:
            watched.register(socket.fileno(), selectors.EVENT_READ, socket)
        return [key.data for key, _ in watched.select(max(0.0, seconds))]
