"""A configuration file as a tree of plain values that remembers the line and the source text of each key."""

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
"""Marks, in a spelling, the text that comes from the environment."""


@dataclass(frozen=True)
class Document:
    """The resolved tree of a file and its includes."""

    file: Path
    tree: dict[str, Any]
    definitions: list[Definition]

    def at(self, path: KeyPath) -> Definition | None:
        """Returns the effective definition of a key: the last one that sets a value."""
        found = [one for one in reversed(self.definitions) if one.path == path]
        return next(filter(self._sets_a_value, found), found[0] if found else None)

    def where(self, path: KeyPath) -> str:
        """Returns the file and line of a key, or of the nearest enclosing key."""
        for length in range(len(path), 0, -1):
            if found := self.at(path[:length]):
                return found.where
        return str(self.file)

    def origin(self, path: KeyPath) -> str:
        """Returns where a value comes from: its file and line, and the environment variables that it uses."""
        found = self.at(path)
        names = [".".join(name) for name, _ in references(found) if not self._defines(name)] if found else []
        set_ones = [name for name in names if name in os.environ]
        return f"environment {', '.join(set_ones)} in {self.where(path)}" if set_ones else self.where(path)

    def blocks(self, path: KeyPath) -> Iterator[Definition]:
        return (found for found in self.definitions if found.path == path and found.block)

    def spellings(self, path: KeyPath, within: frozenset[KeyPath] = frozenset()) -> Iterator[str]:
        """Yields the text of a key with references resolved; `FROM_OUTSIDE` replaces values of the environment."""
        if path in within:
            return
        for found in self.definitions:
            length = len(found.path)
            if found.path == path:
                yield "".join(self._spelling(token, within | {path}) for token in found.value)
            elif found.path == path[:length]:  # the enclosing block refers to another block
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

    def _sets_a_value(self, found: Definition) -> bool:
        """Returns whether a definition sets a value: `key = ${?NAME}` does not if NAME is undefined."""
        names = references(found)
        if found.block or not names or len(names) < len(found.value):
            return True
        return any(not optional or self._defines(name) or ".".join(name) in os.environ for name, optional in names)


def read(file: Path) -> Document:
    """Parses a file. Any HOCON mistake is one error that names the line."""
    if file.is_dir():
        raise ConfigNotFound(file=file)
    definitions, files = scan(file)
    return Document(file, _parse(file, definitions, files), definitions)


def references(found: Definition) -> list[tuple[KeyPath, bool]]:
    """Returns the names that a definition refers to, and whether each is optional."""
    return [reference_name(token) for token in found.value if token.kind == "reference"]


def refuse_twins(document: Document, section: KeyPath, names: dict[str, Any]) -> None:
    """Raises `DefinedTwice` if a file has two blocks of the same name. HOCON would merge them silently."""
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
    except Exception as error:  # pyhocon raises its own errors, pyparsing's and unexpected ones
        if "Cannot resolve variable" in str(error):
            raise _unknown_reference(file, str(error), definitions) from error
        raise _syntax(files, error) from error
    if plain is None:
        raise ConfigSyntax(where=file, reason="the file must contain keys and values, not a list")
    return dict(plain)


def _unknown_reference(file: Path, message: str, definitions: list[Definition]) -> UnknownReference:
    name = message.partition("${")[2].partition("}")[0].lstrip("?")
    users = [found for found in definitions if any(".".join(used) == name for used, _ in references(found))]
    where = users[0].where if users else _where(file, message)
    hint = nearest(name, [".".join(found.path) for found in definitions])
    return UnknownReference(where=where, name=" ".join(name.split()), hint=hint)


def _syntax(files: list[Path], error: Exception) -> ConfigSyntax:
    """Finds the file and the line of a syntax error."""
    culprit = next(((file, found) for file in files if (found := _own_problem(file))), None)
    file, cause = culprit or (files[-1], error)
    unbalanced = imbalance(file) if culprit else None
    if unbalanced and not isinstance(cause, RecursionError):
        return ConfigSyntax(where=f"{file}:{unbalanced[0]}", reason=unbalanced[1])
    return ConfigSyntax(where=_where(file, str(cause), getattr(cause, "lineno", None)), reason=_reason(cause))


def _own_problem(file: Path) -> Exception | None:
    """Parses a file without its includes and references. Returns the error, if there is one."""
    from pyhocon import ConfigFactory

    text = re.sub(r"^(\s*)include\b.*$", r"\1", read_text(file), flags=re.MULTILINE)
    try:
        ConfigFactory.parse_string(text, resolve=False)
    except Exception as error:  # see `_parse`
        return error
    return None


def _where(file: Path, message: str, line: int | None = None) -> str:
    line = line or next(iter(_LINE.findall(message)), None)
    return f"{file}:{line}" if line else str(file)


def _reason(error: Exception) -> str:
    """Shortens an error of pyparsing, which lists its whole grammar."""
    text = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        return "the nesting is too deep"
    if "Check for cycles" in text:
        return "its references form a cycle: " + ", ".join(re.findall(r"\$\{[^}]*\}", text))
    if found := re.search(r"found ('\W'|end of text)\s+\(at char", text):
        return f"{found[1]} is unexpected here: a key needs `=`, `:` or `{{` after it, special characters need quotes"
    if " must be of type " in text:
        return "only values of one kind can be concatenated, not a value and a block or a list and something else"
    return "a key needs `=`, `:` or `{` after it"
