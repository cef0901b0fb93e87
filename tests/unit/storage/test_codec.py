from __future__ import annotations

from typing import Any

import numpy as np
import protarrow
import pyarrow as pa
import pytest

from ticklake.contracts import FORMAT_VERSION, TickData
from ticklake.storage.codec import (
    NO_PARENT,
    CellColumns,
    EncodedTick,
    OrganismColumns,
    TickColumns,
    _groups,
    encode_ticks,
)
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"


def columns(number: int, cells: int = 3, organisms: int = 2, dimensions: int = 2) -> TickColumns:
    rng = np.random.default_rng(number)
    return TickColumns(
        number=number,
        capture_time_ms=1_700_000_000_000 + number,
        cells=CellColumns(
            flat_index=rng.permutation(1000)[:cells],
            molecule_type=rng.integers(0, 8, cells) << 16,
            molecule_value=rng.integers(-(2**15), 2**15, cells),
            owner_id=rng.integers(0, 9, cells).astype(np.int16),
        ),
        organisms=OrganismColumns(
            organism_id=np.arange(organisms),
            parent_id=np.arange(organisms) - 1,
            birth_tick=rng.integers(0, 2**40, organisms),
            energy=rng.integers(-100, 100, organisms),
            position=rng.integers(0, 10, (organisms, dimensions)),
            is_dead=rng.integers(0, 2, organisms).astype(bool),
            program_id=[f"programm-{number}-ä"] * organisms,
        ),
        rng_state=rng.bytes(number % 20),
    )


def message(tick: TickColumns) -> TickData:
    """The same tick, built object by object."""
    data = TickData(
        simulation_run_id=RUN, tick_number=tick.number, capture_time_ms=tick.capture_time_ms,
        rng_state=tick.rng_state, format_version=FORMAT_VERSION,
    )  # fmt: skip
    for name in ("flat_index", "molecule_type", "molecule_value", "owner_id"):
        for place, value in enumerate(getattr(tick.cells, name).tolist()):
            if name == "flat_index":
                data.cells.add()
            setattr(data.cells[place], name, value)
    many = tick.organisms
    for place in range(len(many)):
        one = data.organisms.add(
            organism_id=many.organism_id[place], birth_tick=many.birth_tick[place], energy=many.energy[place],
            program_id=many.program_id[place], is_dead=bool(many.is_dead[place]),
        )  # fmt: skip
        one.ip.components.extend(many.position[place].tolist())
        if many.parent_id[place] != NO_PARENT:
            one.parent_id = many.parent_id[place]
    return data


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_columns_become_the_bytes_that_protobuf_itself_would_write(dimensions: int) -> None:
    ticks = [columns(number, number * 7, number % 4, dimensions) for number in range(20)]
    assert encode_ticks(RUN, ticks) == [EncodedTick(tick.number, message(tick).SerializeToString()) for tick in ticks]


def test_ticks_without_cells_and_organisms_are_ticks() -> None:
    tick = TickColumns(7, 1, CellColumns(), OrganismColumns())
    assert encode_ticks(RUN, [tick]) == [EncodedTick(7, message(tick).SerializeToString())]
    assert encode_ticks(RUN, []) == []


def test_many_cells_are_encoded_in_several_groups() -> None:
    ticks = [columns(number, 1000) for number in range(3)]
    big = TickColumns(3, 0, CellColumns(*[np.arange(1_100_000)] * 4), OrganismColumns())
    assert [len(group) for group in _groups([*ticks, big, columns(4)])] == [4, 1]
    encoded = encode_ticks(RUN, [*ticks, big, columns(4)])
    assert [tick.number for tick in encoded] == [0, 1, 2, 3, 4]
    assert len(TickData.FromString(encoded[3].data).cells) == 1_100_000
    assert TickData.FromString(encoded[4].data) == message(columns(4))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_its_field_is_refused(value: int) -> None:
    one = np.array([1])
    with pytest.raises(pa.ArrowInvalid):
        encode_ticks(RUN, [TickColumns(0, 0, CellColumns(np.array([value]), one, one, one), OrganismColumns())])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="owner_id has 2 entries"):
        CellColumns(np.arange(3), np.arange(3), np.arange(3), np.arange(2))
    with pytest.raises(ValueError, match="is_dead has 0 entries"):
        OrganismColumns(*[np.arange(3)] * 4, position=np.zeros((3, 2), int), program_id=["x"] * 3)
    with pytest.raises(ValueError, match="column per dimension"):
        OrganismColumns(*[np.arange(3)] * 4, np.arange(3), np.zeros(3, bool), ["x"] * 3)


ALL_FIELDS = tuple(TickData.DESCRIPTOR.fields_by_name)


def full(number: int) -> TickData:
    """A tick with something in every field."""
    tick = TickData(simulation_run_id=RUN, tick_number=number, capture_time_ms=9, rng_state=b"\xff\0", format_version=1)
    for place in range(3):
        tick.cells.add(flat_index=place, molecule_type=place << 16, molecule_value=-place, owner_id=place)
        organism = tick.organisms.add(
            organism_id=place, birth_tick=-5, program_id="ä", energy=-place, active_dp_index=1, is_dead=True,
            instruction_failed=True,
        )  # fmt: skip
        organism.ip.components.extend([1, -2])
        organism.data_pointers.add().components.append(5)
        organism.data_registers.add(scalar=7)
        organism.data_registers.add().vector.components.append(8)
        organism.call_stack.add(proc_name="p").fpr_bindings[3] = 4
    tick.organisms[1].parent_id = 0
    tick.organisms[2].failure_reason = ""
    tick.strategy_states.add(strategy_type="s", state_blob=b"b")
    return tick


