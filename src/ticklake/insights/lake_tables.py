"""The tables of a run in a lake by their ids, and those that databases know of and that are gone."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ticklake.coordination import RecordedTable, Target, recorded_tables
from ticklake.indexers.batches import id_at
from ticklake.lake.delta import Location
from ticklake.lake.errors import TableGone, TableUnreadable

if TYPE_CHECKING:
    from ticklake.lake.read import Catalog
    from ticklake.topics import Run


def names_by_id(catalog: Catalog, run_id: str) -> dict[str, list[str]]:
    """Returns the tables of a run by id. Copies of a table within the run have the same id."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in catalog.tables(run_id):
        with suppress(TableUnreadable):
            found[str(catalog.open(run_id, name).metadata().id)].append(name)
    return dict(found)


def gone_tables(catalog: Catalog, run_id: str, runs: Iterable[Run]) -> dict[str, TableGone]:
    """Returns the tables of a run that are gone from this lake, by name. `runs` is the run in each database.

    An indexer registers a table after it has created it. A table was in this lake if its recorded place is in it, or if
    a table that is here today was registered beside it: then the lake was moved, or its machine has another name now.
    Tables of other lakes are not gone, nor is a table that has another name now.
    """
    recorded = [one for run in runs for one in recorded_tables(run) if one.table.location]
    names = catalog.tables(run_id)
    absent = [one for one in recorded if Location.of(one.table.location).name not in names]
    if not absent:
        return {}
    ids = names_by_id(catalog, run_id)
    homes = {_home(one.table) for one in recorded if one.table.table_id in ids and not _is_at_home(one.table)}
    gone = [one for one in absent if one.table.table_id not in ids]
    found = [_gone(catalog, run_id, one) for one in gone if _home(one.table) in homes or _was_in(catalog, one.table)]
    return {error.name: error for error in found}


def _gone(catalog: Catalog, run_id: str, one: RecordedTable) -> TableGone:
    name = Location.of(one.table.location).name
    writer = f"group {one.group}" if one.group else f"{one.indexer_class} with a coordinator"
    return TableGone(table=catalog.location(run_id, name), writer=writer, run_id=run_id, name=name)


def _home(table: Target) -> tuple[str, str]:
    """Returns the folder of a table's run as it was recorded, and the machine."""
    return table.location.rpartition("/")[0], table.host


def _is_at_home(table: Target) -> bool:
    """Returns whether a table is where it was recorded. Then one with its id in another place is a copy."""
    return table.host == platform.node() and id_at(table.location) == table.table_id


def _was_in(catalog: Catalog, table: Target) -> bool:
    return table.host == platform.node() and catalog.root.is_lake_of(Location.of(table.location))
