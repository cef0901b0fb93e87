"""Pages of the documentation as what they promise: code blocks, commands, and the shape of their output."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from ticklake.cli import cli

ROOT = Path(__file__).parents[2]


class Shown(NamedTuple):
    """A command as a page shows it, and what the page shows below it."""

    command: str
    output: str

    def check_usage(self) -> None:
        """Raises click's own error where the command or one of its options does not exist."""
        name, *words = shlex.split(self.command.removesuffix("&"))
        command: click.Command = cli
        while isinstance(command, click.Group) and words:
            found = command.get_command(click.Context(command), words[0])
            if found is None:
                raise click.UsageError(f"no such command: {self.command}")
            command, words = found, words[1:]
        command.make_context(name, words)

    def looks_like(self, output: str) -> bool:
        """Whether this output has the tables, by their columns, that the page shows."""
        return all(columns in _columns(output) for columns in _columns(self.output))


class Page:
    """One page in Markdown."""

    def __init__(self, path: str) -> None:
        self._text = (ROOT / path).read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", self._text, re.MULTILINE | re.DOTALL)

    def block(self, language: str, containing: str) -> str:
        (found,) = (block for block in self.blocks(language) if containing in block)
        return found

    def shown(self, start: str = "") -> list[Shown]:
        """The commands of its console blocks that start like this."""
        parts = [part for block in self.blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
        shown = [Shown(command, output) for command, _, output in (part.partition("\n") for part in parts)]
        return [one for one in shown if one.command.startswith(start)]


@pytest.fixture
def readme() -> Page:
    return Page("README.md")


@pytest.fixture
def tutorial() -> Page:
    return Page("docs/tutorial.md")


def _columns(text: str) -> list[list[str]]:
    """The column names of every table in a text."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if line.strip() and set(line.strip()) == {"─"}]
    return [re.split(r" {2,}", lines[number - 1].strip()) for number in rules]
