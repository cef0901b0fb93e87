"""Text that every database can store."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs written as escapes, such as an error text may have them."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
