"""Who may end a transaction in SQLite: only who began it, whatever the statements in it say."""

from __future__ import annotations

import apsw


class Guard:
    """SQLite asks it before every commit, and tells it of every rollback."""

    def __init__(self) -> None:
        self.may_commit = False
        self.ended = False

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_commit_hook(lambda: not self.may_commit)  # a commit that is refused is a rollback
        connection.set_rollback_hook(self._rolled_back)

    def begin(self) -> None:
        self.may_commit = self.ended = False

    def _rolled_back(self) -> None:
        self.ended = True
