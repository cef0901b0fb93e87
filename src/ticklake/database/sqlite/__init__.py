"""SQLite: one file per run, wake-ups by datagrams, and protection of the file."""

from __future__ import annotations

from ticklake.database.sqlite.backend import SqliteBackend
from ticklake.database.sqlite.file_identity import identity, make_directory
from ticklake.database.sqlite.run_file import SqliteSchema

__all__ = [
    "SqliteBackend",
    "SqliteSchema",
    "identity",
    "make_directory",
]
