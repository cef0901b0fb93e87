"""Finds statements that would end a transaction. Whoever began it ends it; others only work in it."""

from __future__ import annotations

import re

_FLAGS = re.IGNORECASE | re.DOTALL
_SUSPICIOUS = re.compile(r"\b(?:COMMIT|END|ABORT|ROLLBACK|PREPARE)\b", _FLAGS)
_QUOTED = re.compile(
    r"\bE'(?:[^'\\]|\\.|'')*'"
    r"|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|\$(\w*)\$.*?\$\1\$"
    r"|--[^\n]*"
    r"|/\*.*?\*/",
    _FLAGS,
)
_ENDING = re.compile(
    r"[\s*/]*"  # PostgreSQL's comments can be nested: of those, a rest is left
    r"(COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b",
    _FLAGS,
)
_BODY = re.compile(r"\s*CREATE\b.*\bBEGIN\b", _FLAGS)
_END_OF_BODY = re.compile(r"\s*END\b", _FLAGS)


def ending(text: str) -> str | None:
    """The words of the first statement in `text` that ends the transaction; None if none does."""
    if not _SUSPICIOUS.search(text):
        return None
    in_body = False  # of a trigger or a function, which has semicolons and an END of its own
    for statement in _QUOTED.sub(" ", text).split(";"):
        if in_body:
            in_body = not _END_OF_BODY.match(statement)
        elif found := _ENDING.match(statement):
            return found[1].upper()
        else:
            in_body = bool(_BODY.match(statement))
    return None
