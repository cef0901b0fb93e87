"""Databases: one schema per run, named SQL statements, transactions, wake-ups. This package knows nothing of topics."""

from __future__ import annotations

from ticklake.database.error_kinds import OUTAGES
from ticklake.database.schema import Backend, Listener, Schema, Transaction
from ticklake.database.url import open_backend

__all__ = ["OUTAGES", "Backend", "Listener", "Schema", "Transaction", "open_backend"]
