"""The nearest right word, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?` where one of the allowed words is close, else the end of the sentence."""
    by_folded = {fold(candidate): candidate for candidate in allowed}
    found = difflib.get_close_matches(fold(word), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[found[0]]!r}?" if found else "."


def listed(allowed: Iterable[str]) -> str:
    return ", ".join(sorted(allowed)) or "none"


def fold(word: str) -> str:
    """Spelling aside: `claimTimeout`, `claim_timeout` and `claim-timeout` are the same word."""
    return word.replace("_", "").replace("-", "").lower()
