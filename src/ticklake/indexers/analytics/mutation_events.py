"""`mutation_events`: one row per cell that a mutation at birth has changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.indexers.analytics.population import LIFE, Ints, Population
from ticklake.indexers.batch import BatchIndexer
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("organism_id", pa.int32()),
        ("event_index", pa.int32()),
        ("change_index", pa.int32()),
        ("plugin_class", pa.string()),
        ("kind", pa.string()),
        ("cell", pa.int32()),
        ("old_value", pa.int32()),
        ("new_value", pa.int32()),
        ("dx", pa.int32()),
        ("dy", pa.int32()),
        ("dz", pa.int32()),
    ]
)


class MutationEventsIndexer(BatchIndexer):
    """The mutations of newborns. An event that changes no cell has one row without a cell."""

    table = Table("mutation_events", key=("tick_number", "organism_id", "event_index", "change_index"), schema=SCHEMA)
    reads = (*LIFE, "organisms.organism_id", "organisms.birth_mutations")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        born = population.taken(population.newborn)
        lists = born.column("birth_mutations")
        per_organism = np.diff(lists.offsets.to_numpy())
        events = lists.flatten()
        changed = np.diff(events.field("cells").offsets.to_numpy())
        event = np.repeat(np.arange(len(events)), np.maximum(changed, 1))
        """The event of each row."""
        change = _numbered(np.maximum(changed, 1))
        organism = np.repeat(np.arange(len(per_organism)), per_organism)[event]
        texts = (events.field(name).take(pa.array(event)) for name in ("plugin_class", "kind"))
        values = (_item(events.field(name), event, change) for name in ("cells", "old_values", "new_values"))
        direction = (_item(events.field("dv"), event, np.full(len(event), axis)) for axis in range(3))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(born.ticks[organism]),
                born.column("organism_id").take(pa.array(organism)),
                pa.array(_numbered(per_organism)[event].astype(np.int32)),
                pa.array(change.astype(np.int32)),
                *(*texts, *values, *direction),
            ],
            schema=SCHEMA,
        )


def _numbered(lengths: npt.NDArray[np.integer]) -> Ints:
    """Returns 0, 1, 2, … for the items of each list of these lengths."""
    ends = np.cumsum(lengths, dtype=np.int64)
    numbers: Ints = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
    return numbers


def _item(lists: pa.ListArray, rows: Ints, places: Ints) -> pa.Array:
    """Returns the item at a place of each of these lists; null if the list is shorter."""
    offsets = lists.offsets.to_numpy()
    positions = offsets[:-1][rows] + places
    return lists.values.take(pa.array(positions, mask=positions >= offsets[1:][rows]))
