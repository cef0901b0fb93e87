"""Finds the line and the source text of each key of a HOCON file.

pyhocon does not keep lines, ignores missing includes and treats `+=` as `=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ticklake.config.errors import AppendNotSupported, ConfigNotFound, ConfigSyntax, IncludeCycle, IncludeNotFound
from ticklake.config.hocon.suggest import nearest

KeyPath = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?P<comment> \#[^\n]* | (?<![^\s,{}\[\]])//[^\n]* )
  | (?P<quoted>  \"{3}(?s:.*?)\"{3,} | "(?:[^"\\\n]|\\.)*" )
  | (?P<reference> \$\{[^}\n]*\} )
  | (?P<append>  \+= )
  | (?P<mark>    [={}\[\]:,\n] )
  | (?P<space>   [^\S\n]+ )
  | (?P<word>    [^\s"{}\[\],=:\#$+/]+ | . )
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Definition:
    """A place that defines a key. `block` if it opens braces; `value` holds the other tokens."""

    path: KeyPath
    file: Path
    line: int
    block: bool = False
    value: tuple[Token, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


class Scan(NamedTuple):
    """The definitions of a file and its includes, in order, and these files, included ones first."""

    definitions: list[Definition]
    files: list[Path]


@dataclass
class _Frame:
    """An open brace or bracket: the key before it and the entry being read."""

    path: KeyPath
    is_list: bool = False
    line: int = 0
    key: list[Token] = field(default_factory=list)
    current: int | None = None
    has_value: bool = False


def scan(file: Path) -> Scan:
    found = _Scanner(file)
    return Scan(found.definitions(), found.files)


def imbalance(file: Path) -> tuple[int, str] | None:
    """Returns the line of an unmatched brace or bracket. The parser reports it only at the end of the file."""
    scanner = _Scanner(file)
    scanner.definitions()
    return scanner.imbalance()


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise ConfigNotFound(file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigSyntax(where=file, reason=f"the file is not valid UTF-8 ({error.reason})") from error


class _Scanner:
    """Follows the braces, keys and includes of a file. The parser checks everything else."""

    def __init__(self, file: Path, prefix: KeyPath = (), including: tuple[Path, ...] = ()) -> None:
        self.files = [file]
        self._stray: Token | None = None
        self._file = file
        self._text = read_text(file)
        self._including = (*including, file.resolve())
        self._frames = [_Frame(prefix)]
        self._found: list[Definition] = []

    def definitions(self) -> list[Definition]:
        for token in _tokens(self._text):
            frame = self._frames[-1]
            if token.kind == "mark":
                self._mark(frame, token)
            elif token.kind == "append" and not frame.is_list and frame.current is None:
                path = ".".join((*frame.path, *_components(frame.key)))
                raise AppendNotSupported(where=self._where(token), key=_spelling(frame.key), path=path)
            elif frame.is_list or frame.current is not None:
                self._value(frame, token)
            else:
                frame.key.append(token)
        self._end_of_entry(self._frames[-1])
        return self._found

    def imbalance(self) -> tuple[int, str] | None:
        if self._stray:
            return self._stray.line, f"this {self._stray.text} has no opening counterpart"
        if len(self._frames) > 1:
            frame = self._frames[-1]
            return frame.line, f"the {'[' if frame.is_list else '{'} in this line is never closed"
        return None

    def _mark(self, frame: _Frame, token: Token) -> None:
        match token.text:
            case "{":
                self._open(frame, token)
            case "[":
                self._frames.append(_Frame((*self._path(frame), "[]"), is_list=True, line=token.line))
            case "}" | "]":
                self._close(frame, token)
            case "=" | ":" if not frame.is_list and frame.current is None:
                self._define(frame, token)
            case "\n" | ",":
                self._end_of_entry(frame)

    def _open(self, frame: _Frame, token: Token) -> None:
        if frame.current is None and not frame.is_list and _spelling(frame.key):
            self._define(frame, token)
        if frame.current is not None:
            self._found[frame.current] = replace(self._found[frame.current], block=True)
        self._frames.append(_Frame(self._path(frame), line=token.line))

    def _path(self, frame: _Frame) -> KeyPath:
        return frame.path if frame.current is None else self._found[frame.current].path

    def _close(self, frame: _Frame, token: Token) -> None:
        self._end_of_entry(frame)
        if len(self._frames) == 1:
            self._stray = self._stray or token
        else:
            self._frames.pop()
            self._frames[-1].has_value = True

    def _define(self, frame: _Frame, token: Token) -> None:
        line = next((part.line for part in frame.key if part.kind in ("word", "quoted")), token.line)
        self._found.append(Definition((*frame.path, *_components(frame.key)), self._file, line))
        frame.current, frame.has_value = len(self._found) - 1, False

    def _value(self, frame: _Frame, token: Token) -> None:
        if token.kind in ("quoted", "word", "reference"):
            frame.has_value = True
            if frame.current is not None:
                found = self._found[frame.current]
                self._found[frame.current] = replace(found, value=(*found.value, token))

    def _end_of_entry(self, frame: _Frame) -> None:
        if frame.current is None:
            self._include(frame)
        elif not frame.has_value:
            return
        frame.key, frame.current, frame.has_value = [], None, False

    def _include(self, frame: _Frame) -> None:
        words = [token for token in frame.key if token.kind != "space"]
        if not words or words[0].text != "include":
            return
        where = self._where(words[0])
        named = [token for token in words if token.kind == "quoted"]
        if len(named) != 1 or any(token.text.startswith(("url", "package", "classpath")) for token in words[1:]):
            raise ConfigSyntax(where=where, reason='only files can be included: include "other.conf"')
        target = self._file.parent / unquoted(named[0].text)
        if not target.is_file():
            raise IncludeNotFound(where=where, target=target, hint=_similar_file(target))
        if target.resolve() in self._including:
            raise IncludeCycle(where=where, target=target)
        included = _Scanner(target, frame.path, self._including)
        self._found.extend(included.definitions())
        self.files = [*included.files, *self.files]

    def _where(self, token: Token) -> str:
        return f"{self._file}:{token.line}"


def _tokens(text: str) -> Iterator[Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "word"
        if kind != "comment":
            yield Token(kind, match[0], line)
        line += match[0].count("\n")


def _components(key: list[Token]) -> KeyPath:
    """Splits a key into its path at dots, except inside quotes."""
    parts = [""]
    for token in key:
        if token.kind == "quoted":
            parts[-1] += unquoted(token.text)
        else:
            first, *others = token.text.split(".")
            parts[-1] += first
            parts.extend(others)
    return tuple(part.strip() for part in parts)


def _similar_file(target: Path) -> str:
    try:
        return nearest(target.name, [found.name for found in target.parent.iterdir() if found.is_file()])
    except OSError:
        return "."


def reference_name(token: Token) -> tuple[KeyPath, bool]:
    """Returns the path that `${a.b}` or `${?a.b}` refers to, and whether it is optional."""
    name = token.text[2:-1].strip()
    return tuple(part.strip().strip('"') for part in name.removeprefix("?").split(".")), name.startswith("?")


def _spelling(key: list[Token]) -> str:
    return "".join(token.text for token in key).strip()


def unquoted(text: str) -> str:
    return text[3:-3] if text.startswith('"""') else re.sub(r"\\(.)", r"\1", text[1:-1])
