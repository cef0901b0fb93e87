"""The rule of every commit: it is added only to the very history that its writer looked at.

A number is not enough. A table can be moved away and made anew, and a commit can be set aside, so that the same version
is another commit. What tells them apart is the content of the newest commit; every commit also names its predecessor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple


class Head(NamedTuple):
    """Where a history ends: the newest version, and the mark of its commit."""

    version: int
    mark: str


def mark(data: bytes) -> str:
    """What tells a commit from every other, also from one of the same number. Each commit has a UUID in it."""
    return hashlib.sha256(data).hexdigest()[:32]


def missing(versions: Collection[int], summed_up: int) -> int | None:
    """The first version that is missing before a later one. Those up to a checkpoint, `summed_up`, may be missing."""
    newest = max(versions, default=-1)
    return next((version for version in range(summed_up + 1, newest) if version not in versions), None)
