"""Reads a HOCON file as a tree that remembers the line of each key."""

from __future__ import annotations

from ticklake.config.hocon.document import FROM_OUTSIDE, Document, read, refuse_twins
from ticklake.config.hocon.source import KeyPath
from ticklake.config.hocon.suggest import fold, listed, nearest

__all__ = ["FROM_OUTSIDE", "Document", "KeyPath", "fold", "listed", "nearest", "read", "refuse_twins"]
