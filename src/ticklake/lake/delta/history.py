"""The rule of every commit: it is added only to the history that its writer has read.

A version number does not identify a history. A table can be moved and created again, and a commit can be set aside:
then the same version is another commit. So commits are identified by a digest, and each one names the digest of the one
before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple


class Head(NamedTuple):
    """The end of a history: the newest version, and the digest of its commit."""

    version: int
    digest: str


def digest_of(data: bytes) -> str:
    """Returns a hash that identifies a commit. Each commit contains a UUID, so no two are equal."""
    return hashlib.sha256(data).hexdigest()[:32]


def missing(versions: Collection[int], checkpoint: int) -> int | None:
    """Returns the first version that is missing before a later one. Those up to a checkpoint may be missing."""
    newest = max(versions, default=-1)
    return next((version for version in range(checkpoint + 1, newest) if version not in versions), None)
