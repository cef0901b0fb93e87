"""Names given by users (runs, topics, groups) and their names in a database."""

from __future__ import annotations

import hashlib
import re

from ticklake.database.errors import InvalidName

MAX_LENGTH = 255
# PostgreSQL truncates identifiers at 63 bytes; SIM_ uses four of them.
_PLAIN = re.compile(r"(?=.{1,59}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_name(kind: str, name: str) -> str:
    """Returns `name`. Raises `InvalidName` if a database cannot store it."""
    if isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_LENGTH and not name.isspace():
        return name  # nearly always, so it is fast: no forbidden character is printable
    if not isinstance(name, str) or not name.strip():
        raise InvalidName(kind=kind, name=name, reason="it is empty")
    if len(name) > MAX_LENGTH:
        raise InvalidName(kind=kind, name=f"{name[:40]}…", reason=f"it has {len(name)} characters")
    if _FORBIDDEN.search(name):
        raise InvalidName(kind=kind, name=name, reason="it contains a control character or an unpaired surrogate")
    return name


def schema_name(run_id: str) -> str:
    """Returns the schema (PostgreSQL) or file name (SQLite) of a run: readable, safe and unique.

    Plain ids stay readable. All others get two underscores, which no plain id has, and a part of their hash.
    """
    check_name("run id", run_id)
    if _PLAIN.fullmatch(run_id):
        return "SIM_" + run_id.replace("-", "_").upper()
    readable = re.sub(r"[^a-z0-9]+", "_", run_id.lower(), flags=re.ASCII).strip("_")[:24].upper()
    return f"SIM_{readable}__{hashlib.sha256(run_id.encode()).hexdigest()[:32].upper()}"


def is_name_of(schema: str, run_id: str) -> bool:
    """Returns whether `schema` is the name of the run's schema."""
    try:
        return schema == schema_name(run_id)
    except InvalidName:
        return False
