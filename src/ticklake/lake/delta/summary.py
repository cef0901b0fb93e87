"""A summary of commits: what a Delta checkpoint does not contain, so that opening need not read all commits.

It is only a shortcut. Without it, everything is read from the commits, which are all kept.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ticklake import faults
from ticklake.lake.delta import commits, history
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.location import Location, TableFile
from ticklake.lake.empty import EMPTY, REMOVED, EmptyTicks
from ticklake.lake.errors import DamagedCommit

_NAME = "_ticklake_summary.json"
_RESTORE = f'"{commits.RESTORE}"'.encode()


@dataclass(frozen=True)
class Summary:
    """All commits of table `table` up to `version` are on disk, and `empty` are their ticks without rows.

    `checkpoint` is the checksum of the checkpoint of that version. `mark`, its name in the file, is
    the digest of its commit: a commit with another digest belongs to another history.
    """

    table: str = ""
    version: int = -1
    empty: str = "[]"
    checkpoint: str = ""
    mark: str = ""

    @classmethod
    def stored(cls, location: Location) -> Self:
        """Returns the stored summary, or an empty one if it is missing, torn or damaged."""
        try:
            text, _, check = location.log_file(_NAME).read().decode().partition("\n")
            return cls(**json.loads(text)) if check == _checksum(text) else cls()
        except (OSError, ValueError, TypeError, RecursionError):
            return cls()

    @classmethod
    def read(cls, location: Location, table: str) -> Self:
        """Returns the stored summary if it belongs to this table and its history, or an empty one."""
        found = cls.stored(location)
        data = commits.read_commit(location, found.version) if found.table == table else None
        return found if data is not None and found.mark in ("", history.digest_of(data)) else cls()

    @staticmethod
    def forget(folder: TableFolder) -> None:
        """Removes the summary. The next reader reads the commits."""
        folder.remove_log_file(_NAME)

    def write(self, folder: TableFolder) -> None:
        """Replaces the stored summary atomically."""
        text = json.dumps(vars(self))
        with faults.around("lake.summary"):
            folder.replace(_NAME, f"{text}\n{_checksum(text)}".encode())


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _info_of(data: bytes, file: TableFile, before: str) -> Mapping[str, Any]:
    """Returns the metadata of a commit. `before` is the digest of the commit before it, if known."""
    try:
        info = commits.info_of(commits.checked(data))
        if before and info.get(commits.AFTER, before) != before:
            raise ValueError(f"its predecessor was another commit {commits.version_of(file.name) - 1}")
    except (ValueError, KeyError) as error:
        raise DamagedCommit(file=str(file), reason=error) from error
    return info


def _apply(empty: EmptyTicks, info: Mapping[str, Any], file: TableFile) -> None:
    try:
        empty.apply(info)
    except (ValueError, KeyError) as error:
        raise DamagedCommit(file=str(file), reason=error) from error


def _is_rewrite(data: bytes) -> bool:
    """Returns True if another engine replaced files. Our own replacements are checked when they are committed."""
    return b'"remove":' in data and b'"add":' in data and f'"{commits.AFTER}"'.encode() not in data


def _restored(info: Mapping[str, Any], number: int) -> int:
    """Returns the version that a commit restored, or -1 if it gives only a time: then ticks are indexed again."""
    parameters = info.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
    return int(version) if re.fullmatch("[0-9]{1,20}", version) and int(version) < number else -1


def _is_valid(summary: Summary) -> bool:
    """Returns False for summaries of an early TickLake, which copied metadata of commits unchecked."""
    try:
        EmptyTicks(summary.empty)
    except ValueError:
        return False
    return True


class Recorded(NamedTuple):
    """Records of commits: the ticks without rows, and the versions in which another engine rewrote files."""

    empty: EmptyTicks
    rewrites: list[int]


def recorded(location: Location, table: str, version: int) -> Recorded:
    """Returns the records of all commits up to a version. Rewrites are those since the last summary."""
    summary = Summary.read(location, table)
    if summary.version > version or not _is_valid(summary):
        summary = Summary()
    empty_at, infos = summary.version, list[tuple[Mapping[str, Any], TableFile]]()
    before, rewrites = summary.mark, list[int]()
    for number in range(summary.version + 1, version + 1):
        data = commits.read_commit(location, number)
        if data is not None and (b'"ticklake.' in data or _RESTORE in data):
            file = location.log_file(commits.name_of(number))
            info = _info_of(data, file, before)
            if info.get("operation") == commits.RESTORE:
                empty_at, infos = _restored(info, number), []
            infos.append(({name: info[name] for name in (EMPTY, REMOVED) if name in info}, file))
        if data is not None and _is_rewrite(data):
            rewrites.append(number)
        before = history.digest_of(data) if data is not None else ""
    empty = EmptyTicks(summary.empty) if empty_at == summary.version else recorded(location, table, empty_at).empty
    for one, file in infos:
        _apply(empty, one, file)
    return Recorded(empty, rewrites)
