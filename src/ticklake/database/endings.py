"""Finds statements that would end a transaction, or a part of it. Only the code that began it may end it.

This gives callers a clear error early. The guarantee itself is elsewhere: PostgreSQL gets each statement separately, so
only its first words matter, and SQLite asks a hook before it commits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FLAGS = re.IGNORECASE | re.DOTALL
_SUSPICIOUS = re.compile(r"\b(?:COMMIT|END|ABORT|ROLLBACK|PREPARE|SAVEPOINT|RELEASE)\b", _FLAGS)
_PREPARE = re.compile(r"\bPREPARE\b", _FLAGS)
LETTER = r"[A-Za-z_\u0080-\U0010ffff]"
QUOTED = (
    r"E'(?:[^'\\]|\\.|'')*'"
    r"|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    rf"|\$(?P<tag>(?:{LETTER}(?:{LETTER}|\d)*)?)\$.*?\$(?P=tag)\$"
)
"""Text and quoted names, as PostgreSQL reads them."""
_TOKEN = re.compile(
    rf"--[^\r\n]*|{QUOTED}|(?P<word>{LETTER}(?:{LETTER}|[\d$])*)|(?P<sign>/\*|[;()])",
    _FLAGS,
)
_COMMENT = re.compile(r"/\*|\*/")
_ENDINGS = ("COMMIT", "END", "ABORT", "ROLLBACK", "PREPARE TRANSACTION")
_SAVEPOINTS = ("SAVEPOINT", "RELEASE")
_ROLLBACK_TO = re.compile(r"ROLLBACK (?:(?:WORK|TRANSACTION) )?TO\b")
_BODY = re.compile(r"CREATE (?:.* )?(?:TRIGGER .*BEGIN|(?:FUNCTION|PROCEDURE) .*BEGIN ATOMIC)")


class Statement(NamedTuple):
    """A statement of a text, and its words without quoted text, comments and brackets."""

    text: str
    words: str


def ending(text: str) -> str | None:
    """Returns the words of the first statement in `text` that ends the transaction, or None."""
    if not _SUSPICIOUS.search(text):
        return None
    for statement in split(text):
        for words in _ENDINGS:
            if f"{statement.words} ".startswith(f"{words} ") and not _ROLLBACK_TO.match(statement.words):
                return words
    return None


def savepoint(text: str) -> str | None:
    """Returns the words of the first statement in `text` that makes, releases or undoes a savepoint, or None."""
    if not _SUSPICIOUS.search(text):
        return None
    for statement in split(text):
        if _ROLLBACK_TO.match(statement.words):
            return "ROLLBACK TO"
        for words in _SAVEPOINTS:
            if f"{statement.words} ".startswith(f"{words} "):
                return words
    return None


def prepares(text: str) -> bool:
    """Returns whether `text` may prepare a statement, which stays in the session."""
    return _PREPARE.search(text) is not None


def split(text: str) -> Iterator[Statement]:
    """Yields the statements of `text`, as PostgreSQL reads it. A trigger or function may contain semicolons."""
    start = at = depth = 0
    words: list[str] = []
    in_body = may_end = False  # only an END at the beginning of a statement ends a body
    while found := _TOKEN.search(text, at):
        at, word, sign = found.end(), found["word"], found["sign"]
        if sign == "/*":
            at = after_comment(text, at)
        elif sign in ("(", ")"):
            depth = max(0, depth + (1 if sign == "(" else -1))
        elif sign == ";" and in_body:
            may_end = True
        elif sign == ";" and depth == 0:
            yield Statement(text[start:at], " ".join(words))
            start, words = at, []
        elif word and in_body:
            in_body = not (may_end and word.upper() == "END")
            may_end = False
        elif word and depth == 0:
            words.append(word.upper())
            in_body = may_end = words[-1] in ("BEGIN", "ATOMIC") and bool(_BODY.fullmatch(" ".join(words)))
    yield Statement(text[start:], " ".join(words))


def after_comment(text: str, at: int) -> int:
    """Returns the position after a comment. Comments can be nested."""
    depth = 1
    while depth and (found := _COMMENT.search(text, at)):
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return len(text) if depth else at
