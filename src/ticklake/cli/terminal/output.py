"""Output of commands: tables and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

import click

from ticklake.logs import printable

COLUMN_WIDTH = 80
LINE_WIDTH = 400

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Adds `--json`, which the command receives as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any) -> None:
    """Prints a value as JSON. Dataclasses and named tuples become objects."""
    click.echo(json.dumps(value, indent=2, default=plain))


def plain(value: Any) -> Any:
    """Converts a value that JSON cannot represent."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[str] = ()) -> None:
    """Prints a table; `numbers` names the columns to align to the right."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(Text(column), justify=justify, overflow="fold", max_width=COLUMN_WIDTH)
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console = Console()
    # Wider than the terminal rather than wrapped: wrapped text cannot be copied.
    wanted = console.measure(table, options=console.options.update(width=LINE_WIDTH)).maximum
    Console(width=max(console.width, wanted)).print(table)


def end_with(failures: Iterable[str]) -> None:
    """Prints why something is not in the output, one line each, and ends with exit code 1. Does nothing without."""
    lines = list(dict.fromkeys(cell_text(failure) for failure in failures))
    for line in lines:
        click.echo(line, err=True)
    if lines:
        raise click.exceptions.Exit(1)


def cell_text(value: object) -> str:
    """Formats a value for a table: thousands separated, None as an empty cell, no control characters."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value))


def size_text(size: int | None) -> str:
    """Formats a number of bytes: 512 B, 1.5 KiB, 3.0 GiB."""
    if size is None or size < 1024:
        return "" if size is None else f"{size} B"
    power = min((size.bit_length() - 1) // 10, 5)
    return f"{size / 1024**power:.1f} {'KMGTP'[power - 1]}iB"
