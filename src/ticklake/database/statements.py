"""Named SQL statements: `<package>/sql/<dialect>/<name>.sql`, one each, and a package's numbered tables beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_NUMBERED = re.compile(r"(\d{3})_\w+\.sql")


class Migration(NamedTuple):
    """One numbered step of a package's tables: `<package>/sql/<dialect>/schema/001_what.sql`."""

    number: int
    text: str


@cache
def statements(package: str, dialect: str) -> Mapping[str, str]:
    """Every statement of a package by its name."""
    folder = files(package) / "sql" / dialect
    return {f.name[:-4]: f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".sql")}


@cache
def migrations(package: str, dialect: str) -> tuple[Migration, ...]:
    """A package's steps in order; empty where it has no tables of its own."""
    folder = files(package) / "sql" / dialect / "schema"
    if not folder.is_dir():
        return ()
    found = ((_NUMBERED.fullmatch(f.name), f) for f in folder.iterdir())
    return tuple(sorted(Migration(int(m[1]), f.read_text("utf-8")) for m, f in found if m))
