"""Every format of the original: detected from its bytes, and read to the same columns. What fits none is refused."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crash.original import (
    RUN,
    Chunk,
    Organism,
    Tick,
    columns,
    file_of,
    framed,
    number,
    organism,
    packed,
    part,
    tick_data,
    varint,
)

from ticklake.contracts import SimulationMetadata
from ticklake.storage import zstd
from ticklake.storage.codec import FORMAT, encode_ticks, read_ticks
from ticklake.storage.columns import CellColumns, OrganismColumns, TickColumns
from ticklake.storage.delimited import frame
from ticklake.storage.eras.batches import tick_schema
from ticklake.storage.eras.detection import Era, era_of
from ticklake.storage.eras.formats import format_of
from ticklake.storage.eras.stretches import stretches_of
from ticklake.storage.errors import BadBatchFile
from ticklake.storage.files import BatchFile, Storage
from ticklake.ticks import Stretch, TickRange
from ticklake.world import World

ERAS = "ABCDEFG"
CHUNKED = "DEFG"
CELLS = ("cells.flat_index", "cells.molecule_value", "cells.owner_id", "cells.marker", "cells.state", "cells.type")
ORGANISMS = tuple(
    f"organisms.{name}"
    for name in ("organism_id", "parent_id", "energy", "ip", "is_dead", "instruction_failed", "failure_reason",
                 "instruction_opcode_id", "instruction_energy_cost", "entropy_register", "molecule_marker_register",
                 "genome_hash", "death_tick", "generation", "parent_genome_hash")
)  # fmt: skip
WORLD = World(RUN, (10, 10), (True, True), 1)
DATA = Path(__file__).parents[2] / "data"
REAL = "20261116-13544087-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"


def era_in(content: bytes) -> Era:
    return era_of(content[:64], lambda: io.BytesIO(content))


def molecule(kind: int, value: int, marker: int = 0) -> int:
    return marker << 28 | kind << 20 | value & 0xFFFFF


def some_ticks(seed: int = 1, count: int = 12, organisms: bool = True, era: str = "E") -> list[Tick]:
    """Ticks whose cells come, change and go."""
    draw = random.Random(seed)
    cells: dict[int, tuple[int, int]] = {}
    ticks = []
    largest = 2**15 - 1 if era == "A" else 2**19 - 1
    for tick in range(count):
        for flat in draw.sample(range(100), 12):
            if draw.random() < 0.4:
                cells.pop(flat, None)
            else:
                marker = 0 if era == "A" else draw.randrange(16)
                value = draw.randint(-largest - 1, largest)
                cells[flat] = molecule(draw.randrange(1, 4), value, marker), draw.choice((0, 1, 300))
        living = [Organism(n, n - 1 if n > 1 else None, energy=tick, opcode=n) for n in range(1, 4)]
        ticks.append(Tick(tick, dict(cells), living if organisms else ()))
    return ticks


def put(root: Path, content: bytes, ticks: TickRange, compressed: bool = True) -> BatchFile:
    path = root / RUN / "raw" / "000" / f"batch_{ticks.start:019d}_{ticks.end:019d}.pb{'.zst' if compressed else ''}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstd.compress(content) if compressed else content)
    return Storage(root).batch(f"{RUN}/raw/000/{path.name}")


def read(root: Path, file: BatchFile, fields: tuple[str, ...] = CELLS, **options: Any) -> list[dict[str, Any]]:
    batches = list(read_ticks(Storage(root), file, fields=fields, **{"world": WORLD, **options}))
    assert all(batch.schema == tick_schema(fields) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def cells_in(row: dict[str, Any]) -> dict[int, tuple[int, int]]:
    return {one["flat_index"]: (one["state"] & 0xFFFFFFFF, one["owner_id"]) for one in row["cells"]}


@pytest.mark.parametrize("era", ERAS)
def test_each_era_is_recognised(era: str) -> None:
    assert era_in(file_of(era, some_ticks(era=era))) == era


@pytest.mark.parametrize("era", ERAS)
def test_the_format_of_a_file_is_known_without_reading_it_all(tmp_path: Path, era: str) -> None:
    file = put(tmp_path, file_of(era, some_ticks(era=era)), TickRange(0, 11))
    assert format_of(Storage(tmp_path), file.key) == era
    (batch, *_) = read_ticks(Storage(tmp_path), file, fields=CELLS, world=WORLD)
    assert batch.schema.metadata == {FORMAT: era.encode()}


def test_a_large_first_tick_of_ticklake_is_not_taken_for_era_a(tmp_path: Path) -> None:
    cells = np.arange(200_000, dtype=np.int32)
    tick = TickColumns(0, 1, CellColumns(cells, cells * 0 + (1 << 16), cells % 100, cells), OrganismColumns())
    file = Storage(tmp_path).write_batch(RUN, encode_ticks(RUN, [tick]))
    assert format_of(Storage(tmp_path), file.key) == "TickLake"


@pytest.mark.parametrize("era", ERAS)
def test_ticks_with_nothing_in_them_decide_nothing(era: str) -> None:
    empty = [Tick(number, {}) for number in range(3)]
    first = framed(tick_data(tick, "A") for tick in empty) if era in "ABC" else file_of(era, empty)
    ticks = [Tick(tick.number + 3, tick.cells, tick.organisms) for tick in some_ticks(era=era)]
    assert era_in(first + file_of(era, ticks)) == era


def test_an_early_file_without_cells_and_organisms_is_read_as_ticks(tmp_path: Path) -> None:
    content = framed(part(1, RUN.encode()) + number(2, tick) + number(3, 7) + part(6, b"r" * 2500) for tick in range(3))
    assert era_in(content) is Era.A
    assert [row["cells"] for row in read(tmp_path, put(tmp_path, content, TickRange(0, 2)))] == [[], [], []]
    only_ids = framed(part(1, RUN.encode()) + number(2, tick) for tick in range(3))
    assert era_in(only_ids) is Era.A
    assert len(read(tmp_path, put(tmp_path, only_ids, TickRange(0, 2)))) == 3


def test_cells_without_a_type_decide_nothing() -> None:
    code = [Tick(tick, {5: (molecule(0, 7), 1)}) for tick in range(3)]
    later = [Tick(tick.number + 3, tick.cells) for tick in some_ticks(era="B")]
    assert era_in(file_of("A", code)) is Era.A
    assert era_in(file_of("B", code) + file_of("B", later)) is Era.B


def test_cells_that_are_always_empty_messages_fit_two_eras_and_are_refused(tmp_path: Path) -> None:
    content = framed(part(1, RUN.encode()) + number(2, tick) + part(5, b"") for tick in range(3))
    with pytest.raises(BadBatchFile, match="a cell in era A and no cells in era C"):
        read(tmp_path, put(tmp_path, content, TickRange(0, 2)))


def test_files_of_our_own_keep_their_meaning_whatever_their_types_are(tmp_path: Path) -> None:
    kinds = np.array([0, 1 << 16, 1 << 20, 9 << 24], np.int32)
    cells = CellColumns(np.arange(4), kinds, np.full(4, -2), np.ones(4, np.int32))
    content = frame(tick.data for tick in encode_ticks(RUN, [TickColumns(0, 0, cells, OrganismColumns())]))
    assert era_in(content) is Era.OWN
    rows = read(tmp_path, put(tmp_path, content, TickRange(0, 0)))[0]["cells"]
    assert [row["state"] for row in rows] == [int(kind) | 0xFFFE for kind in kinds]
    assert [row["type"] for row in rows] == [int(kind) >> 16 for kind in kinds]


@pytest.mark.parametrize("era", ERAS)
@given(seed=st.integers(0, 2**32), start=st.integers(0, 11), end=st.integers(0, 11), chunk=st.integers(1, 12))
def test_any_slice_has_the_cells_that_were_recorded(
    era: str, seed: int, start: int, end: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, ticks = tmp_path_factory.mktemp("eras"), some_ticks(seed, era=era)
    file = put(root, file_of(era, ticks, chunk), TickRange(0, 11), compressed=bool(seed % 2))
    slice_ = TickRange(min(start, end), max(start, end))
    rows = read(root, file, ticks=slice_, skip={3}, chunk_bytes=1000)
    expected = [tick for tick in ticks if tick.number in slice_ and tick.number != 3]
    assert [row["tick_number"] for row in rows] == [tick.number for tick in expected]
    for row, tick in zip(rows, expected, strict=True):
        for one in row["cells"]:
            found, owner = tick.cells[one["flat_index"]]
            value = (found & 0xFFFFF ^ 0x80000) - 0x80000
            assert (one["type"], one["marker"]) == (found >> 20 & 0xFF, None if era == "A" else found >> 28)
            assert (one["molecule_value"], one["owner_id"]) == (value, owner)
            state = found if era != "A" else (found >> 20) << 16 | value & 0xFFFF
            assert one["state"] & 0xFFFFFFFF == state
        assert len(row["cells"]) == len(tick.cells)


@pytest.mark.parametrize("era", ERAS)
@given(seed=st.integers(0, 2**32), start=st.integers(0, 11), chunk=st.integers(1, 12), both=st.booleans())
def test_changes_are_what_differs_from_the_recording_before_in_any_slice(
    era: str, seed: int, start: int, chunk: int, both: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, ticks = tmp_path_factory.mktemp("eras"), some_ticks(seed, era=era)
    file = put(root, file_of(era, ticks, chunk), TickRange(0, 11))
    fields = ("changes", "snapshots", "since", *(CELLS if both else ()))
    complete = {row["tick_number"]: row["cells"] for row in read(root, file, ("cells", *CELLS))}
    for row in read(root, file, fields, ticks=TickRange(start, 11), skip={3}, chunk_bytes=1000):
        tick, here = row["tick_number"], complete[row["tick_number"]]
        is_complete = era not in CHUNKED or tick % chunk == 0
        assert row["since"] == (None if is_complete else tick - 1)
        assert row["snapshots"] == (here if is_complete else [])
        before = {} if is_complete else {one["flat_index"]: one for one in complete[tick - 1]}
        after = before | {one["flat_index"]: one for one in row["changes"]}
        occupied = [one for _, one in sorted(after.items()) if is_complete or one["state"] or one["owner_id"]]
        assert occupied == sorted(here, key=lambda one: int(one["flat_index"]))
        assert all(before.get(one["flat_index"]) != one for one in row["changes"])
        assert not both or row["cells"] == here


@pytest.mark.parametrize("era", ERAS)
def test_organisms_are_the_same_in_both_numberings_and_null_where_an_era_has_none(tmp_path: Path, era: str) -> None:
    dead = Organism(2, 1, 1, -3, (9, 8), True, 1, 40, 3, -5, 17, "no energy", 1)
    ticks = [Tick(0, {1: (molecule(1, 1), 0)}, [Organism(1)]), Tick(1, {}, [Organism(1, energy=0), dead])]
    rows = read(tmp_path, put(tmp_path, file_of(era, ticks), TickRange(0, 1)), ORGANISMS)
    founder, other = rows[1]["organisms"]
    assert other == {
        "organism_id": 2, "parent_id": 1, "energy": -3, "ip": {"components": [9, 8]}, "is_dead": True,
        "instruction_failed": True, "failure_reason": "no energy",
        "instruction_opcode_id": None if era == "A" else 17, "instruction_energy_cost": None if era == "A" else 3,
        "entropy_register": None if era == "A" else 40, "molecule_marker_register": None if era == "A" else 3,
        "genome_hash": -5 if era in CHUNKED else None, "death_tick": 1 if era in CHUNKED else None,
        "generation": 1 if era in "FG" else None, "parent_genome_hash": 77 if era in "FG" else None,
    }  # fmt: skip
    unknown = {name for name, value in founder.items() if value is None}
    always = {"parent_id", "failure_reason", "instruction_opcode_id", "instruction_energy_cost", "death_tick",
              "parent_genome_hash"}  # fmt: skip
    of_era = {"A": {"entropy_register", "molecule_marker_register"}}.get(era, set())
    of_era |= {"genome_hash"} if era in "ABCD" else set()
    of_era |= {"generation"} if era in "ABCDE" else set()
    assert unknown == always | of_era
    assert rows[0]["organisms"][0]["organism_id"] == 1


@pytest.mark.parametrize("era", ERAS)
def test_the_whole_schema_is_the_same_in_every_era(tmp_path: Path, era: str) -> None:
    fields = ("simulation_run_id", "capture_time_ms", "cells", "organisms", "rng_state", "strategy_states")
    rows = read(tmp_path, put(tmp_path, file_of(era, some_ticks(era=era)), TickRange(0, 11)), fields)
    assert {(row["simulation_run_id"], row["capture_time_ms"]) for row in rows} == {(RUN, 7)}


def with_delta(cells: bytes, kind: int = 1, tick: int = 1, deltas: int = 6) -> bytes:
    snapshot = part(5, tick_data(Tick(0, {5: (molecule(1, 1), 0)}), "E"))
    head = part(1, RUN.encode()) + number(3, 1) + number(4, 2)
    return head + snapshot + part(deltas, number(1, tick) + number(3, kind) + part(4, cells))


def columns_of(flat: list[int], molecules: list[int], owners: list[int]) -> bytes:
    return packed(1, flat) + packed(2, molecules) + packed(3, owners)


GOOD = columns({5: (molecule(1, 2), 0)})
HEAD = part(1, RUN.encode()) + number(3, 1) + number(4, 2)
SNAPSHOT = tick_data(Tick(0, {5: (molecule(1, 1), 0)}), "E")
PEOPLED = tick_data(Tick(0, {}, [Organism(1)]), "E")
DELTA = number(1, 1) + number(3, 1) + part(4, GOOD)


@pytest.mark.parametrize(
    ("message", "tick", "reason"),
    [
        (HEAD + part(6, DELTA) + part(5, SNAPSHOT), None, "a delta comes before the snapshot"),
        (HEAD + part(5, SNAPSHOT) * 2 + part(6, DELTA), 0, "a chunk has two snapshots"),
        (HEAD, None, "a chunk has no snapshot"),
        (with_delta(columns_of([8, 5], [1, 1], [1, 1])), 1, "must ascend, but 5 comes after 8"),
        (with_delta(columns_of([5, 5], [1, 1], [1, 1])), 1, "must ascend, but 5 comes after 5"),
        (with_delta(columns_of([5, 8], [1], [1, 1])), 1, "different lengths: 2 flat_indices, 1 molecule_data"),
        (with_delta(columns_of([5, 100], [1, 1], [1, 1])), 1, "outside the world of 100 cells: 100"),
        (with_delta(columns_of([-1, 5], [1, 1], [1, 1])), 1, "outside the world of 100 cells: -1"),
        (with_delta(columns_of([5], [1], [-1])), 1, "a negative owner_id: -1"),
        (with_delta(number(1, 5) + number(2, 5)), 1, "not 1 to 3 once each"),
        (with_delta(GOOD + GOOD), 1, "not 1 to 3 once each"),
        (with_delta(part(1, b"\x80")), 1, "varint"),
        (with_delta(b"\x0a\x7f\x01"), 1, "127 bytes, but its message has 1 more"),
        (with_delta(GOOD, kind=0), 1, "delta type 0 is unknown"),
        (with_delta(GOOD, kind=3), 1, "delta type 3 is unknown"),
        (with_delta(GOOD, tick=0), 0, "ticks must ascend"),
        (with_delta(GOOD, tick=2), 2, "outside its chunk, which ends with 1"),
        (HEAD + part(5, SNAPSHOT) + part(6, DELTA) * 2, 1, "ticks must ascend"),
        (HEAD + part(5, SNAPSHOT), 0, "says that it has 2 ticks, but has 1"),
        (part(1, RUN.encode()) + number(3, 1) + number(4, 9) + part(5, SNAPSHOT) + part(6, DELTA), 1, "has 9 ticks"),
        (HEAD + part(5, tick_data(Tick(1, {}), "E")) + part(6, DELTA), 1, "has this tick, but the chunk says 0"),
        (HEAD + part(5, SNAPSHOT) + b"\x32\x7f\x08\x01", 0, "field 6 has 127 bytes, but its message has 2 more"),
        (HEAD + part(5, SNAPSHOT) + part(6, DELTA + b"\x22\x7f"), 1, "field 4 has 127 bytes"),
        (HEAD + part(5, SNAPSHOT) + part(6, DELTA + part(4, GOOD)), 1, "has its cells twice"),
        (HEAD + part(5, SNAPSHOT) + part(6, part(4, GOOD) + number(1, 1) + number(3, 1)), 0, "comes after its cells"),
        (HEAD + part(5, SNAPSHOT) + part(6, number(1, 1) + number(3, 1) + number(4, 1)), 1, "field 4 of a delta"),
        (HEAD + part(5, SNAPSHOT) + part(6, DELTA) + part(10, DELTA), 0, "in field 6, but .* era F"),
        (HEAD + part(5, SNAPSHOT) + part(6, DELTA) + number(2, 1), 1, "field 2 of a chunk comes after its snapshot"),
        (
            HEAD + part(5, SNAPSHOT) + part(6, DELTA) + part(11, b"new"),
            1,
            "field 11 of wire type 2, as in no known era",
        ),
        (HEAD + part(5, PEOPLED) + part(6, DELTA + part(5, organism(Organism(1), "D"))), 1, "other field numbers"),
        (
            part(1, b"else") + number(3, 1) + number(4, 2) + part(5, SNAPSHOT) + part(6, DELTA),
            0,
            "belongs to run 'else'",
        ),
        (HEAD + number(2, 5) + part(5, SNAPSHOT), 5, "2 ticks from 5 to 1 is impossible"),
        (HEAD + part(5, SNAPSHOT) + part(7, b"\x05") + part(8, b"\x01") + part(10, DELTA), 1, "field 7 .* lists other"),
        (HEAD + part(5, SNAPSHOT) + part(7, b"\x01") + part(8, b"\x02") + part(10, DELTA), 1, "field 8 .* lists other"),
    ],
)
@pytest.mark.parametrize("compressed", [True, False])
def test_a_hostile_chunk_is_one_error_with_file_byte_and_tick(
    tmp_path: Path, message: bytes, tick: int | None, reason: str, compressed: bool
) -> None:
    content = framed([message])
    file = put(tmp_path, content, TickRange(0, 1), compressed)
    with pytest.raises(BadBatchFile, match=reason) as caught:
        read(tmp_path, file, (*CELLS, *ORGANISMS))
    assert caught.value.tick == tick
    assert 0 <= caught.value.offset <= len(content)


def twelve(era: str) -> list[Tick]:
    return [Tick(12, {1: (molecule(1, 1), 0)})] if era in "ABC" else [Tick(11, {}), Tick(12, {})]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (file_of("A", some_ticks(era="A")) + file_of("C", twelve("C")), "columns of cells"),
        (file_of("A", some_ticks(era="A")) + file_of("B", twelve("B")), "molecule_type that era A does not have"),
        (file_of("A", some_ticks(era="A")) + file_of("E", twelve("E")[1:]), "is a chunk of ticks"),
        (file_of("C", some_ticks(era="C")) + file_of("A", twelve("A")), "columns of cells"),
        (file_of("E", some_ticks(era="E")) + file_of("C", [Tick(12, {})]), "is no chunk of ticks"),
        (file_of("E", some_ticks(era="E")) + file_of("F", twelve("F")), "chunks must ascend"),
        (file_of("E", some_ticks(count=11)) + file_of("F", twelve("F")), "but .* era E"),
    ],
)
def test_a_file_of_two_eras_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(BadBatchFile, match=reason):
        read(tmp_path, put(tmp_path, content, TickRange(0, 12)), (*CELLS, *ORGANISMS, "cells.molecule_type"))


def test_an_organism_that_fits_no_numbering_is_named(tmp_path: Path) -> None:
    strange = number(1, 1) + b"".join(part(11, b"") for _ in range(9))
    snapshot = number(2, 0) + part(1, RUN.encode()) + part(4, strange)
    content = framed([HEAD + part(5, snapshot) + part(6, DELTA)])
    with pytest.raises(BadBatchFile, match="9 registers in field 11 and wire types \\[\\] in field 26"):
        read(tmp_path, put(tmp_path, content, TickRange(0, 1)))


def test_a_chunk_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    content = file_of("E", some_ticks())
    for end in range(len(content) - 1, 0, -97):
        with pytest.raises(BadBatchFile):
            read(tmp_path, put(tmp_path, content[:end], TickRange(0, 11), compressed=False), (*CELLS, *ORGANISMS))


def test_only_what_is_wanted_is_decoded(tmp_path: Path) -> None:
    """A run of which only the organisms are wanted is read although its cells are broken, and the other way round."""
    bad_cells = HEAD + part(5, SNAPSHOT) + part(6, number(1, 1) + number(3, 1) + part(4, b"\xff"))
    file = put(tmp_path, framed([bad_cells]), TickRange(0, 1))
    assert [row["organisms"] for row in read(tmp_path, file, ORGANISMS)] == [[], []]
    bad_organism = HEAD + part(5, PEOPLED) + part(6, DELTA + part(5, organism(Organism(1), "E") + b"\xff"))
    file = put(tmp_path, framed([bad_organism]), TickRange(0, 1))
    assert len(read(tmp_path, file, CELLS)) == 2
    with pytest.raises(BadBatchFile, match="varint"):
        read(tmp_path, file, ORGANISMS)


def test_a_dead_organism_counts_only_in_the_first_recording_after_its_death(tmp_path: Path) -> None:
    """After a resume, the dead of the checkpoint are recorded again."""
    dead = [Organism(n, is_dead=True, death=death) for n, death in ((1, 0), (2, 7), (3, 8), (4, 14))]
    ticks = [Tick(7, {}, dead[:2]), Tick(14, {}, [*dead, Organism(5)]), Tick(21, {}, [Organism(5)])]
    world = World(RUN, (10, 10), (True, True), 7)
    for fields in (ORGANISMS, ("organisms.organism_id",)):
        file = put(tmp_path, file_of("E", ticks), TickRange(7, 21))
        for known in (world, None):
            rows = read(tmp_path, file, fields, world=known)
            assert [[one["organism_id"] for one in row["organisms"]] for row in rows] == [[2], [3, 4, 5], [5]]
    alone = put(tmp_path, file_of("E", ticks[1:2]), TickRange(14, 14))
    assert [len(row["organisms"]) for row in read(tmp_path, alone, ORGANISMS, world=world)] == [3]


def metadata_of(root: Path) -> SimulationMetadata:
    return Storage(root).read_metadata(REAL)


@pytest.mark.parametrize("kind", ["newer", "newer-synthetic"])
def test_every_recording_of_a_real_run_has_its_cells_and_organisms(kind: str) -> None:
    storage, world = Storage(DATA / kind), World.of(metadata_of(DATA / kind))
    expected = {one["tick"]: one for one in json.loads((DATA / "newer" / REAL / "EXPECTED.json").read_text())["ticks"]}
    seen: set[int] = set()
    for file in storage.every_batch(REAL):
        for batch in read_ticks(storage, file, fields=(*CELLS, *ORGANISMS), world=world):
            for row in range(batch.num_rows):
                tick = batch.column("tick_number")[row].as_py()
                assert figures(batch, row, with_dead=tick not in seen) == {
                    name: expected[tick][name] for name in figures(batch, row, with_dead=tick not in seen)
                }
                seen.add(tick)
    assert seen == set(expected)


def figures(batch: pa.RecordBatch, row: int, with_dead: bool) -> dict[str, Any]:
    cells, living = batch.column("cells")[row].values, batch.column("organisms")[row].as_py()
    triples = np.stack([cells.field(name).to_numpy() for name in ("flat_index", "state", "owner_id")], axis=1)
    alive = [one for one in living if not one["is_dead"]]
    return {
        "cells": len(cells),
        "cells_sha256": hashlib.sha256(triples.astype("<i4").tobytes()).hexdigest(),
        "sum_molecule_value": int(cells.field("molecule_value").to_numpy().sum()),
        "marked_cells": int((cells.field("marker").to_numpy() > 0).sum()),
        "alive": len(alive),
        "sum_energy_alive": sum(one["energy"] for one in alive),
        "sum_entropy_alive": sum(one["entropy_register"] for one in alive),
        "genomes_alive": len({one["genome_hash"] for one in alive} - {0}),
        # One that lost a conflict has failed, but has executed nothing.
        "failed_instructions_alive": sum(
            one["instruction_failed"] and one["instruction_opcode_id"] is not None for one in alive
        ),
    } | ({"dead": len(living) - len(alive)} if with_dead else {})


def at(*numbers: int) -> list[Tick]:
    return [Tick(number, {number % 100: (molecule(1, 5), 1)}, [Organism(1)]) for number in numbers]


SPARSE = World(RUN, (10, 10), (True, True), 10)


@pytest.mark.parametrize("era", CHUNKED)
@pytest.mark.parametrize("ticks", [range(20, 30), range(0, 500, 100), [30]], ids=["denser", "coarser", "one tick"])
def test_a_chunk_says_how_often_it_was_sampled(tmp_path: Path, era: str, ticks: Sequence[int]) -> None:
    file = put(tmp_path, file_of(era, at(*ticks), chunk=10), TickRange(ticks[0], ticks[-1]))
    assert [row["tick_number"] for row in read(tmp_path, file, world=SPARSE)] == list(ticks)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1 if era == "G" else 10
    assert stretches_of(Storage(tmp_path), file, 10) == [Stretch(ticks[0], ticks[-1], step)]


def test_each_chunk_of_a_file_says_it(tmp_path: Path) -> None:
    chunks = [
        Chunk("G", at(*range(0, 50, 10))),
        Chunk("G", at(*range(50, 60))),
        Chunk("G", at(100), changes={"interval": 100}),
    ]
    file = put(tmp_path, framed(chunk.encoded() for chunk in chunks), TickRange(0, 100))
    assert len(read(tmp_path, file, world=SPARSE)) == 16
    assert stretches_of(Storage(tmp_path), file, 10) == [Stretch(0, 40, 10), Stretch(50, 59, 1), Stretch(100, 100, 100)]


@pytest.mark.parametrize(
    ("era", "ticks", "named", "reason"),
    [
        ("E", (0, 10, 30), None, "a chunk of 3 ticks from 0 to 30 does not have every n-th tick"),
        ("E", (0, 10, 11, 30), None, "does not have every n-th tick"),
        ("E", (5, 15, 25), None, "does not have every n-th tick"),
        ("E", (5,), None, "by the metadata, n is 10"),
        ("G", (0, 10, 20), 5, "names the sampling interval 5, but its ticks have 10"),
        ("G", (5,), 10, "does not have every n-th tick"),
        ("G", (0, 10, 20), -1, "names the sampling interval -1"),
    ],
)
def test_a_chunk_without_every_nth_tick_is_refused(
    tmp_path: Path, era: str, ticks: tuple[int, ...], named: int | None, reason: str
) -> None:
    chunk = Chunk(era, at(*ticks), changes={} if named is None else {"interval": named})
    file = put(tmp_path, framed([chunk.encoded()]), TickRange(ticks[0], ticks[-1]))
    with pytest.raises(BadBatchFile, match=reason):
        read(tmp_path, file, world=SPARSE)


def test_a_file_that_cannot_be_read_promises_what_its_name_says(tmp_path: Path) -> None:
    short = file_of("E", at(0, 10))
    for content in (b"", b"\xff" * 30, short, file_of("E", at(0, 10, 20))[:20], file_of("A", some_ticks(era="A"))):
        file = put(tmp_path, content, TickRange(0, 20), compressed=False)
        assert stretches_of(Storage(tmp_path), file, 10) == [Stretch(0, 20, 10)]


def chunk_of_deltas(*deltas: tuple[int, bytes]) -> bytes:
    """A chunk of era E whose snapshot has cell 1. Each delta is its type and the columns of its cells."""
    head = part(1, RUN.encode()) + number(3, len(deltas)) + number(4, 1 + len(deltas))
    snapshot = part(5, tick_data(Tick(0, {1: (molecule(1, 5), 1)}), "E"))
    return framed([
        head + snapshot + b"".join(
            part(6, number(1, tick) + number(3, kind) + part(4, cells)) for tick, (kind, cells) in enumerate(deltas, 1)
        )
    ])  # fmt: skip


def test_a_slice_needs_no_delta_before_the_last_accumulated_one(tmp_path: Path) -> None:
    outside, added = columns({1000: (molecule(1, 5), 1)}), columns({2: (molecule(1, 6), 2)})
    content = chunk_of_deltas((1, outside), (2, added), (1, added), (1, added))
    file = put(tmp_path, content, TickRange(0, 4))
    for ticks in (TickRange(2, 2), TickRange(3, 4), TickRange(4, 4)):
        assert {tuple(cells_in(row)) for row in read(tmp_path, file, ticks=ticks)} == {(1, 2)}
    for ticks in (TickRange(0, 4), TickRange(1, 1)):
        with pytest.raises(BadBatchFile, match="tick 1: a cell outside the world"):
            read(tmp_path, file, ticks=ticks)
    unaccumulated = put(tmp_path, chunk_of_deltas((1, outside), (1, added)), TickRange(0, 2))
    with pytest.raises(BadBatchFile, match="tick 1: a cell outside the world"):
        read(tmp_path, unaccumulated, ticks=TickRange(2, 2))


@pytest.mark.parametrize("size", [100, 10_000], ids=["small world", "large world"])
def test_the_rows_of_a_tick_do_not_depend_on_the_slice_even_if_an_accumulated_delta_lies(
    tmp_path: Path, size: int
) -> None:
    added = [columns({flat: (molecule(1, flat), flat)}) for flat in (2, 3, 4)]
    file = put(tmp_path, chunk_of_deltas((1, added[0]), (2, added[1]), (1, added[2])), TickRange(0, 3))
    world = World(RUN, (size // 10, 10), (True, True), 1)
    whole = [tuple(cells_in(row)) for row in read(tmp_path, file, world=world)]
    assert whole == [(1,), (1, 2), (1, 3), (1, 3, 4)]
    for first in range(4):
        for last in range(first, 4):
            rows = read(tmp_path, file, world=world, ticks=TickRange(first, last))
            assert [tuple(cells_in(row)) for row in rows] == whole[first : last + 1]
    assert [tuple(cells_in(row)) for row in read(tmp_path, file, world=world, skip={0, 2})] == [whole[1], whole[3]]
    for first in range(1, 4):
        changes = read(tmp_path, file, ("changes",), world=world, ticks=TickRange(first, 3))
        found = [{one["flat_index"]: one["owner_id"] for one in row["changes"]} for row in changes]
        assert found == [{2: 2}, {2: 0, 3: 3}, {4: 4}][first - 1 :]


LINEAGE = ("organisms.organism_id", "organisms.generation", "organisms.parent_genome_hash", "organisms.energy")


def test_one_child_tells_era_f_from_e_in_a_file_without_deltas(tmp_path: Path) -> None:
    founders = [Organism(number) for number in range(1, 4)]
    ticks = [Tick(0, {}, founders), Tick(1, {}, [*founders, Organism(4, parent=1, birth=1, generation=1)])]
    content = file_of("F", ticks, chunk=1)
    assert era_in(content) is Era.F
    rows = read(tmp_path, put(tmp_path, content, TickRange(0, 1)), LINEAGE)
    assert [one["generation"] for row in rows for one in row["organisms"]] == [0, 0, 0, 0, 0, 0, 1]
    assert era_in(file_of("E", ticks, chunk=1)) is Era.E


def test_founders_alone_without_deltas_have_the_same_rows_in_e_and_f_but_an_unknown_generation(tmp_path: Path) -> None:
    ticks = [Tick(number, {3: (molecule(1, 5), 1)}, [Organism(1), Organism(2)]) for number in range(3)]
    read_as = {
        era: read(tmp_path, put(tmp_path, file_of(era, ticks, chunk=1), TickRange(0, 2)), (*CELLS, *LINEAGE))
        for era in "EF"
    }
    assert read_as["E"] == read_as["F"]
    assert {one["generation"] for row in read_as["F"] for one in row["organisms"]} == {None}


@pytest.mark.parametrize(
    ("era", "second", "reason"),
    [
        ("E", organism(Organism(2, is_dead=True, death=0), "D"), "other field numbers than those of era E"),
        ("D", organism(Organism(2, is_dead=True, death=0), "E"), "other field numbers than those of era D"),
        ("G", b"", "0 registers in field 11 and wire types"),
        ("E", organism(Organism(0), "E"), "an organism_id below 1: 0"),
        ("B", organism(Organism(0), "B"), "an organism_id below 1: 0"),
    ],
    ids=["D in E", "E in D", "empty", "no id in E", "no id in B"],
)
def test_every_organism_is_checked_not_only_the_first(tmp_path: Path, era: str, second: bytes, reason: str) -> None:
    start = part(1, RUN.encode()) + number(2, 0)
    snapshot = start + part(4, organism(Organism(1), era)) + part(4, second)
    cells = part(5, number(1, 1) + number(2, 1 << 20))
    chunk = start + number(4, 1) + part(5, snapshot) + (number(6, 1) if era == "G" else b"")
    file = put(tmp_path, framed([snapshot + cells if era == "B" else chunk]), TickRange(0, 0))
    with pytest.raises(BadBatchFile, match=reason) as caught:
        read(tmp_path, file, ORGANISMS)
    assert caught.value.tick == 0


@pytest.mark.parametrize("named", [-1, 7])
def test_an_impossible_or_wrong_interval_of_a_chunk_is_refused(tmp_path: Path, named: int) -> None:
    for count, ticks in ((1, [Tick(0, {})]), (2, [Tick(0, {}), Tick(1, {})])):
        content = Chunk("G", ticks).encoded().replace(number(6, 1) + packed(7, [1]), number(6, named) + packed(7, [1]))
        if count == 1:
            content = part(1, RUN.encode()) + number(4, 1) + part(5, tick_data(ticks[0], "G")) + number(6, -abs(named))
        with pytest.raises(BadBatchFile, match="names the sampling interval"):
            read(tmp_path, put(tmp_path, framed([content]), TickRange(0, count - 1)))


def raw_cell(flat: int, kind: int, value: int, marker: int = 0) -> bytes:
    return part(5, number(1, flat) + number(2, kind) + number(3, value) + number(5, marker))


def raw_tick(*cells: bytes, living: bytes = b"") -> bytes:
    return framed([part(1, RUN.encode()) + living + b"".join(cells)])


B_CELL, A_CELL = raw_cell(1, 1 << 20, 5), raw_cell(2, 1 << 16, 5)
NONE_OF_A, NONE_OF_B = "a molecule_type that era A does not have", "a molecule_type that era B does not have"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ((B_CELL, A_CELL), f"{NONE_OF_B}: 65536"),
        ((A_CELL, B_CELL), f"{NONE_OF_A}: 1048576"),
        ((B_CELL, raw_cell(2, 1 << 28, 5)), f"{NONE_OF_B}: 268435456"),
        ((raw_cell(2, 1 << 24, 5),), f"{NONE_OF_B}: 16777216"),
        ((B_CELL, raw_cell(2, -(1 << 20), 5)), f"{NONE_OF_B}: -1048576"),
        ((B_CELL, raw_cell(2, (1 << 20) + 7, 5)), f"{NONE_OF_B}: 1048583"),
        ((B_CELL, raw_cell(2, 1 << 20, 5, 16)), "a marker outside 0 to 15: 16"),
        ((B_CELL, raw_cell(2, 1 << 20, 5, -1)), "a marker outside 0 to 15: -1"),
        ((A_CELL, raw_cell(3, -65536, 5)), f"{NONE_OF_A}: -65536"),
        ((A_CELL, raw_cell(3, 3, 5)), f"{NONE_OF_A}: 3"),
        ((raw_cell(2, 0, 7), raw_cell(3, 0, -1)), "negative value, stored differently in eras A and B"),
        ((raw_cell(2, 0, 40000), A_CELL), f"{NONE_OF_B}: 65536"),
    ],
    ids=range(12),
)
def test_a_cell_that_its_era_cannot_have_is_refused(tmp_path: Path, cells: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(BadBatchFile, match=reason):
        read(tmp_path, put(tmp_path, raw_tick(*cells), TickRange(0, 0)))


def test_cells_of_code_are_of_era_b_if_a_value_needs_more_than_16_bits(tmp_path: Path) -> None:
    for value in (40000, -40000):
        content = raw_tick(raw_cell(1, 0, 3), raw_cell(2, 0, -1), raw_cell(3, 0, value))
        assert era_in(content) is Era.B
        (row,) = read(tmp_path, put(tmp_path, content, TickRange(0, 0)))
        assert [one["state"] for one in row["cells"]] == [3, 0xFFFFF, value & 0xFFFFF]


@pytest.mark.parametrize("cells", [(), (raw_cell(2, 0, -1),)], ids=["no cells", "code"])
def test_an_organism_with_entropy_tells_era_b_from_a(tmp_path: Path, cells: tuple[bytes, ...]) -> None:
    living = part(4, organism(Organism(1), "B")) + part(4, organism(Organism(2, entropy=3), "B"))
    content = raw_tick(*cells, living=living)
    assert era_in(content) is Era.B
    (row,) = read(tmp_path, put(tmp_path, content, TickRange(0, 0)), ORGANISMS)
    assert [one["entropy_register"] for one in row["organisms"]] == [0, 3]
    with pytest.raises(BadBatchFile, match="an organism of era B or later, but a cell of era A"):
        read(tmp_path, put(tmp_path, raw_tick(A_CELL, living=living), TickRange(0, 0)))


def test_an_organism_with_entropy_in_a_later_tick_of_era_a_is_refused(tmp_path: Path) -> None:
    later = part(1, RUN.encode()) + number(2, 1) + part(4, organism(Organism(2, marker=3), "B"))
    with pytest.raises(BadBatchFile, match="molecule_marker_register of era B in a file of era A: 3"):
        read(tmp_path, put(tmp_path, raw_tick(A_CELL) + framed([later]), TickRange(0, 1)), ORGANISMS)


def wide_tag(number: int, content: bytes) -> bytes:
    """A field whose tag has more than 32 bits."""
    return varint(number << 3 | 2 | 1 << 32) + varint(len(content)) + content


@pytest.mark.parametrize("fields", [CELLS, ORGANISMS], ids=["cells", "organisms"])
def test_a_tag_of_more_than_32_bits_is_refused(tmp_path: Path, fields: tuple[str, ...]) -> None:
    living = part(4, organism(Organism(1), "E")) + wide_tag(4, organism(Organism(2), "E"))
    content = framed([part(1, RUN.encode()) + number(4, 1) + part(5, part(1, RUN.encode()) + living) + number(6, 1)])
    with pytest.raises(BadBatchFile, match="field 536870916 does not exist"):
        read(tmp_path, put(tmp_path, content, TickRange(0, 0)), fields)


@pytest.mark.parametrize("name", [b"other", b"x" * 5000])
def test_a_snapshot_of_another_run_than_its_chunk_is_refused(tmp_path: Path, name: bytes) -> None:
    snapshot = part(5, part(1, name) + part(4, organism(Organism(1), "E")))
    file = put(tmp_path, framed([part(1, RUN.encode()) + number(4, 1) + snapshot]), TickRange(0, 0))
    with pytest.raises(BadBatchFile, match="the snapshot belongs to run") as caught:
        read(tmp_path, file, ORGANISMS)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("message", [number(4, 1) + part(5, b""), number(2, 0, present=True)], ids=["chunk", "tick"])
def test_an_error_does_not_repeat_a_run_id_of_any_length(tmp_path: Path, message: bytes) -> None:
    file = put(tmp_path, framed([part(1, b"x" * 100_000) + message]), TickRange(0, 0))
    with pytest.raises(BadBatchFile, match="belongs to run 'xxx") as caught:
        read(tmp_path, file)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("era", "AE")
def test_a_birth_before_the_first_tick_is_refused(tmp_path: Path, era: str) -> None:
    ticks = [Tick(0, {1: (molecule(1, 1), 0)}, [Organism(1, birth=-(2**63))])]
    file = put(tmp_path, file_of(era, ticks), TickRange(0, 0))
    with pytest.raises(BadBatchFile, match="a negative birth_tick: -9223372036854775808"):
        read(tmp_path, file, ("organisms.birth_tick",))


def test_an_organism_that_detection_cannot_walk_does_not_hide_the_era(tmp_path: Path) -> None:
    group = part(4, organism(Organism(1), "G") + b"\xd3\x05\xd4\x05")
    content = framed([part(1, RUN.encode()) + number(4, 1) + part(5, part(1, RUN.encode()) + group) + number(6, 1)])
    with pytest.raises(BadBatchFile, match="field 90 has wire type 3"):
        read(tmp_path, put(tmp_path, content, TickRange(0, 0)), ORGANISMS)
