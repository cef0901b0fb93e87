"""The names of checkpoints in a log, as the Delta protocol writes them.

Other names with "checkpoint" in them, such as a copy that an operator made, do not count.
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
    """Returns True for the name of a checkpoint, or of a part of one."""
    return _NAME.fullmatch(name) is not None


def versions_of(names: Iterable[str]) -> dict[str, int]:
    """Returns the version of every checkpoint file among these names."""
    return {name: int(found["version"]) for name in names if (found := _NAME.fullmatch(name))}


def whole(names: Iterable[str]) -> dict[str, int]:
    """Like `versions_of`, without incomplete checkpoints: no table can be opened from those."""
    found = versions_of(names)
    return {name: version for name, version in found.items() if found.keys() >= _parts(name)}


def _parts(name: str) -> set[str]:
    """Returns the names of all files of the checkpoint that this file belongs to."""
    found = _NAME.fullmatch(name)
    if found is None or found["part"] is None:
        return {name}
    version, parts = found["version"], found["parts"]
    # No log has this many files, so such a checkpoint is never complete.
    numbers = range(1, min(int(parts), 100_000) + 1)
    return {f"{version}.checkpoint.{part:010d}.{parts}.parquet" for part in numbers}
