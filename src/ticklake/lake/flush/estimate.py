"""Estimates how many rows the ticks of batch files will have, from some ticks of a few files."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ticklake.lake.flush.task import Work
from ticklake.storage import BatchFile, Storage, first_chunk_length, read_ticks

log = logging.getLogger(__name__)

_FILES = 3
_SECONDS = 0.1
_LEAST = 8
"""The number of ticks to read of a file, even if that takes longer: a snapshot and some deltas."""
_HEAD_BYTES = 1 << 12


def rows_a_tick(work: Work, files: Sequence[BatchFile]) -> float | None:
    """Returns about how many rows a tick has; None if no file can be read. Reads a part of up to three files."""
    places = sorted({place * (len(files) - 1) // (_FILES - 1) for place in range(_FILES)}) if files else []
    found = [rows for place in places if (rows := _rows_in(work, files[place])) is not None]
    return sum(found) / len(found) if found else None


def _rows_in(work: Work, file: BatchFile) -> float | None:
    """Returns the mean of the rows of a tick. Ticks that are recorded completely count by their share of the file."""
    assert work.storage is not None and work.rows is not None  # noqa: S101  there is a table
    rows: dict[bool, list[int]] = {True: [], False: []}
    until, share = time.monotonic() + _SECONDS, None
    names = list(dict.fromkeys(path.partition(".")[0] for path in ("tick_number", *work.reads)))
    try:
        fields = (*work.reads, "since")
        for batch in read_ticks(work.storage, file, fields=fields, world=work.world, chunk_bytes=1):
            is_complete = batch.column("since").null_count > 0
            rows[is_complete].append(work.rows(batch.select(names), work.world).num_rows)
            if time.monotonic() > until and len(rows[True]) + len(rows[False]) >= _LEAST:
                share = 1 / _chunk_length(work.storage, file)
                break
    except Exception as error:
        # A bad file, or a custom indexer that raises anything. Indexing reports it.
        log.debug("No estimate from %s: %s", file.key, error)
    complete, others = (sum(one) / len(one) if one else 0.0 for one in (rows[True], rows[False]))
    read = len(rows[True]) + len(rows[False])
    share = len(rows[True]) / read if share is None and read else share
    return None if share is None else share * complete + (1 - share) * others


def _chunk_length(storage: Storage, file: BatchFile) -> int:
    with storage.open(file.key) as stream:
        return first_chunk_length(stream.read(_HEAD_BYTES))
