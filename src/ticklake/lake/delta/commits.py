"""Encodes and decodes commits of a Delta log: one line of JSON for each action.

What a commit records is decided in log.py (`_write`) and, for its sources, in lake/flush/flush.py (`_provenance`).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from ticklake.lake.delta.location import Location
from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile
from ticklake.ticks import TickRange

_TAG = "ticklake.crc32"
ID = "ticklake.commit"
"""The commit metadata with the UUID of the commit."""
AFTER = "ticklake.after"
"""The commit metadata with the digest of the commit before it."""
SOURCES = "ticklake.sources"
"""The commit metadata with the batch files whose ticks it adds, as JSON."""
RESTORE = "RESTORE"
"""The operation with which any engine makes an older version the newest."""
_ZEROS = "0" * 8
# Includes ticks below 0, which another engine may add: they are unexpected, but not damage.
_INT64 = TickRange(-(2**63), 2**63 - 1)
_NAME = re.compile(r"\d{20}\.json")
_CHECKSUM = re.compile(rb'"ticklake\.checksum":"(.{8})"')

Action = Mapping[str, Mapping[str, Any]]


@dataclass
class Commit:
    """A decoded commit: files added (with checksums) and removed, and its metadata (`info`).

    `redefines` is True if it changes schema, protocol or history, so that the table must be opened again."""

    adds: list[LiveFile] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    redefines: bool = False


def name_of(version: int) -> str:
    return f"{version:020d}.json"


def version_of(name: str) -> int:
    """Returns the version of a commit by the name of its file."""
    return int(name[:20])


def added_ticks(location: Location, version: int) -> list[range] | None:
    """Returns the ticks that the commits up to a version added.

    Returns None if a commit is missing, or if another engine added rows.
    """
    found: list[range] = []
    for number in range(version + 1):
        data = read_commit(location, number)
        if data is None:
            return None
        try:
            commit = decode_commit(data, "")
            sources = json.loads(commit.info.get(SOURCES, "[]"))
            found.extend(range(int(one["ticks"][0]), int(one["ticks"][1]) + 1, int(one["step"])) for one in sources)
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        if commit.adds and not sources and not commit.removes:
            return None
    return found


def written_bounds(location: Location, version: int, ordinal: str) -> dict[str, TickRange]:
    """Returns the tick bounds of each file from the commits up to a version. Reads them all."""
    found: dict[str, TickRange] = {}
    for number in range(version + 1):
        data = read_commit(location, number)
        with suppress(ValueError):
            adds = decode_commit(data, ordinal).adds if data is not None else []
            found.update({file.path: file.ticks for file in adds})
    return found


def is_commit(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def read_commit(location: Location, version: int) -> bytes | None:
    """Returns the bytes of a commit, or None if it does not exist."""
    try:
        return location.log_file(name_of(version)).read()
    except FileNotFoundError:
        return None


def decode_commit(data: bytes, ordinal: str) -> Commit:
    """Decodes a commit, with the bounds of column `ordinal`. Raises ValueError if it is not valid or was altered."""
    if not data.strip():
        raise ValueError("it is empty")
    commit = Commit()
    for line in checked(data).splitlines():
        try:
            ((kind, action),) = json.loads(line).items()
            _apply(commit, kind, action, ordinal)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"its actions are not valid ({error!r})") from error
    return commit


def _apply(commit: Commit, kind: str, action: Mapping[str, Any], ordinal: str) -> None:
    if kind == "add":
        commit.adds.append(_live(action, ordinal))
        if (action.get("tags") or {}).get(_TAG):
            commit.checksums[commit.adds[-1].path] = action["tags"][_TAG]
    elif kind == "remove":
        commit.removes.append(unquote(action["path"]))
    elif kind == "commitInfo":
        commit.info = dict(**action)
        commit.redefines |= action.get("operation") == RESTORE
    elif kind in ("metaData", "protocol"):
        commit.redefines = True


def info_of(data: bytes) -> Mapping[str, Any]:
    """Returns the metadata of a commit without decoding its files. Raises ValueError if it is not valid."""
    for line in data.splitlines():
        if line.startswith(b'{"commitInfo"'):
            try:
                return dict(**json.loads(line)["commitInfo"])
            except (TypeError, RecursionError) as error:
                raise ValueError(f"its actions are not valid ({error!r})") from error
    return {}


def encoded(info: Mapping[str, Any], actions: Iterable[Action]) -> bytes:
    """Encodes a commit with a checksum of all bytes. The checksum itself counts as zeros."""
    lines = [{"commitInfo": {**info, "ticklake.checksum": _ZEROS}}, *actions]
    data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    found = _CHECKSUM.search(data)
    assert found is not None  # noqa: S101  it is in the first line
    return b"%s%08x%s" % (data[: found.start(1)], zlib.crc32(data), data[found.end(1) :])


def checked(data: bytes) -> bytes:
    """Returns the bytes, or raises ValueError if the checksum is wrong. Commits of other engines have none."""
    found = _CHECKSUM.search(data)
    if found is None:
        return data
    blank = data[: found.start(1)] + _ZEROS.encode() + data[found.end(1) :]
    if b"%08x" % zlib.crc32(blank) != found[1]:
        raise ValueError("its checksum is wrong")
    return data


def is_torn(data: bytes) -> bool:
    """Returns True if a power cut can explain the bytes: empty, cut off at the end, or with blocks of zeros.

    Any other damage happened to a complete commit, which may have been acknowledged.
    """
    if not data.strip() or b"\0" in data:
        return True
    *_, last = data.splitlines()
    try:
        json.loads(last)
    except json.JSONDecodeError as error:
        return not last.rstrip().endswith(b"}") or error.pos >= len(error.doc)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def added(files: Sequence[ParquetFile], now: int, *, data_change: bool) -> list[Action]:
    return [
        {
            "add": {
                "path": quote(file.path),
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": data_change,
                "stats": file.stats,
                "tags": {_TAG: file.checksum},
            }
        }
        for file in files
    ]


def removed(files: Sequence[LiveFile], now: int, *, data_change: bool) -> list[Action]:
    """Returns the actions that remove these files from the table."""
    return [
        {
            "remove": {
                "path": file.written,
                "deletionTimestamp": now,
                "dataChange": data_change,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": file.size,
            }
        }
        for file in files
    ]


def _live(add: Mapping[str, Any], ordinal: str) -> LiveFile:
    stats = json.loads(add.get("stats") or "{}")
    low = _bound(stats, "minValues", ordinal, ANY_TICK.start)
    high = _bound(stats, "maxValues", ordinal, ANY_TICK.end)
    size, rows = add["size"], stats.get("numRecords")
    if not isinstance(size, int) or not isinstance(rows, int | None):
        raise ValueError(f"it lists a file with {size!r} bytes and {rows!r} rows")
    return LiveFile(unquote(add["path"]), size, rows, TickRange(low, high), add["path"])


def _bound(stats: Mapping[str, Any], name: str, ordinal: str, missing: int) -> int:
    value = (stats.get(name) or {}).get(ordinal)
    if value is not None and value not in _INT64:
        raise ValueError(f"its {name} have {value!r} as {ordinal}")
    return missing if value is None else int(value)
