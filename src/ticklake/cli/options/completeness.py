"""What the commands on completeness share: opening the run and formatting ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ticklake.cli.options.places import needed, open_places

if TYPE_CHECKING:
    from ticklake.completeness import Completeness
    from ticklake.ticks import TickRange

SHOWN = 20


@contextmanager
def open_run(
    run: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    *,
    ended: bool = False,
    events: str | None = None,
    topic: str | None = None,
) -> Iterator[Completeness]:
    """Opens the given run, or the newest one in the storage. Requires a storage."""
    storage = needed("storage", storage, "completeness is judged by the batch files of the run")
    if lake is not None:
        needed("lake", lake, "completeness is judged for one lake")
    from ticklake.completeness import Completeness
    from ticklake.insights import chosen_run

    with open_places(storage, lake, database) as places:
        assert places.storage is not None  # noqa: S101
        wanted = chosen_run(run, places.storage.runs(), places.storage.url)
        queue = Path(events) if events else None
        yield Completeness(
            wanted, places.storage, places.catalog, *places.databases, ended=ended, events=queue, topic=topic
        )


def ranges_text(ranges: Sequence[TickRange]) -> str:
    """Formats the first ranges and the number of the others."""
    shown = ", ".join(map(str, ranges[:SHOWN]))
    more = f" and {len(ranges) - SHOWN:,} more" if len(ranges) > SHOWN else ""
    return shown + more or "none"


def keys_text(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - SHOWN:,} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more or "none"
