"""A configuration file as a tree of plain values that remembers where each key stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ticklake.config.source import Definition, KeyPath, read_text, scan
from ticklake.errors import ConfigNotFound, ConfigSyntax, DefinedTwice

_LINE = re.compile(r"\(?line:\s*(\d+)")


@dataclass(frozen=True)
class Document:
    """The resolved tree of a file and its includes."""

    file: Path
    tree: dict[str, Any]
    definitions: list[Definition]

    def at(self, path: KeyPath) -> Definition | None:
        """The definition that counts: the last one."""
        return next((found for found in reversed(self.definitions) if found.path == path), None)

    def where(self, path: KeyPath) -> str:
        """File and line of a key, or of the nearest key around it."""
        for length in range(len(path), 0, -1):
            if found := self.at(path[:length]):
                return found.where
        return str(self.file)

    def blocks(self, path: KeyPath) -> Iterator[Definition]:
        return (found for found in self.definitions if found.path == path and found.block)


def read(file: Path) -> Document:
    """Parses a file; whatever is wrong with it as HOCON is one error that names the line."""
    if file.is_dir():
        raise ConfigNotFound(file=file)
    definitions = scan(file)
    return Document(file, _parse(file), definitions)


def refuse_twins(document: Document, section: KeyPath, names: dict[str, Any]) -> None:
    """HOCON would silently merge two blocks of one name in one file into one."""
    for name in names:
        blocks = list(document.blocks((*section, name)))
        for one, other in pairwise(blocks):
            if one.file == other.file:
                raise DefinedTwice(where=other.where, key=".".join((*section, name)), line=one.line)


def _parse(file: Path) -> dict[str, Any]:
    from pyhocon import ConfigFactory, ConfigTree

    try:
        tree = ConfigFactory.parse_string(read_text(file), basedir=str(file.parent))
        plain = tree.as_plain_ordered_dict() if isinstance(tree, ConfigTree) else None
    except Exception as error:  # pyhocon raises its own, pyparsing's, and whatever escapes from its inside
        raise ConfigSyntax(where=_where(file, error), reason=_reason(error)) from error
    if plain is None:
        raise ConfigSyntax(where=file, reason="it must hold keys and values, not a list")
    return dict(plain)


def _where(file: Path, error: Exception) -> str:
    line = getattr(error, "lineno", None) or next(iter(_LINE.findall(str(error))), None)
    return f"{file}:{line}" if line else str(file)


def _reason(error: Exception) -> str:
    """pyparsing lists its whole grammar; what a person needs is the place and what stands there."""
    text = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "Cannot resolve variable" in text:
        name = text.partition("${")[2].partition("}")[0].lstrip("?")
        return f"${{{name}}} is neither defined here nor in the environment; ${{?{name}}} may be missing"
    if "Check for cycles" in text:
        return "its references go in a circle: " + ", ".join(re.findall(r"\$\{[^}]*\}", text))
    if found := re.search(r"found (.+?)\s+\(at char", text):
        return f"{found[1]} is not expected here; text with special characters needs quotes"
    return text if len(text) < 200 else "a key needs `=`, `:` or `{` after it"
