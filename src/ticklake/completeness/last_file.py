"""Checks whether the last batch file of a run has the last tick of its name."""

from __future__ import annotations

from collections.abc import Sequence

from ticklake.completeness.errors import LastFileBad
from ticklake.indexers.builtin import EnvironmentIndexer, OrganismIndexer
from ticklake.indexers.components import stored_metadata
from ticklake.lake.errors import OffTheGrid
from ticklake.lake.flush import Work, decoded_slice
from ticklake.lake.slices import Slice
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile
from ticklake.world import World


def check_last_file(storage: Storage, run_id: str, keys: Sequence[str]) -> None:
    """Reads the last files of a run as an indexer does. Raises `LastFileBad` if none of them is good."""
    work = Work("", storage, _world(storage, run_id), (*EnvironmentIndexer.reads, *OrganismIndexer.reads))
    bad: dict[str, object] = {}
    for key in keys:
        try:
            file = storage.batch(key)
            for _ in decoded_slice(work, Slice(file, file.ticks)):
                pass
        except (BadFile, OffTheGrid, OSError) as error:
            bad[key] = error.reason if isinstance(error, BadFile) else error
        else:
            return
    key, reason = next(iter(bad.items()))
    raise LastFileBad(run_id=run_id, key=key, reason=reason)


def _world(storage: Storage, run_id: str) -> World | None:
    metadata = stored_metadata(storage, run_id)
    return None if metadata is None else World.of(metadata)
