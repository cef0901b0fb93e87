"""Text from outside, in a form that every database, log and page can hold."""

from __future__ import annotations

import traceback

LONGEST = 64 * 1024
"""Characters. A program may put all that it was working on into an error, and no database can hold that."""


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs written as escapes. Of a long one, the beginning and the end."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … ({len(text):,} characters in all) … {text[-LONGEST // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def message_text(error: BaseException | str) -> str:
    """What an error says, or its type if it says nothing."""
    return _said(error) or f"{type(error).__name__}()"


def error_text(error: BaseException | str) -> str:
    """The type and the message of an error, or a message that somebody has written already."""
    return _said(error) if isinstance(error, str) else f"{type(error).__name__}: {_said(error)}"


def traceback_text(error: BaseException) -> str:
    """Where an error comes from."""
    try:
        return storable("".join(traceback.format_exception(error)))
    except Exception as problem:
        return f"its traceback cannot be made ({type(problem).__name__})"


def _said(error: BaseException | str) -> str:
    """Foreign code makes the text of an error, which may fail."""
    try:
        return storable(str(error))
    except Exception as problem:
        return f"its text cannot be made ({type(problem).__name__})"
