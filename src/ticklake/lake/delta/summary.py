"""What the commits of a log add up to where a Delta checkpoint says nothing, so that opening need not read them all.

It is a shortcut and no record of its own: without it, everything is read from the commits, which are all kept.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from ticklake import faults
from ticklake.lake.delta import commits, history
from ticklake.lake.delta.folder import LOG, TableFolder
from ticklake.lake.empty import EMPTY, REMOVED, EmptyTicks
from ticklake.lake.errors import DamagedCommit

_NAME = "_ticklake_summary.json"
_RESTORE = f'"{commits.RESTORE}"'.encode()


@dataclass(frozen=True)
class Summary:
    """Up to `version`, of the table with this id, all commits are on disk, and these are the ticks without rows.

    `checkpoint` is the checksum of the checkpoint of that version, which has none of its own. `mark` is that of its
    commit: another commit of this number is another history.
    """

    table: str = ""
    version: int = -1
    empty: str = "[]"
    checkpoint: str = ""
    mark: str = ""

    @classmethod
    def stored(cls, log: Path) -> Self:
        """The last one; one of nothing where there is none, or where it is torn or damaged."""
        try:
            text, _, check = (log / _NAME).read_text().partition("\n")
            return cls(**json.loads(text)) if check == _checksum(text) else cls()
        except (OSError, ValueError, TypeError, RecursionError):
            return cls()

    @classmethod
    def read(cls, log: Path, table: str) -> Self:
        """That of this table."""
        found = cls.stored(log)
        data = commits.read_commit(log, found.version) if found.table == table else None
        return found if data is not None and found.mark in ("", history.mark(data)) else cls()

    @staticmethod
    def forget(folder: TableFolder) -> None:
        """To be read from the commits again."""
        folder.remove(f"{LOG}/{_NAME}")

    def write(self, folder: TableFolder) -> None:
        """Replaces the last one, which is seen whole until this one is."""
        text = json.dumps(vars(self))
        with faults.around("lake.summary"):
            folder.replace(_NAME, f"{text}\n{_checksum(text)}".encode())


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _info_of(data: bytes, file: Path, before: str) -> Mapping[str, Any]:
    """What a commit says of itself. `before` is the mark of the one before it, if known."""
    try:
        info = commits.info_of(commits.checked(data))
        if before and info.get(commits.AFTER, before) != before:
            raise ValueError(f"it was made after another commit {int(file.stem) - 1} than the one that is there")
    except (ValueError, KeyError) as error:
        raise DamagedCommit(file=str(file), reason=error) from error
    return info


def _take(empty: EmptyTicks, info: Mapping[str, Any], file: Path) -> None:
    """Takes from a commit what it says of ticks without rows."""
    try:
        empty.take(info)
    except (ValueError, KeyError) as error:
        raise DamagedCommit(file=str(file), reason=error) from error


def _is_rewrite(data: bytes) -> bool:
    """Whether another engine put files in the place of others. Ours are in place only if nobody was faster."""
    return b'"remove":' in data and b'"add":' in data and f'"{commits.AFTER}"'.encode() not in data


def _restored(info: Mapping[str, Any], number: int) -> int:
    """The version that a commit restored. One named by its time is taken for none: what it had is indexed again."""
    parameters = info.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
    return int(version) if re.fullmatch("[0-9]{1,20}", version) and int(version) < number else -1


def _makes_sense(summary: Summary) -> bool:
    """An earlier version of ours wrote down whatever a commit said."""
    try:
        EmptyTicks(summary.empty)
    except ValueError:
        return False
    return True


class Recorded(NamedTuple):
    """What commits say: the ticks without rows, and the versions in which another engine rewrote files."""

    empty: EmptyTicks
    rewrites: list[int]


def recorded(log: Path, table: str, version: int) -> Recorded:
    """What the commits up to a version say, as far back as the log goes. Rewrites are told since the last summary."""
    summary = Summary.read(log, table)
    if summary.version > version or not _makes_sense(summary):
        summary = Summary()
    empty_at, said = summary.version, list[tuple[Mapping[str, Any], Path]]()
    before, rewrites = summary.mark, list[int]()
    for number in range(summary.version + 1, version + 1):
        data = commits.read_commit(log, number)
        if data is not None and (b'"ticklake.' in data or _RESTORE in data):
            file = log / commits.name_of(number)
            info = _info_of(data, file, before)
            if info.get("operation") == commits.RESTORE:
                empty_at, said = _restored(info, number), []
            said.append(({name: info[name] for name in (EMPTY, REMOVED) if name in info}, file))
        if data is not None and _is_rewrite(data):
            rewrites.append(number)
        before = history.mark(data) if data is not None else ""
    empty = EmptyTicks(summary.empty) if empty_at == summary.version else recorded(log, table, empty_at).empty
    for one, file in said:
        _take(empty, one, file)
    return Recorded(empty, rewrites)
