"""Names that people choose (runs, topics, groups) and what they are called in a database."""

from __future__ import annotations

import hashlib
import re

from ticklake.database.errors import InvalidName

LONGEST = 255
# PostgreSQL cuts identifiers at 63 bytes; SIM_ takes four of them.
_PLAIN = re.compile(r"(?=.{1,59}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_name(kind: str, name: str) -> str:
    """`name` itself, where a database can hold it."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidName(kind=kind, name=name, reason="it is empty")
    if len(name) > LONGEST:
        raise InvalidName(kind=kind, name=f"{name[:40]}…", reason=f"it has {len(name)} characters")
    if _FORBIDDEN.search(name):
        raise InvalidName(kind=kind, name=name, reason="it holds a control character or half a surrogate pair")
    return name


def schema_name(run_id: str) -> str:
    """The schema (PostgreSQL) or file (SQLite) of a run: readable, safe, and never shared by two run ids.

    Plain ids keep their letters. All others get a part of their hash behind two underscores, which no plain id has.
    """
    check_name("run id", run_id)
    if _PLAIN.fullmatch(run_id):
        return "SIM_" + run_id.replace("-", "_").upper()
    readable = re.sub(r"[^a-z0-9]+", "_", run_id.lower(), flags=re.ASCII).strip("_")[:24].upper()
    return f"SIM_{readable}__{hashlib.sha256(run_id.encode()).hexdigest()[:32].upper()}"


def is_name_of(schema: str, run_id: str) -> bool:
    """Whether a run's tables are in a schema of this name."""
    try:
        return schema == schema_name(run_id)
    except InvalidName:
        return False
