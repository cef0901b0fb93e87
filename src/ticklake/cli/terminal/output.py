"""Output of commands: tables and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import click

from ticklake.logs import printable
from ticklake.text import utc_text
from ticklake.ticks import TickRange

JSON_VERSION = 1
"""Grows if a field of the JSON output changes its meaning or goes."""
_DURATIONS = ("age", "expires_in", "oldest")
"""Fields in milliseconds that are not points in time."""
COLUMN_WIDTH = 80
LINE_WIDTH = 400

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Adds `--json`, which the command receives as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any) -> None:
    """Prints an object as JSON, with the version of the format. A list needs a name: `{"runs": […]}`."""
    click.echo(json.dumps(versioned(jsonable(value)), indent=2, default=plain))


def versioned(fields: dict[str, Any]) -> dict[str, Any]:
    return {"version": JSON_VERSION, **fields}


def jsonable(value: Any) -> Any:
    """Converts records inside a value to objects with the fields of `json_fields`. Ranges of ticks stay two numbers."""
    if isinstance(value, TickRange):
        return list(value)
    if hasattr(value, "_asdict") or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return json_fields(value)
    if isinstance(value, Mapping):
        return {key: jsonable(one) for key, one in value.items()}
    return list(map(jsonable, value)) if isinstance(value, list | tuple) else value


def json_fields(record: Any) -> dict[str, Any]:
    """Returns the fields of a named tuple or a dataclass. Durations are in seconds, times are ISO 8601 in UTC."""
    if hasattr(record, "_asdict"):
        fields = record._asdict()
    else:
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return dict(_in_units(name, jsonable(value)) for name, value in fields.items())


def _in_units(name: str, value: Any) -> tuple[str, Any]:
    stem = name.removesuffix("_ms")
    if stem == name:
        return name, value
    if stem in _DURATIONS:
        return f"{stem}_seconds", None if value is None else value / 1000
    return f"{stem.removesuffix('_at')}_at", None if value is None else utc_text(value / 1000)


def plain(value: Any) -> Any:
    """Converts a value that JSON cannot represent."""
    return utc_text(value) if isinstance(value, datetime) and value.tzinfo else str(value)


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


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints text that may contain names, errors and messages of others. Escapes control characters."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err, nl=nl)


def note(text: str) -> None:
    """Prints what is good to know, but is not the result, to stderr; with --quiet nothing."""
    if not is_quiet():
        echo(text, err=True)


def is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("quiet"))


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
