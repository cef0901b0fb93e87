"""Reads what commands print."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str) -> Any:
    """What a command printed with --json, without its version; of a list of things, the list."""
    found = json.loads(text)
    if isinstance(found, list):
        return found  # rows of `sql`
    assert found.pop("version") == 1
    first = next(iter(found.values()), None)
    return first if isinstance(first, list) else found
