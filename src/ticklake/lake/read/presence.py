"""Finds the ticks that a table has, as ranges. The ticks of each file are read once and cached."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from ticklake.lake.delta import TableFile, files_of, is_counted_by, named_key, one_line
from ticklake.lake.empty import joined
from ticklake.lake.errors import LakeUnreadable, TableUnreadable
from ticklake.lake.ledger import ticks_in
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import read_metadata
from ticklake.lake.read.catalog import Catalog, empty_of
from ticklake.ticks import TickRange, even_on_grid, merged, ranges_of
from ticklake.world import BadMetadata, World

CACHED_FILES = 100_000
_EVERY_TICK = TickRange(0, np.iinfo(np.int64).max)


class Presence:
    """A cache of the ticks of files, shared by all viewers. Files of a table never change, so only new ones are read.

    A table that was created again in the same place has another id.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, TableFile, int], list[TickRange]] = OrderedDict()

    def ranges(
        self, catalog: Catalog, run_id: str, table: str, step: int, seconds: float = math.inf
    ) -> list[TickRange] | None:
        """Returns the sampled ticks of a table. None if it has no ticks, or if reading took longer: then call again."""
        delta, location = catalog.open(run_id, table), catalog.location(run_id, table)
        if not is_counted_by(delta, "tick_number"):
            return None
        until, table_id = self._clock() + seconds, str(delta.metadata().id)
        found: list[TickRange] = []
        for file in files_of(delta, location):
            if (ranges := self._of(table_id, file, step, until)) is None:
                return None
            found += ranges
        for first, last, every in json.loads(empty_of(delta, location).text()):
            found += even_on_grid(first, last, every, step)
        return merged(found, step)

    def _of(self, table_id: str, file: TableFile, step: int, until: float) -> list[TickRange] | None:
        key = table_id, file, step
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
                return self._files[key]
        if self._clock() > until:
            return None
        try:
            ticks = joined(ticks_in(file, [_EVERY_TICK]))
            found = ranges_of(ticks[ticks % step == 0], step)
        except (OSError, pa.ArrowException) as error:
            raise TableUnreadable(table=file, reason=one_line(error)) from error
        with self._lock:
            self._files[key] = found
            while len(self._files) > CACHED_FILES:
                self._files.popitem(last=False)
        return found


def lost_metadata(catalog: Catalog, run_id: str, gone: Collection[str] = ()) -> str:
    """Returns that the table `metadata` of a run is gone; an empty text if it can be opened or was never created.

    Indexers of ticks wait for that table before they create their own. So it must have existed if one of those does, or
    did: `gone` are the tables of ticks that no longer exist.
    """
    waited = bool(gone) or any(_is_of_ticks(catalog, run_id, name) for name in catalog.tables(run_id))
    if not waited or METADATA in catalog.tables(run_id):  # listed again, because it is created first
        return ""
    location = catalog.location(run_id, METADATA)
    return f"{location} is gone. Move it back, or `ticklake index {run_id}` writes it again"


def _is_of_ticks(catalog: Catalog, run_id: str, table: str) -> bool:
    """Returns whether an indexer of ticks has created a table. Tables of other engines record no key."""
    try:
        return named_key(catalog.open(run_id, table), catalog.location(run_id, table))[:1] == ("tick_number",)
    except TableUnreadable:
        return False


def world_of(catalog: Catalog, run_id: str) -> World | None:
    """Returns the world of a run, or None if its metadata is missing or not valid."""
    try:
        metadata = read_metadata(catalog.location(run_id, METADATA), run_id)
        return None if metadata is None else World.of(metadata)
    except (BadMetadata, LakeUnreadable, TableUnreadable):
        return None
