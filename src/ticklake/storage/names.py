"""Names in storage: run ids, batch file names and keys. Names from outside are untrusted and checked here."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

from ticklake.storage.errors import UnsafeRunId, UnsafeStorageKey
from ticklake.ticks import TickRange

MAX_TICK = 2**63 - 1

SUPERSEDED = "superseded"
"""The folder in which the original keeps files that others have replaced. They are ignored."""

_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_BATCH = re.compile(r"batch_([0-9]{1,30})_([0-9]{1,30})\.pb(?:\.zst)?")
_STARTED = re.compile(r"([0-9]{8}-[0-9]{6})([0-9]{2})?-.+", re.DOTALL)


def new_run_id(now: datetime, unique: str | None = None) -> str:
    """Returns a run id such as `20251014-143025-550e8400`. A `now` with a time zone is converted to UTC."""
    moment = now.astimezone(UTC) if now.tzinfo else now
    return check_run_id(f"{moment:%Y%m%d-%H%M%S}-{unique or uuid.uuid4().hex[:8]}")


def run_started_at(run_id: str) -> datetime | None:
    """Returns the start time in a run id, or None. Also reads ids with hundredths of a second."""
    match = _STARTED.fullmatch(run_id)
    if not match:
        return None
    try:
        start = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return start.replace(microsecond=int(match[2] or 0) * 10_000)


def is_safe(name: str) -> bool:
    """Returns True for a plain path component: only letters, digits, `_`, `.` and `-`, no leading `.` or `-`."""
    return _COMPONENT.fullmatch(name) is not None


def is_searched(name: str) -> bool:
    """Returns True if batch files are looked for below a folder of a run that has this name."""
    return is_safe(name) and name != SUPERSEDED


def visible(name: str) -> bool:
    """Returns True if a name has no leading dot."""
    return not name.startswith(".")


def check_run_id(run_id: str) -> str:
    """Returns the run id, or raises `UnsafeRunId`."""
    if not is_safe(run_id):
        raise UnsafeRunId(run_id=run_id)
    return run_id


def check_key(key: str) -> tuple[str, ...]:
    """Returns the components of a key, `(run id, folders…, file name)`, or raises `UnsafeStorageKey`."""
    parts = tuple(key.split("/"))
    if len(parts) < 2 or not all(map(is_safe, parts)):
        raise UnsafeStorageKey(key=key)
    return parts


def batch_name(ticks: TickRange, compressed: bool) -> str:
    return f"batch_{ticks.start:010d}_{ticks.end:010d}.pb{'.zst' if compressed else ''}"


def parse_batch_name(name: str) -> TickRange | None:
    """Returns the ticks in the name of a batch file, with any number of digits. None for other names."""
    match = _BATCH.fullmatch(name)
    if not match:
        return None
    ticks = TickRange(int(match[1]), int(match[2]))
    return ticks if ticks and ticks.end <= MAX_TICK else None


def is_compressed(key: str) -> bool:
    return key.endswith(".zst")
