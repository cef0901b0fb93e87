"""The names of checkpoints in a log, as the Delta protocol writes them.

Whatever else has "checkpoint" in its name, such as a copy that an operator made beside one, is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(
    r"(?P<version>[0-9]{20})\.checkpoint\."
    r"(?:(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet|(?:[0-9a-fA-F-]{36}\.)?parquet|[0-9a-fA-F-]{36}\.json)"
)


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def is_checkpoint(name: str) -> bool:
    """Also if it is a part of one."""
    return _NAME.fullmatch(name) is not None


def versions_of(names: Iterable[str]) -> dict[str, int]:
    """The files of checkpoints among these names, and which version each one sums up, or a part of it."""
    return {name: int(found["version"]) for name in names if (found := _NAME.fullmatch(name))}


def whole(names: Iterable[str]) -> dict[str, int]:
    """The same without parts of checkpoints that have not all of their parts: nobody can open a table from those."""
    found = versions_of(names)
    return {name: version for name, version in found.items() if found.keys() >= _beside(name)}


def _beside(name: str) -> set[str]:
    """All files that the checkpoint of this one consists of."""
    found = _NAME.fullmatch(name)
    if found is None or found["part"] is None:
        return {name}
    version, parts = found["version"], found["parts"]
    # More than there are files in any log: such a one is never whole.
    numbers = range(1, min(int(parts), 100_000) + 1)
    return {f"{version}.checkpoint.{part:010d}.{parts}.parquet" for part in numbers}
