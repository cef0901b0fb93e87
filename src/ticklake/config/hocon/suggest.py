"""Suggests the nearest known word, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` if an allowed word is similar, else a full stop."""
    by_folded = {fold(candidate): candidate for candidate in allowed}
    found = difflib.get_close_matches(fold(word), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[found[0]]!r}?" if found else "."


def listed(allowed: Iterable[str]) -> str:
    return ", ".join(sorted(allowed)) or "none"


def fold(word: str) -> str:
    """Normalizes the spelling: `claimTimeout`, `claim_timeout` and `claim-timeout` are the same word."""
    return word.replace("_", "").replace("-", "").lower()
