"""Reads help texts from the source. A command's docstring is its help, and `python -OO` drops docstrings."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

import click


def with_help(command: click.Command) -> click.Command:
    """Adds the help texts to a command and its subcommands."""
    if command.help is None and command.callback is not None:
        command.help = _docstrings(command.callback.__module__).get(command.callback.__name__)
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        with_help(subcommand)
    return command


@cache
def _docstrings(module: str) -> dict[str, str | None]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without source files
        return {}
    return {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
