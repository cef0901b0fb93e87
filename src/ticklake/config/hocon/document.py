"""A configuration file as a tree of plain values that remembers where each key stands and what is written there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ticklake.config.errors import ConfigNotFound, ConfigSyntax, DefinedTwice, UnknownReference
from ticklake.config.hocon.source import (
    Definition,
    KeyPath,
    Token,
    imbalance,
    read_text,
    reference_name,
    scan,
    unquoted,
)
from ticklake.config.hocon.suggest import nearest

_LINE = re.compile(r"\(?line:\s*(\d+)")
FROM_OUTSIDE = "\0"
"""Stands in a spelling for what the environment fills in."""


@dataclass(frozen=True)
class Document:
    """The resolved tree of a file and its includes."""

    file: Path
    tree: dict[str, Any]
    definitions: list[Definition]

    def at(self, path: KeyPath) -> Definition | None:
        """The definition that counts: the last one that gives a value."""
        found = [one for one in reversed(self.definitions) if one.path == path]
        return next(filter(self._gives_a_value, found), found[0] if found else None)

    def where(self, path: KeyPath) -> str:
        """File and line of a key, or of the nearest key around it."""
        for length in range(len(path), 0, -1):
            if found := self.at(path[:length]):
                return found.where
        return str(self.file)

    def origin(self, path: KeyPath) -> str:
        """Where a value comes from: its file and line, and the variables of the environment that are part of it."""
        found = self.at(path)
        names = [".".join(name) for name, _ in references(found) if not self._defines(name)] if found else []
        set_ones = [name for name in names if name in os.environ]
        return f"environment {', '.join(set_ones)} in {self.where(path)}" if set_ones else self.where(path)

    def blocks(self, path: KeyPath) -> Iterator[Definition]:
        return (found for found in self.definitions if found.path == path and found.block)

    def spellings(self, path: KeyPath, within: frozenset[KeyPath] = frozenset()) -> Iterator[str]:
        """What the files say at this key, however many references away; `FROM_OUTSIDE` for what they do not say."""
        if path in within:
            return
        for found in self.definitions:
            length = len(found.path)
            if found.path == path:
                yield "".join(self._spelling(token, within | {path}) for token in found.value)
            elif found.path == path[:length]:  # a block that is, or begins with, another one
                for name, _ in references(found):
                    yield from self.spellings((*name, *path[length:]), within | {path})

    def _spelling(self, token: Token, within: frozenset[KeyPath]) -> str:
        if token.kind == "reference":
            name, _ = reference_name(token)
            return "".join(self.spellings(name, within)) if self._defines(name) else FROM_OUTSIDE
        text = unquoted(token.text) if token.kind == "quoted" else token.text
        return "" if text == "null" else text

    def _defines(self, path: KeyPath) -> bool:
        return any(found.path == path for found in self.definitions)

    def _gives_a_value(self, found: Definition) -> bool:
        """`key = ${?NAME}` leaves the key as it was where there is no such name."""
        names = references(found)
        if found.block or not names or len(names) < len(found.value):
            return True
        return any(not optional or self._defines(name) or ".".join(name) in os.environ for name, optional in names)


def read(file: Path) -> Document:
    """Parses a file; whatever is wrong with it as HOCON is one error that names the line."""
    if file.is_dir():
        raise ConfigNotFound(file=file)
    definitions, files = scan(file)
    return Document(file, _parse(file, definitions, files), definitions)


def references(found: Definition) -> list[tuple[KeyPath, bool]]:
    """The names that a definition refers to, and whether each may be missing."""
    return [reference_name(token) for token in found.value if token.kind == "reference"]


def refuse_twins(document: Document, section: KeyPath, names: dict[str, Any]) -> None:
    """HOCON would silently merge two blocks of one name in one file into one."""
    for name in names:
        blocks = list(document.blocks((*section, name)))
        for one, other in pairwise(blocks):
            if one.file == other.file:
                raise DefinedTwice(where=other.where, key=".".join((*section, name)), line=one.line)


def _parse(file: Path, definitions: list[Definition], files: list[Path]) -> dict[str, Any]:
    from pyhocon import ConfigFactory, ConfigTree

    try:
        tree = ConfigFactory.parse_string(read_text(file), basedir=str(file.parent))
        plain = tree.as_plain_ordered_dict() if isinstance(tree, ConfigTree) else None
    except Exception as error:  # pyhocon raises its own, pyparsing's, and whatever escapes from its inside
        if "Cannot resolve variable" in str(error):
            raise _unknown_reference(file, str(error), definitions) from error
        raise _syntax(files, error) from error
    if plain is None:
        raise ConfigSyntax(where=file, reason="it must hold keys and values, not a list")
    return dict(plain)


def _unknown_reference(file: Path, message: str, definitions: list[Definition]) -> UnknownReference:
    name = message.partition("${")[2].partition("}")[0].lstrip("?")
    users = [found for found in definitions if any(".".join(used) == name for used, _ in references(found))]
    where = users[0].where if users else _where(file, message)
    hint = nearest(name, [".".join(found.path) for found in definitions])
    return UnknownReference(where=where, name=" ".join(name.split()), hint=hint)


def _syntax(files: list[Path], error: Exception) -> ConfigSyntax:
    """Which of the files it is, and where in it."""
    guilty = next(((file, found) for file in files if (found := _own_problem(file))), None)
    file, cause = guilty or (files[-1], error)
    lost = imbalance(file) if guilty else None
    if lost and not isinstance(cause, RecursionError):
        return ConfigSyntax(where=f"{file}:{lost[0]}", reason=lost[1])
    return ConfigSyntax(where=_where(file, str(cause), getattr(cause, "lineno", None)), reason=_reason(cause))


def _own_problem(file: Path) -> Exception | None:
    """What is wrong with a file on its own, whatever its includes and references say."""
    from pyhocon import ConfigFactory

    text = re.sub(r"^(\s*)include\b.*$", r"\1", read_text(file), flags=re.MULTILINE)
    try:
        ConfigFactory.parse_string(text, resolve=False)
    except Exception as error:  # as above
        return error
    return None


def _where(file: Path, message: str, line: int | None = None) -> str:
    line = line or next(iter(_LINE.findall(message)), None)
    return f"{file}:{line}" if line else str(file)


def _reason(error: Exception) -> str:
    """pyparsing lists its whole grammar; what a person needs is the place and what stands there."""
    text = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "Check for cycles" in text:
        return "its references go in a circle: " + ", ".join(re.findall(r"\$\{[^}]*\}", text))
    if found := re.search(r"found ('\W'|end of text)\s+\(at char", text):
        return f"{found[1]} is not expected here: a key needs `=`, `:` or `{{` after it, special characters need quotes"
    if "Cannot concatenate" in text:
        return "a value and a block, or a list and something else, are put together where only one kind can be"
    return "a key needs `=`, `:` or `{` after it"
