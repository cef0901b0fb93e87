"""What a check says: fine, a warning or an error, and then what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line. `remedy` is what to do or type next, empty where all is well; `details` names what was found."""

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
