"""Values in statements of callers: `:name` on every database, although psycopg writes `%(name)s`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ticklake.database.endings import LETTER, QUOTED, after_comment

_TOKEN = re.compile(
    rf"(?P<space>\s+|--[^\r\n]*)|(?P<quoted>{QUOTED}|`[^`]*`)|(?P<comment>/\*)"
    rf"|(?P<word>(?:{LETTER}|\d)(?:{LETTER}|[\d$])*)"
    rf"|::|:=|:(?P<name>{LETTER}(?:{LETTER}|\d)*)|%\((?P<percent>\w+)\)[sbt]|(?P<sign>.)",
    re.IGNORECASE | re.DOTALL,
)
_NONE: frozenset[str] = frozenset()
_CACHED_LENGTH = 10_000
"""In characters. Longer statements usually contain data, and are executed once."""
_ENDS_VALUE = re.compile(r"[\w)\]'\"$]")


class Placeholders(NamedTuple):
    """The names of a statement's values by style, and the statement as psycopg expects it."""

    names: frozenset[str]
    percents: frozenset[str]
    psycopg: str


def placeholders(text: str) -> Placeholders:
    """Finds the values of a statement. Texts, comments, quoted names, casts and array slices have none.

    A statement in psycopg's own style is left as it is. In any other one, a percent sign stands for itself.
    """
    if ":" not in text and "%" not in text:
        return Placeholders(_NONE, _NONE, text)
    return _parsed(text) if len(text) <= _CACHED_LENGTH else _parsed.__wrapped__(text)


@lru_cache(maxsize=256)
def _parsed(text: str) -> Placeholders:
    found = list(_found(text))
    names = frozenset(one["name"] for one in found if one["name"])
    percents = frozenset(one["percent"] for one in found if one["percent"])
    if percents:
        return Placeholders(names, percents, text)
    parts, at = [], 0
    for one in found:
        parts += [text[at : one.start()].replace("%", "%%"), f"%({one['name']})s"]
        at = one.end()
    return Placeholders(names, percents, "".join(parts) + text[at:].replace("%", "%%"))


def _found(text: str) -> Iterator[re.Match[str]]:
    brackets: list[str] = []
    at, before = 0, ""  # the last character of the last token
    while token := _TOKEN.match(text, at):
        at = after_comment(text, token.end()) if token["comment"] else token.end()
        if token["space"] or token["comment"]:
            continue
        if token["sign"] and token["sign"] in "([":
            brackets.append(token["sign"])
        elif token["sign"] and token["sign"] in ")]" and brackets:
            brackets.pop()
        in_slice = brackets[-1:] == ["["] and bool(_ENDS_VALUE.match(before))
        if token["percent"] or (token["name"] and not in_slice):
            yield token
        before = token[0][-1]
