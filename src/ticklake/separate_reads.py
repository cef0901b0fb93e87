"""Reads several places, so that one that fails hides no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ticklake.errors import TickLakeError

T = TypeVar("T")


class Attempts:
    """Reads from several places. One that fails hides no other, and is not asked again."""

    def __init__(self, before: Attempts | None = None) -> None:
        self._failed: dict[int, TickLakeError | OSError] = dict(before._failed) if before else {}

    def read(self, place: object, read: Callable[[], T]) -> T | None:
        """Returns what `read` returns; None if this place fails or has failed before."""
        if id(place) in self._failed:
            return None
        try:
            return read()
        except (TickLakeError, OSError) as error:
            self._failed[id(place)] = error
            return None

    @property
    def errors(self) -> list[str]:
        """The reasons, each in one line."""
        return list(dict.fromkeys(" ".join(str(error).split()) for error in self._failed.values()))

    def raise_first(self) -> None:
        for error in self._failed.values():
            raise error
