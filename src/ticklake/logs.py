"""Logs: one line per event, as text or JSON, without passwords."""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from typing import Literal, TextIO

from ticklake.text import utc_text

Format = Literal["text", "json"]

log_service: ContextVar[str] = ContextVar("log_service", default="")
"""The service of the current thread."""

notices = logging.getLogger("ticklake.notices")
"""What an operator should know although nothing is wrong. Printed without -v, but not with --quiet."""

_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*:)[^/\s]+(?=@)|(?i:(\b\w*password=))('[^']*'|[^&\s,;'\")]+)")


def set_up(level: int, form: Format = "text", stream: TextIO | None = None) -> None:
    """Sends all logs to `stream` (default: stderr). A second call replaces the first."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one.formatter, TextLines | JsonLines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    notices.setLevel(logging.INFO if level == logging.WARNING else level)


class TextLines(logging.Formatter):
    """`2025-10-14 14:30:25,123 WARNING ticklake.services.retry [persistence-service] Writing … failed`."""

    def format(self, record: logging.LogRecord) -> str:
        service = log_service.get()
        where = f"{record.name} [{service}]" if service else record.name
        return f"{self.formatTime(record)} {record.levelname} {where}: {_one_line(record)}"


class JsonLines(logging.Formatter):
    """One JSON object per line: `ts`, `level`, `logger`, `message`, and `service` in a service's thread."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "ts": utc_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _one_line(record),
        }
        service = log_service.get()
        return json.dumps(event | ({"service": service} if service else {}), ensure_ascii=False)


def _one_line(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})" if record.exc_info[0] else ""
    return one_line(redacted(text))


def one_line(text: str) -> str:
    """Removes line breaks and terminal control characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def redacted(text: str) -> str:
    """Removes passwords from URLs and connection strings."""
    return _PASSWORD.sub(r"\1\2***", text)
