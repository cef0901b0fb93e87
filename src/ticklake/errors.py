"""Every error a user can see. The docstring is the message: what happened, where, and what to do next."""

from __future__ import annotations

from typing import Any


class TickLakeError(Exception):
    """Something went wrong in TickLake."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(" ".join((type(self).__doc__ or "").split()).format(**fields))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel from Spark's tasks and from child processes.
        return (_rebuild, (type(self), self.fields))


def _rebuild(kind: type[TickLakeError], fields: dict[str, Any]) -> TickLakeError:
    return kind(**fields)


