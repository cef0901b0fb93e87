"""The commits of a Delta log as the protocol writes them: a line of JSON an action."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile
from ticklake.ticks import TickRange

_TAG = "ticklake.crc32"
ID = "ticklake.commit"
"""What a commit says of itself: a UUID of its own."""
AFTER = "ticklake.after"
"""What a commit says of itself: the mark of the commit before it."""
SOURCES = "ticklake.sources"
"""What a commit says of itself: the batch files whose ticks it adds, as JSON."""
RESTORE = "RESTORE"
"""The operation, of any engine, that makes an older version the newest."""
_ZEROS = "0" * 8
# Also those below 0, which another engine may add: they are unexpected, and no damage.
_INT64 = TickRange(-(2**63), 2**63 - 1)
_NAME = re.compile(r"\d{20}\.json")
_CHECKSUM = re.compile(rb'"ticklake\.checksum":"(.{8})"')

Action = Mapping[str, Mapping[str, Any]]


@dataclass
class Commit:
    """What a commit did: the files it added, with their checksums, and removed; what it says of itself; and whether it
    redefined the table, so that what was known of it counts no more."""

    adds: list[LiveFile] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    redefines: bool = False


def name_of(version: int) -> str:
    return f"{version:020d}.json"


def added_ticks(log: Path, version: int) -> list[range] | None:
    """The ticks that the commits up to a version added; None if that cannot be known.

    It cannot if a commit is gone, or if somebody else added rows.
    """
    found: list[range] = []
    for number in range(version + 1):
        data = read_commit(log, number)
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


def written_bounds(log: Path, version: int, ordinal: str) -> dict[str, TickRange]:
    """What the commits up to a version say of the ticks of each file. Reads them all."""
    found: dict[str, TickRange] = {}
    for number in range(version + 1):
        data = read_commit(log, number)
        with suppress(ValueError):
            adds = decode_commit(data, ordinal).adds if data is not None else []
            found.update({file.path: file.ticks for file in adds})
    return found


def is_commit(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def read_commit(log: Path, version: int) -> bytes | None:
    """A commit's bytes; None where it is not there, or not yet."""
    try:
        return (log / name_of(version)).read_bytes()
    except FileNotFoundError:
        return None


def decode_commit(data: bytes, ordinal: str) -> Commit:
    """`ordinal` is the column whose bounds count. ValueError where it is no commit, or not as it was written."""
    if not data.strip():
        raise ValueError("it is empty")
    commit = Commit()
    for line in checked(data).splitlines():
        try:
            ((kind, action),) = json.loads(line).items()
            _take(commit, kind, action, ordinal)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"its actions are not what they should be ({error!r})") from error
    return commit


def _take(commit: Commit, kind: str, action: Mapping[str, Any], ordinal: str) -> None:
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
    """What a commit says of itself, without a look at its files. ValueError where that cannot be understood."""
    for line in data.splitlines():
        if line.startswith(b'{"commitInfo"'):
            try:
                return dict(**json.loads(line)["commitInfo"])
            except (TypeError, RecursionError) as error:
                raise ValueError(f"its actions are not what they should be ({error!r})") from error
    return {}


def encoded(info: Mapping[str, Any], actions: Iterable[Action]) -> bytes:
    """With a checksum of all its bytes, itself counted as zeros."""
    lines = [{"commitInfo": {**info, "ticklake.checksum": _ZEROS}}, *actions]
    data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    found = _CHECKSUM.search(data)
    assert found is not None  # noqa: S101  it is in the first line
    return b"%s%08x%s" % (data[: found.start(1)], zlib.crc32(data), data[found.end(1) :])


def checked(data: bytes) -> bytes:
    """The same bytes. ValueError where they are not those that were written; other engines' commits tell nothing."""
    found = _CHECKSUM.search(data)
    if found is None:
        return data
    blank = data[: found.start(1)] + _ZEROS.encode() + data[found.end(1) :]
    if b"%08x" % zlib.crc32(blank) != found[1]:
        raise ValueError("its checksum is wrong")
    return data


def is_torn(data: bytes) -> bool:
    """Whether a power cut can have left it so: empty, cut off at its end, or with blocks of zeros.

    What is wrong in any other way was whole once, and may have been acknowledged.
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
    """Files whose rows are in others now, or nowhere."""
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
        raise ValueError(f"it has a file of {size!r} bytes and {rows!r} rows")
    return LiveFile(unquote(add["path"]), size, rows, TickRange(low, high), add["path"])


def _bound(stats: Mapping[str, Any], name: str, ordinal: str, missing: int) -> int:
    value = (stats.get(name) or {}).get(ordinal)
    if value is not None and value not in _INT64:
        raise ValueError(f"its {name} have {value!r} as {ordinal}")
    return missing if value is None else int(value)
