"""Everything of ours that reads bytes which others may have made, each with specimens of what it reads."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mutation
import original

from ticklake import BatchInfo
from ticklake.config import load
from ticklake.config.templates import STARTER
from ticklake.contracts import MetadataInfo
from ticklake.errors import TickLakeError
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta import Location, commits
from ticklake.lake.delta.history import Head
from ticklake.lake.delta.log import DeltaLog
from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.delta.snapshot import Snapshot
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage import zstd
from ticklake.storage.codec import encode_ticks, read_ticks
from ticklake.storage.delimited import frame, varint
from ticklake.storage.files import Storage
from ticklake.topics.envelope import unwrap, wrap
from ticklake.world import World

RUN_ID = "20251014-143025-550e8400"
CONFIGURATIONS = Path(__file__).parents[1] / "unit" / "config" / "good"
BATCH = "batch_0000000000_0000000002.pb"
TABLE: Any = EnvironmentIndexer.table
PLACES = {
    "batch": (f"{RUN_ID}/{BATCH}",),
    "newer": (f"{original.RUN}/{BATCH}",),
    "compressed": (f"{RUN_ID}/{BATCH}.zst",),
    "envelope": ("message cannot be decoded: ",),
    "metadata": (f"{RUN_ID}/metadata.pb", f"run {RUN_ID!r}"),
    "commit": (TABLE.name, "/table"),
    "log": (TABLE.name, "/table"),
    "configuration": ("node.conf",),
}
"""One of these is in every error. Who opens envelopes adds the message's id to what it keeps of the error."""
Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Kind:
    """What is read: how many of 10,000 inputs, what an honest one looks like, and how it is spoiled."""

    share: int
    specimens: list[bytes]
    spoil: Mutate


def kinds() -> dict[str, Kind]:
    """The shares follow what a read costs: a configuration takes a hundred times as long as anything else."""
    world = Ecosystem(SimulationSettings(shape=(6, 6), organisms=2))
    described = world.metadata(RUN_ID, 0)
    ticks = []
    for _ in range(3):
        ticks.append(world.columns(0))
        world.step()
    plain = frame([tick.data for tick in encode_ticks(RUN_ID, ticks)])
    told = BatchInfo(simulation_run_id=RUN_ID, storage_key="a/b", tick_end=9)
    ours = commits.encoded({"timestamp": 1, "operation": "WRITE"}, commits.added(_files(), 1, data_change=True))
    # As other engines write them too: behind a checksum little is ever looked at.
    written = [ours, re.sub(rb',"ticklake.checksum":"[^"]*"', b"", ours)]
    return {
        "batch": Kind(1600, [plain], mutation.changed_file),
        "newer": Kind(1000, _newer_files(), mutation.changed_file),
        "compressed": Kind(1200, [plain], _spoil_compressed),
        "envelope": Kind(3000, [wrap(told, 1).data, wrap(MetadataInfo(), 1).data], mutation.changed_message),
        "metadata": Kind(2800, [frame([described.SerializeToString()])], mutation.changed_file),
        "commit": Kind(392, written, mutation.changed_text),
        "log": Kind(3, written, mutation.changed_text),
        "configuration": Kind(5, [STARTER.read_bytes(), *_good_ones()], mutation.changed_text),
    }


def _newer_files() -> list[bytes]:
    """A file of each format that the original has written since its first one."""
    lives = [original.Organism(1, opcode=3), original.Organism(2, 1, 1, -3, (9, 8), True, 1, 40, 3, -5, 17, "x", 1)]
    worlds = ({1: (1 << 20 | 5, 1), 7: (9 << 28 | 2 << 20, 0)}, {7: (3 << 20, 2)}, {1: (2 << 20, 0), 35: (1 << 20, 2)})
    ticks = [original.Tick(number, cells, lives) for number, cells in enumerate(worlds)]
    return [original.file_of(era, ticks) for era in "BCDEFG"]


def _good_ones() -> list[bytes]:
    return [file.read_bytes() for file in sorted(CONFIGURATIONS.glob("*.conf"))]


