"""The formats of the original: chunks of snapshots and deltas against ticks, a decoder of plain numpy, and memory."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard
from bench.chunks import RUN, Shape, organism, world_in_motion, write_chunk, write_era_a, write_large_chunk
from bench.codec import best
from bench.results import Figure, Section

from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.storage.codec import read_ticks
from ticklake.storage.eras.wire import BYTES, ByteStream, Field
from ticklake.storage.files import Storage
from ticklake.world import World

SMALL = Shape()
LARGE = Shape(world=(4000, 3000), cells=400_000, listed=2_400_000)
GIBIBYTE = 1 << 30
FIELDS = {"cells": EnvironmentIndexer.reads, "organisms": OrganismIndexer.reads}
BOTH = (*EnvironmentIndexer.reads, *OrganismIndexer.reads)

CHILD = """
    import re, sys
    from pathlib import Path
    from ticklake.indexers.builtin.environment import EnvironmentIndexer
    from ticklake.lake.flush.task import Indexed, index
    from ticklake.lake.lake import Lake
    from ticklake.lake.slices import Piece, Slice
    from ticklake.storage.files import Storage
    from ticklake.world import World

    root, key, width, height = sys.argv[1:]
    storage, run = Storage(root), key.partition("/")[0]
    ledger = EnvironmentIndexer.ledger(Lake(Path(root) / "lake"), run)
    work = EnvironmentIndexer.work(storage, World(run, (int(width), int(height)), (True, True), 1), ledger.location)
    file = storage.batch(key)
    result = index(work, 0, [Piece(0, Slice(file, file.ticks))])[0]
    assert isinstance(result, Indexed), result
    print(result.rows, re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])
"""


def measure(directory: Path) -> Section:
    how = (
        "One chunk of 50 recordings, a world of 286,720 cells: 1.4 million stored cells become 4.2 million rows. To"
        " the columns of the tables, on one core (its CPU time), best of 5; then a chunk of 1 GiB, to Parquet in a"
        " task."
    )
    return Section("Formats", how, [*speeds(directory), *skipping(directory), *memory(directory)])


def speeds(directory: Path) -> list[Figure]:
    recorded = world_in_motion(SMALL)
    rows = sum(len(one.occupied.flat) for one in recorded)
    ticks, chunk = write_era_a(directory, recorded), write_chunk(directory, recorded)
    of_ticks, of_chunk = (rows / best(lambda key=key: count(directory, key, "cells")) for key in (ticks, chunk))
    plain = rows / best(lambda: plain_numpy(directory / chunk, SMALL))
    return [
        Figure("ticks of era A", of_ticks, "rows/s"),
        Figure("chunk of era E", of_chunk, "rows/s", at_least=0.8 * of_ticks),
        Figure("chunk of era E, plain numpy", plain, "rows/s"),
        Figure("chunk of era E against plain numpy", of_chunk / plain, "times", at_least=3),
    ]


def skipping(directory: Path) -> list[Figure]:
    """A chunk that is 95 % cells: its organisms alone, and both in one pass."""
    recorded = world_in_motion(SMALL)
    listed = sum(len(one.listed.flat) for one in recorded)
    organisms = max(1, round(listed * 8.6 / 19 / len(recorded) / len(organism(1))))
    key = write_chunk(directory, recorded, organisms)
    alone = best(lambda: count(directory, key, "organisms"))
    both = best(lambda: count(directory, key, "cells", BOTH))
    return [Figure("organisms alone, against both tables", both / alone, "times", at_least=5)]


def memory(directory: Path) -> list[Figure]:
    key = write_large_chunk(directory, LARGE, GIBIBYTE)
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(directory), key, *map(str, LARGE.world)]
    rows, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [
        Figure("rows of a chunk of 1 GiB", int(rows), "rows"),
        Figure("peak memory of its task", int(peak) / 1024, "MiB", at_most=512),
    ]


def count(root: Path, key: str, name: str, fields: tuple[str, ...] = ()) -> int:
    storage, world = Storage(root), World(RUN, SMALL.world, (True, True), 1)
    batches = read_ticks(storage, storage.batch(key), fields=fields or FIELDS[name], world=world, chunk_bytes=8 << 20)
    return sum(len(batch.column(name).values) for batch in batches)


def plain_numpy(path: Path, shape: Shape) -> int:
    """The obvious decoder: the whole file in memory, a dense world, and a scan of it for each recording.

    It makes the same columns as ours, and refuses cells that do not ascend or are outside the world.
    """
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    stream, rows = ByteStream(io.BytesIO(), data), 0
    molecule, owner = np.zeros((2, shape.world[0] * shape.world[1]), np.int32)
    end = stream.varint()
    for part in stream.fields(stream.offset + end):
        if part.number not in (5, 6) or part.kind != BYTES:
            continue
        for inner in stream.fields(part.end):
            if inner.number == (5 if part.number == 5 else 4) and inner.kind == BYTES:
                flat, molecules, owners = (_unpacked(data, column) for column in stream.fields(inner.end))
                if not len(flat) == len(molecules) == len(owners) or (np.diff(flat) <= 0).any():
                    raise ValueError("the columns of cells do not fit together")
                if (len(flat) and not 0 <= flat[0] <= flat[-1] < len(molecule)) or owners.min(initial=0) < 0:
                    raise ValueError("a cell outside the world, or a negative owner")
                molecule[flat], owner[flat] = molecules, owners
        at = np.flatnonzero(molecule | owner)
        found = molecule[at]
        value, kind, marker = found << 12 >> 12, found >> 20 & 0xFF, found >> 28 & 0xF
        columns = (at.astype(np.int32), found, owner[at], value, kind, kind << 20, marker)
        rows += len(pa.RecordBatch.from_arrays([pa.array(one) for one in columns], names=list("abcdefg")))
    return rows


def _unpacked(data: bytes, field: Field) -> npt.NDArray[Any]:
    raw = np.frombuffer(data, np.uint8, field.end - field.start, field.start)
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts
    values = (raw[starts] & 0x7F).astype(np.int64)
    for place in range(1, int(lengths.max(initial=0)) + 1):
        longer = np.flatnonzero(lengths >= place)
        values[longer] |= (raw[starts[longer] + place].astype(np.int64) & 0x7F) << 7 * place
    return values.astype(np.int32)
