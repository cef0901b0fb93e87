"""Waiting for sockets, whatever their file descriptor's number: `select.select` refuses those above 1023."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import Protocol


class _Socket(Protocol):
    def fileno(self) -> int: ...


def readable(sockets: Sequence[_Socket], seconds: float) -> list[object]:
    """Those that have something to read, as soon as there is one; none after `seconds`."""
    with selectors.PollSelector() as watched:
        for socket in sockets:
            watched.register(socket.fileno(), selectors.EVENT_READ, socket)
        return [key.data for key, _ in watched.select(max(0.0, seconds))]