def _files() -> list[ParquetFile]:
    stats = {"numRecords": 3, "minValues": {"tick_number": 0}, "maxValues": {"tick_number": 9}, "nullCount": {}}
    return [ParquetFile(f"part-{number}.parquet", 9, 3, json.dumps(stats), "0" * 8) for number in range(2)]


def _spoil_compressed(data: bytes, rng: random.Random) -> bytes:
    """The content, or what it is packed in; and now and then some bytes that become megabytes."""
    chance = rng.random()
    if chance < 0.0001:
        return zstd.compress(varint(rng.choice((0, 1 << 20, 300 << 20))) + bytes(rng.choice((1, 32)) << 20))
    if chance < 0.5:
        return zstd.compress(mutation.changed_file(data, rng))
    return mutation.changed_bytes(zstd.compress(data), rng)


class Memory:
    """A folder of one file: no time is lost with a disk that has nothing to do with it."""

    key, data = "", b""

    def open(self, key: str) -> io.BytesIO:
        return io.BytesIO(self.data)

    def size(self, key: str) -> int | None:
        return len(self.data) if key == self.key else None


class Readers:
    """`read` returns where an input was taken, or refused by an error of one line that names what it is about."""

    def __init__(self, folder: Path) -> None:
        self._memory: Any = Memory()
        self._storage = Storage(folder / "storage")
        self._storage._folder = self._memory
        self._world = World.of(Ecosystem(SimulationSettings(shape=(6, 6), organisms=2)).metadata(RUN_ID, 0))
        self._file = folder / "node.conf"
        shutil.copy(CONFIGURATIONS / "places.conf", folder)  # which others include
        self._table = folder / "table"

    def read(self, kind: str, data: bytes) -> None:
        try:
            getattr(self, f"_{kind}")(data)
        except TickLakeError as error:
            text = str(error)
            assert "\n" not in text, f"an error of several lines: {text}"
            assert any(place in text for place in PLACES[kind]), f"an error that says not where: {text}"
            text.encode()

    def _batch(self, data: bytes, name: str = BATCH, run_id: str = RUN_ID) -> None:
        """As the tasks of both indexers do, to the rows."""
        self._memory.key, self._memory.data = f"{run_id}/{name}", data
        file = self._storage.batch(self._memory.key)
        indexer = (EnvironmentIndexer, OrganismIndexer)[len(data) % 2]
        for ticks in read_ticks(self._storage, file, fields=indexer.reads, world=self._world):
            indexer.rows(ticks, self._world)

    def _newer(self, data: bytes) -> None:
        self._batch(data, run_id=original.RUN)

    def _compressed(self, data: bytes) -> None:
        self._batch(data, f"{BATCH}.zst")

    @staticmethod
    def _envelope(data: bytes) -> None:
        unwrap(data)

    def _metadata(self, data: bytes) -> None:
        self._memory.key, self._memory.data = f"{RUN_ID}/metadata.pb", data
        World.of(self._storage.read_metadata(RUN_ID))

    def _commit(self, data: bytes) -> None:
        """As one who follows a table sees a new commit of another."""
        table = self._opened
        self._sweep()
        table.head, table.files = self._first, Snapshot()
        (self._table / "_delta_log" / commits.name_of(1)).write_bytes(data)
        table.refresh()

    @cached_property
    def _first(self) -> Head:
        return self._opened.head

    @cached_property
    def _opened(self) -> DeltaLog:
        return DeltaLog(Location.of(self._table), TABLE.name, TABLE.schema, TABLE.key)

    def _log(self, data: bytes) -> None:
        """As one who opens a table finds its newest commit."""
        self._sweep()
        (self._table / "_delta_log" / commits.name_of(1)).write_bytes(data)
        DeltaLog(Location.of(self._table), TABLE.name, TABLE.schema, TABLE.key)

    def _sweep(self) -> None:
        for torn in (Path(str(self._opened.location)) / "_delta_log").glob("*.torn"):
            torn.unlink()

    def _configuration(self, data: bytes) -> None:
        self._file.write_bytes(data)
        load(self._file).check_complete()
