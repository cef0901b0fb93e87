"""What the commits of a log add up to where a Delta checkpoint says nothing, so that opening need not read them all.

It is a shortcut and no record of its own: without it, everything is read from the commits, which are all kept.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ticklake import faults
from ticklake.errors import DamagedCommit
from ticklake.lake import commits
from ticklake.lake.durable import remove, sync_directory, sync_file
from ticklake.lake.empty import EmptyTicks

_NAME = "_ticklake_summary.json"


@dataclass(frozen=True)
class Summary:
    """Up to `version`, of the table with this id, all commits are on disk, and these are the ticks without rows.

    `checkpoint` is the checksum of the checkpoint of that version, which has none of its own.
    """

    table: str = ""
    version: int = -1
    empty: str = "[]"
    checkpoint: str = ""

    @classmethod
    def stored(cls, log: Path) -> Self:
        """The last one; one of nothing where there is none, or where it is torn or damaged."""
        try:
            text, _, check = (log / _NAME).read_text().partition("\n")
            return cls(**json.loads(text)) if check == _checksum(text) else cls()
        except (OSError, ValueError, TypeError):
            return cls()

    @classmethod
    def read(cls, log: Path, table: str) -> Self:
        """That of this table."""
        found = cls.stored(log)
        return found if found.table == table and (log / commits.name_of(found.version)).exists() else cls()

    @staticmethod
    def forget(log: Path) -> None:
        """To be read from the commits again."""
        remove(log / _NAME)

    def write(self, log: Path) -> None:
        """Replaces the last one, which is seen whole until this one is."""
        temporary = log / f".{_NAME}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            with faults.around("lake.summary.write"):
                text = json.dumps(vars(self))
                temporary.write_text(f"{text}\n{_checksum(text)}")
            sync_file(temporary)
            with faults.around("lake.summary.replace"):
                temporary.replace(log / _NAME)
        finally:
            remove(temporary)
        sync_directory(log)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _info_of(data: bytes, file: Path) -> Mapping[str, Any]:
    try:
        return commits.info_of(commits.checked(data))
    except (ValueError, KeyError, RecursionError) as error:
        raise DamagedCommit(file=str(file), reason=error) from error


def recorded(log: Path, table: str, version: int) -> EmptyTicks:
    """All ticks that the commits up to a version name as empty and none has removed, as far back as the log goes."""
    summary = Summary.read(log, table)
    if summary.version > version:
        summary = Summary()
    empty = EmptyTicks(summary.empty)
    for number in range(summary.version + 1, version + 1):
        data = commits.read(log, number)
        if data is not None and b'"ticklake.' in data:
            empty.take(_info_of(data, log / commits.name_of(number)))
    return empty
