"""Text that every database, log and page can store, ages, and the one format of times for programs."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime

MAX_LENGTH = 64 * 1024
"""In characters. An error of foreign code may contain all of its data, which no database can store."""


def age_text(seconds: float) -> str:
    """Formats an age: 0.3 s, 12 s, 5 min, 3.1 h, 2.0 d."""
    for length, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.{1 if seconds < 10 else 0}f} s"


def storable(text: str) -> str:
    """Escapes NUL and unpaired surrogates. Of a long text, keeps the beginning and the end."""
    if len(text) > MAX_LENGTH:
        text = f"{text[: MAX_LENGTH // 2]} … ({len(text):,} characters in total) … {text[-MAX_LENGTH // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def message_text(error: BaseException | str) -> str:
    """Returns the message of an error, or its type if the message is empty."""
    return _text_of(error) or f"{type(error).__name__}()"


def error_text(error: BaseException | str) -> str:
    """Returns the type and the message of an error; a text is returned as it is."""
    return _text_of(error) if isinstance(error, str) else f"{type(error).__name__}: {_text_of(error)}"


def traceback_text(error: BaseException) -> str:
    """Returns the traceback of an error."""
    try:
        return storable("".join(traceback.format_exception(error)))
    except Exception as problem:
        return f"its traceback cannot be formatted ({type(problem).__name__})"


def _text_of(error: BaseException | str) -> str:
    """Returns the text of an error. Foreign code produces it and may fail."""
    try:
        return storable(str(error))
    except Exception as problem:
        return f"its text cannot be formatted ({type(problem).__name__})"


def utc_text(moment: datetime | float) -> str:
    """Formats a time, or seconds since 1970, as ISO 8601 in UTC: `2026-01-31T12:00:00.000Z`."""
    time = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
