"""The result of a check: ok, a warning or an error, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
