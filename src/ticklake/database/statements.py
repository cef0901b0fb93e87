"""Named SQL statements in `<package>/sql/<dialect>/*.sql`, and numbered migrations in `schema/` next to them.

A file groups related statements. A line `-- name: mark_done` begins a statement, which ends at the next such line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ticklake.database.endings import split
from ticklake.database.errors import BadStatement

_NUMBERED = re.compile(r"(\d{3})_\w+\.sql")
_NAME = re.compile(r"^[ \t]*--[ \t]*name[ \t]*:(.*)$", re.MULTILINE | re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class Migration(NamedTuple):
    """A numbered migration of a package's tables: `<package>/sql/<dialect>/schema/001_what.sql`."""

    number: int
    text: str


@cache
def statements(package: str, dialect: str) -> Mapping[str, str]:
    """Returns the statements of a package by name. Raises `BadStatement` unless each has one unique name."""
    folder = files(package) / "sql" / dialect
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            path = f"{package}/sql/{dialect}/{file.name}"
            for name, text in _named(path, file.read_text("utf-8")):
                if name in found:
                    raise BadStatement(file=path, reason=f"the name {name} is used twice in this folder")
                found[name] = text
    return found


def _named(file: str, text: str) -> Iterator[tuple[str, str]]:
    """Yields the statements of a file with their comments. Only comments may precede the first name."""
    head, *rest = _NAME.split(text)
    if _count(head):
        raise BadStatement(file=file, reason="there is SQL before the first name")
    for name, body in zip(map(str.strip, rest[::2]), rest[1::2], strict=True):
        if not name.isidentifier():
            raise BadStatement(file=file, reason=f"{name!r} is not a name")
        if (count := _count(body)) != 1:
            many = f"are {count} statements" if count else "is no statement"
            raise BadStatement(file=file, reason=f"there {many} below the name {name}")
        yield name, body.strip()


def _count(text: str) -> int:
    """Returns the number of statements in a text."""
    return sum(1 for one in split(text) if _COMMENT.sub("", one.text).strip("; \t\n"))


@cache
def migrations(package: str, dialect: str) -> tuple[Migration, ...]:
    """Returns the migrations of a package in order; empty if it has no tables."""
    folder = files(package) / "sql" / dialect / "schema"
    if not folder.is_dir():
        return ()
    found = ((_NUMBERED.fullmatch(f.name), f) for f in folder.iterdir())
    return tuple(sorted(Migration(int(m[1]), f.read_text("utf-8")) for m, f in found if m))
