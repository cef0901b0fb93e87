"""The result of a check: ok, a warning or an error, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ticklake.errors import TickLakeError

Name = TypeVar("Name")
Item = TypeVar("Item")


OTHERS = "Repair it as the message says. The others were checked."


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """A line of the report. `remedy` is what to do or type, empty if all is well; `details` lists what was found."""

    check: str
    level: Level
    message: str
    remedy: str = ""
    details: tuple[str, ...] = ()


def ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, remedy: str, details: tuple[str, ...] = ()) -> Finding:
    return Finding(check, Level.WARNING, message, remedy, details)


def error(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, message, remedy)


def of_each(
    check: str, names: Iterable[Name], read: Callable[[Name], Item]
) -> tuple[dict[Name, Item], dict[Name, Finding]]:
    """Returns what `read` returns for each name, and a finding for each one that fails. It hides no other."""
    found: dict[Name, Item] = {}
    failed: dict[Name, Finding] = {}
    for name in names:
        try:
            found[name] = read(name)
        except (TickLakeError, OSError) as problem:
            failed[name] = error(check, f"{name}: {' '.join(str(problem).split())}", OTHERS)
    return found, failed
