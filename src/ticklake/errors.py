"""Every error a user can see. The classes live in the `errors` module of their package; all are found here.

A message says what happened, where, and what to do next, in one line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

if TYPE_CHECKING:
    from ticklake.checks.numbers import InvalidOption as InvalidOption
    from ticklake.checks.places import UnsupportedPlace as UnsupportedPlace
    from ticklake.cli.errors import *
    from ticklake.completeness.errors import *
    from ticklake.config.errors import *
    from ticklake.consumer.errors import *
    from ticklake.coordination.errors import *
    from ticklake.database.errors import *
    from ticklake.events.errors import *
    from ticklake.indexers.errors import *
    from ticklake.lake.errors import *
    from ticklake.node.errors import *
    from ticklake.removal.errors import *
    from ticklake.services.errors import *
    from ticklake.simulation.errors import *
    from ticklake.storage.errors import *
    from ticklake.topics.errors import *
    from ticklake.web.errors import *
    from ticklake.world import BadMetadata as BadMetadata

# The lowest layer first: a name is looked up without loading more than it needs.
_HOMES = (
    "checks.numbers",
    "checks.places",
    "world",
    "storage.errors",
    "simulation.errors",
    "config.errors",
    "database.errors",
    "topics.errors",
    "coordination.errors",
    "consumer.errors",
    "events.errors",
    "lake.errors",
    "indexers.errors",
    "services.errors",
    "node.errors",
    "completeness.errors",
    "removal.errors",
    "web.errors",
    "cli.errors",
)


@dataclass_transform(kw_only_default=True, eq_default=False)
class TickLakeError(Exception):
    """The base of every error of TickLake.

    A subclass gives `message`, a format string, and declares each field that the message names. A type checker
    then checks the fields of every call.
    """

    message: ClassVar[str] = "Something went wrong in TickLake."

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.message.format(**fields))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel from Spark's tasks and from child processes.
        return (_rebuild, (type(self), self.fields))


def _rebuild(kind: type[TickLakeError], fields: dict[str, Any]) -> TickLakeError:
    return kind(**fields)


if not TYPE_CHECKING:  # A type checker reads the imports above, and refuses a name that is not there.

    def __getattr__(name: str) -> Any:
        """Finds an error in its package, which is loaded only now."""
        if name == "__all__":
            return sorted(_all_classes())
        if not name.startswith("_"):
            for home in _HOMES:
                if found := _classes_in(home).get(name):
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_all_classes())


def _all_classes() -> dict[str, type[TickLakeError]]:
    found = {"TickLakeError": TickLakeError}
    for home in _HOMES:
        found |= _classes_in(home)
    return found


def _classes_in(home: str) -> dict[str, type[TickLakeError]]:
    module = import_module(f"ticklake.{home}")
    members = vars(module).items()
    return {
        name: kind
        for name, kind in members
        if isinstance(kind, type) and issubclass(kind, TickLakeError) and kind.__module__ == module.__name__
    }
