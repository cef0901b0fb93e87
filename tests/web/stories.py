"""Runs with a known story, written as other producers write them, and what their files say when protobuf reads them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
from click.testing import CliRunner
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]
from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]
from in_process import InProcess
from printed import read_json

from ticklake.cli import cli
from ticklake.contracts import (
    BatchInfo,
    CellState,
    EnvironmentConfig,
    OrganismState,
    SimulationMetadata,
    TickData,
    Vector,
)
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database

WIDTH, HEIGHT = 8, 6


class Life(NamedTuple):
    """`death` is the first tick at which it does not live any more."""

    id: int
    parent: int | None
    birth: int
    death: int | None = None


@dataclass(frozen=True)
class Story:
    """`files` are the ticks of the batch files; what lies between two of them is missing.

    A file may begin off the grid: its ticks are in the tables, and no sampled ones.
    """

    name: str
    step: int
    files: list[TickRange]
    lives: list[Life]
    records_dead: bool = False
    empty_world: list[TickRange] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return f"20261014-143025-{self.name}"

    def tick(self, number: int) -> TickData:
        """Who lives at a tick; with `records_dead` also who died since the recording before."""
        # Without a version, types of this size mean a later format of the original.
        tick = TickData(simulation_run_id=self.run_id, tick_number=number, capture_time_ms=number, format_version=1)
        for life in self.lives:
            alive = life.birth <= number and (life.death is None or number < life.death)
            just_died = life.death is not None and number - self.step < life.death <= number
            if alive or (self.records_dead and just_died):
                tick.organisms.append(self._organism(life, number, not alive))
        if not any(number in ticks for ticks in self.empty_world):
            for cell in sorted({(number // self.step + 5 * one) % (WIDTH * HEIGHT) for one in range(1 + number % 5)}):
                state = CellState(
                    flat_index=cell,
                    molecule_type=(cell * 1000 - 20_000) << 16,
                    molecule_value=cell * 1000 - 32_000,
                    owner_id=cell % 3,
                )
                tick.cells.append(state)
        return tick

    def _organism(self, life: Life, number: int, dead: bool) -> OrganismState:
        found = OrganismState(
            organism_id=life.id,
            birth_tick=life.birth,
            program_id=f"p{life.id % 2}",
            energy=1000 * life.id + number,
            ip=Vector(components=[life.id % WIDTH, number % HEIGHT]),
            is_dead=dead,
        )
        if life.parent is not None:
            found.parent_id = life.parent
        return found


def write_file(story: Story, root: Path, ticks: TickRange) -> Path:
    """A batch file that nobody is told of."""
    data = [story.tick(number).SerializeToString() for number in range(ticks.start, ticks.end + 1, story.step)]
    file = root / "storage" / story.run_id / f"batch_{ticks.start:010d}_{ticks.end:010d}.pb"
    file.write_bytes(b"".join(_VarintBytes(len(one)) + one for one in data))
    return file


def store(story: Story, root: Path) -> Storage:
    """The metadata and the files of a story."""
    storage = Storage(root / "storage")
    world = EnvironmentConfig(dimensions=2, shape=[WIDTH, HEIGHT], toroidal=[True, True])
    storage.write_metadata(
        SimulationMetadata(simulation_run_id=story.run_id, environment=world, sampling_interval=story.step)
    )
    for ticks in story.files:
        write_file(story, root, ticks)
    return storage


def write(story: Story, root: Path, attempts: int = 5, flush: int = 1000) -> str:
    """Files, messages and tables of a story, with so many ticks a flush at most; the URL of its database."""
    storage, url = store(story, root), f"sqlite:///{root / 'database'}"
    with Database(url) as database:
        with database.run(story.run_id).writer("batch-topic") as writer:
            for ticks in story.files:
                info = BatchInfo(simulation_run_id=story.run_id)
                info.storage_key = f"{story.run_id}/batch_{ticks.start:010d}_{ticks.end:010d}.pb"
                info.tick_start, info.tick_end = ticks
                writer.send(info)
        spark: Any = InProcess()
        resources = IndexerResources(storage, Lake(root / "lake"), database, spark=lambda: spark)
        MetadataIndexer("metadata-indexer", resources).write(story.run_id)
        for kind, name in ((EnvironmentIndexer, "environment-indexer"), (OrganismIndexer, "organism-indexer")):
            options = IndexerOptions(
                story.run_id, until_caught_up=True, max_delivery_attempts=attempts, insert_batch_size=flush
            )
            kind(name, resources, options).run()
    return url


def decoded(directory: Path) -> Iterator[TickData]:
    """Every tick of the batch files below a directory, by protobuf's own parser."""
    for file in sorted(directory.rglob("batch_*.pb")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            size, at = _DecodeVarint32(data, at)
            yield TickData.FromString(data[at : at + size])
            at += size


@dataclass(frozen=True)
class Truth:
    """The figures of a run, computed from its files with sets and sums alone. `ticks` are all that the files have."""

    step: int
    ticks: dict[int, TickData]

    @property
    def sampled(self) -> list[int]:
        """The ticks that figures over time are of: those that a multiple of the sampling interval falls on."""
        return [tick for tick in sorted(self.ticks) if tick % self.step == 0]

    @classmethod
    def of(cls, story: Story, root: Path) -> Truth:
        return cls(story.step, {one.tick_number: one for one in decoded(root / "storage" / story.run_id)})

    def living(self, tick: int) -> set[int]:
        return {one.organism_id for one in self.ticks[tick].organisms if not one.is_dead}

    def newborn(self, tick: int) -> list[OrganismState]:
        return [one for one in self.ticks[tick].organisms if one.birth_tick > tick - self.step]

    def figures(self, tick: int) -> dict[str, int | None]:
        """`deaths` is None where the recording before is missing: when somebody died is then not known."""
        here = self.ticks[tick]
        before = tick - self.step
        gone = self.living(before) - self.living(tick) if before in self.ticks else set()
        stillborn = [one for one in self.newborn(tick) if one.is_dead]
        return {
            "population": len(self.living(tick)),
            "births": sum(one.HasField("parent_id") for one in self.newborn(tick)),
            "deaths": len(gone) + len(stillborn) if before in self.ticks or before < 0 else None,
            "energy": sum(one.energy for one in here.organisms if not one.is_dead),
            "occupied_cells": len(here.cells),
        }

    def exact(self, first: int, last: int) -> bool:
        """Whether nobody was born or died unseen from one sampled tick to another."""
        every = range(first, last + 1)
        return self.step == 1 and all(one in self.ticks and self.figures(one)["deaths"] is not None for one in every)

    def missing(self) -> list[TickRange]:
        """The ranges of ticks without a file, from 0 to the last tick that has one."""
        found: list[TickRange] = []
        for tick in range(0, max(self.ticks) + 1, self.step):
            if tick in self.ticks:
                continue
            if found and found[-1].end == tick - self.step:
                found[-1] = TickRange(found[-1].start, tick)
            else:
                found.append(TickRange(tick, tick))
        return found


class Told:
    """A story that was written and indexed, its truth, and how to ask for figures of it."""

    def __init__(self, story: Story, root: Path, url: str, client: httpx.Client) -> None:
        self.story, self.root, self.url, self.client = story, root, url, client
        self.truth = Truth.of(story, root)

    def get(self, what: str, **params: Any) -> httpx.Response:
        answer = self.client.get(f"/api/runs/{self.story.run_id}/{what}", params=params)
        assert answer.status_code == 200, answer.text
        return answer

    def series(self, **params: Any) -> dict[str, Any]:
        found = self.get("series", **params).json()
        return found | {one["name"]: one["values"] for one in found["columns"]}

    def page(self, path: str) -> str:
        answer = self.client.get(path, params={"run": self.story.run_id})
        assert answer.status_code == 200
        return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())

    def command(self, *arguments: str, places: str = "sld", codes: tuple[int, ...] = (0,)) -> str:
        options = {"s": "--storage", "l": "--lake", "d": "--database"}
        values = {"s": str(self.root / "storage"), "l": str(self.root / "lake"), "d": self.url}
        given = [text for place in places for text in (options[place], values[place])]
        done = CliRunner().invoke(cli, [*arguments, *given])
        assert done.exit_code in codes, done.output
        return done.stdout

    def json(self, *arguments: str, **options: Any) -> Any:
        return read_json(self.command(*arguments, "--json", **options))


def shown_rows(text: str) -> list[list[str]]:
    """The rows of a table that a command has printed; a cell that is empty is left out."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip()]


def as_size(size: int) -> str:
    """How commands and pages write bytes, with units by division."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value >= 1024:
            value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


ASK = """
import json, sqlite3, sys
file, sql, *values = json.load(sys.stdin)
with sqlite3.connect(file) as connection:
    print(json.dumps(connection.execute(sql, values).fetchall()))
"""


class PlainSql:
    """A SQLite file as Python's own SQLite reads it: in another process, for one process must not open it with two."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def of(cls, root: Path, run_id: str) -> Self:
        return cls(root / "database" / f"SIM_{run_id.replace('-', '_').upper()}.sqlite")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        asked = json.dumps([str(self.file), sql, *values])
        done = subprocess.run([sys.executable, "-ISc", ASK], input=asked, capture_output=True, text=True, check=True)
        return [tuple(row) for row in json.loads(done.stdout)]

    def number(self, sql: str, *values: Any) -> int:
        ((found,),) = self.rows(sql, *values)
        return int(found)
