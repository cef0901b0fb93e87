"""Text from outside, in a form that every database, log and page can hold."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs written as escapes, such as an error text may have them."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def error_text(error: BaseException | str) -> str:
    """The type and the message of an error, or a message that somebody has written already."""
    return storable(error if isinstance(error, str) else f"{type(error).__name__}: {error}")