def test_decoding_agrees_with_another_decoder(bench: Any) -> None:
    ticks = [full(number) for number in range(3)] + [bench.tick(3, cells=())]
    table = pa.Table.from_batches(bench.read(bench.put_ticks(ticks), fields=ALL_FIELDS))
    oracle = protarrow.messages_to_table(ticks, TickData, protarrow.ProtarrowConfig())
    assert plain(table) == plain(oracle)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(sorted(row.items())) for row in table.select(sorted(table.schema.names)).to_pylist()]


def test_only_the_fields_asked_for_are_decoded(bench: Any) -> None:
    file = bench.put_ticks([full(0)])
    assert bench.rows(file, fields=[]) == [{"tick_number": 0}]
    rows = bench.rows(file, fields=["organisms.energy", "organisms.parent_id", "cells.owner_id", "capture_time_ms"])
    assert rows == [
        {
            "tick_number": 0,
            "capture_time_ms": 9,
            "organisms": [
                {"parent_id": None, "energy": 0}, {"parent_id": 0, "energy": -1}, {"parent_id": None, "energy": -2},
            ],
            "cells": [{"owner_id": 0}, {"owner_id": 1}, {"owner_id": 2}],
        }
    ]  # fmt: skip


def test_optional_fields_keep_their_nulls_when_others_are_left_out(bench: Any) -> None:
    rows = bench.rows(bench.put_ticks([full(0)]), fields=["organisms.failure_reason"])
    assert rows[0]["organisms"] == [{"failure_reason": None}, {"failure_reason": None}, {"failure_reason": ""}]


def test_a_field_and_a_part_of_it_mean_the_whole_field(bench: Any) -> None:
    file = bench.put_ticks([full(0)])
    assert bench.rows(file, fields=["cells.owner_id", "cells"]) == bench.rows(file, fields=["cells"])


@pytest.mark.parametrize(
    "path", ["nothing", "organisms.nothing", "capture_time_ms.nothing", "organisms.ip.components", ""]
)
def test_a_field_that_does_not_exist_is_named(bench: Any, path: str) -> None:
    file = bench.put_ticks([full(0)])
    with pytest.raises(ValueError, match="has no field"):
        bench.read(file, fields=[path])


def test_a_slice_gives_its_ticks_and_no_others(bench: Any) -> None:
    file = bench.storage.write_batch(RUN, bench.encoded(*range(0, 100, 10)))
    assert bench.numbers(file, ticks=TickRange(20, 45)) == [20, 30, 40]
    assert bench.numbers(file, ticks=TickRange(0, 45)) == [0, 10, 20, 30, 40]
    assert bench.numbers(file, ticks=TickRange(20, 45), skip={30}) == [20, 40]
    assert bench.numbers(file, ticks=TickRange(91, 200)) == []
    assert bench.numbers(file, ticks=TickRange(5, 4)) == []
    assert bench.numbers(file, skip=range(50, 100)) == [0, 10, 20, 30, 40]


def test_ticks_outside_the_slice_are_not_decoded(bench: Any) -> None:
    ticks = [bench.tick(number) for number in range(4)]
    for unwanted in (0, 2, 3):
        ticks[unwanted].cells[0].flat_index = -1
    file = bench.put_ticks(ticks)
    assert [row["tick_number"] for row in bench.rows(file, ticks=TickRange(1, 2), skip={2})] == [1]


def test_chunks_are_as_large_as_asked_for_and_a_larger_tick_is_one_of_its_own(bench: Any) -> None:
    small, large = [(1, 2, 3, 4)] * 10, [(1, 2, 3, 4)] * 1000
    ticks = [bench.tick(number, large if number == 5 else small) for number in range(10)]
    size = ticks[1].ByteSize()
    batches = bench.read(bench.put_ticks(ticks), chunk_bytes=2 * size)
    assert [batch.column("tick_number").to_pylist() for batch in batches] == [[0, 1], [2, 3], [4], [5], [6, 7], [8, 9]]


def test_files_of_the_original_have_no_version_and_are_read(bench: Any) -> None:
    tick = bench.tick(0)
    tick.format_version = 0
    assert bench.numbers(bench.put_ticks([tick])) == [0]


def test_fields_in_another_order_and_unknown_fields_are_read(bench: Any) -> None:
    tick = bench.tick(300)
    head = TickData(simulation_run_id=RUN, tick_number=300).SerializeToString()
    shuffled = b"\xba\x3e\x03abc" + TickData(cells=tick.cells).SerializeToString() + b"\x10\x05" + head
    file = bench.put(bytes([len(shuffled)]) + shuffled, TickRange(300, 300))
    assert bench.rows(file)[0]["cells"] == [
        {"flat_index": 1, "molecule_type": 65536, "molecule_value": 2, "owner_id": 3}
    ]
