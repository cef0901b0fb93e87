"""Ensures that only the code that began a transaction in SQLite ends it, regardless of its statements."""

from __future__ import annotations

import apsw


class Guard:
    """SQLite calls its hooks before every commit and after every rollback."""

    def __init__(self) -> None:
        self.may_commit = False
        self.ended = False

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_commit_hook(lambda: not self.may_commit)  # a refused commit becomes a rollback
        connection.set_rollback_hook(self._rolled_back)

    def begin(self) -> None:
        self.may_commit = self.ended = False

    def _rolled_back(self) -> None:
        self.ended = True
