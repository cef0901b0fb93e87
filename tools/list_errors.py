"""Writes docs/errors.md: every error of `ticklake.errors`, what it means and what to do. `--check` only compares."""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from ticklake import errors
from ticklake.errors import TickLakeError

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
HEAD = """\
# Errors

Every error that TickLake raises on purpose, by its class in `ticklake.errors`. A command prints its text in one line,
a service records it, a program catches it ([API](api/errors.md)). Words in capitals stand for a value. Search this page
for the words that you were shown.

`make errors` writes this page from the classes.
"""
NO_REMEDY = "The text says what is wrong: change that."


def classes() -> list[type[TickLakeError]]:
    """All errors that users can meet, by their package and name."""
    names = getattr(errors, "__all__", None) or [name for name in vars(errors) if not name.startswith("_")]
    found = (getattr(errors, name) for name in names)
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, TickLakeError)]
    return sorted(
        (kind for kind in kinds if kind is not TickLakeError), key=lambda kind: (package(kind), kind.__name__)
    )


def package(kind: type[TickLakeError]) -> str:
    """The package that an error belongs to; empty if it is defined in `ticklake.errors` itself."""
    words = kind.__module__.split(".")
    return "" if words[1] == "errors" else words[1]


def text(kind: type[TickLakeError]) -> str:
    """The message with the names of its values in capitals."""
    parts: list[str] = []
    for before, field, _, _ in string.Formatter().parse(kind.message):
        parts.append(before)
        if field == "hint":  # a guess at what was meant, which ends the sentence
            parts.append(".")
        elif field is not None:
            parts.append(field.upper())
    # A value such as {reason} can bring its own full stop along.
    return re.sub(r"(?<=[A-Z_]{2}) (?=[A-Z][a-z])", ". ", "".join(parts))


def meaning_and_remedy(message: str) -> tuple[str, str]:
    """The first sentence, and the rest. One sentence is parted where it goes on to say what to do."""
    meaning, _, remedy = partition(message, r"(?<=[.?])\s+(?=[A-Z`])")
    if not remedy:
        meaning, _, remedy = partition(message, r";\s+|:\s+(?=[a-z`])")
    if not remedy:
        return message, NO_REMEDY
    if remedy.startswith("pip "):
        return f"{meaning}.", f"`{remedy.rstrip('.')}`"
    return f"{meaning.rstrip('.;:?')}.", f"{remedy[0].upper()}{remedy[1:]}"


def partition(message: str, at: str) -> tuple[str, str, str]:
    """Parts a message at the first such place that is not inside of a command and not behind a mere place in a file."""
    for found in re.finditer(at, message):
        before = message[: found.start()]
        if before.count("`") % 2 == 0 and " " in before:
            return before, found[0], message[found.end() :]
    return message, "", ""


def rows() -> Iterator[str]:
    for group, kinds in groupby(classes(), key=package):
        if group:
            yield f"\n## {group.capitalize()}\n"
        else:
            yield ""
        yield "| error | what it means | what to do |"
        yield "| --- | --- | --- |"
        for kind in kinds:
            meaning, remedy = (cell.replace("|", "\\|") for cell in meaning_and_remedy(text(kind)))
            parents = [parent.__name__ for parent in kind.__bases__ if parent is not TickLakeError]
            kind_of = f", a kind of `{parents[0]}`" if parents and parents[0] in vars(errors) else ""
            yield f'| <a id="{kind.__name__.lower()}"></a>`{kind.__name__}`{kind_of} | {meaning} | {remedy} |'


def page() -> str:
    return HEAD + "\n".join(rows()) + "\n"


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page() and "docs/errors.md is out of date: make errors")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
