"""The native decoder never sees bytes that could crash it, and agrees with protobuf on all that it does see."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.contracts import TickData
from ticklake.errors import BadBatchFile
from ticklake.storage.delimited import frame, varint
from ticklake.storage.projection import project
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"
DEEP = 2_000_000
MUTANTS = 1500


def inside(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x7b" * DEEP,
        b"\x7b" * DEEP + b"\x7c" * DEEP,
        inside(b"\x2a", b"\x7b" * DEEP),
        inside(b"\x2a", b"\x7b" * DEEP + b"\x7c" * DEEP),
        inside(b"\x22", b"\x7b" * DEEP + b"\x7c" * DEEP),
        inside(b"\x22", inside(b"\x32", b"\x7b" * DEEP + b"\x7c" * DEEP)),
    ],
    ids=["tick", "closed tick", "cell", "closed cell", "organism", "vector"],
)
def test_groups_nested_a_million_deep_are_refused(bench: Any, bomb: bytes) -> None:
    file = bench.put(frame([bench.tick(7).SerializeToString() + bomb]), TickRange(7, 7))
    with pytest.raises(BadBatchFile, match="not a TickData"):
        bench.read(file, fields=["cells", "organisms"])


@pytest.mark.parametrize("length", [2**64 - 10, 2**64 - 1, 2**63, 2**32, 2**31])
@pytest.mark.parametrize("tag", [b"\x2a", b"\x22", b"\x22\x10\x32", b"\x7a", b"\x2a\x0b\x0a"])
def test_lengths_that_overflow_are_refused(bench: Any, tag: bytes, length: int) -> None:
    file = bench.put(frame([bench.tick(7).SerializeToString() + tag + varint(length)]), TickRange(7, 7))
    with pytest.raises(BadBatchFile, match="not a TickData"):
        bench.read(file, fields=["cells", "organisms"])


def test_a_long_cell_is_refused(bench: Any) -> None:
    tick = bench.tick(7).SerializeToString()
    for length, good in ((1000, True), (1100, False)):
        cell = inside(b"\x2a", inside(b"\x7a", bytes(length)))
        file = bench.put(frame([tick + cell]), TickRange(7, 7))
        if good:
            assert len(bench.rows(file)[0]["cells"]) == 2
        else:
            with pytest.raises(BadBatchFile, match="a cell has 1103 bytes"):
                bench.read(file)


ENVIRONMENT = frozenset({"tick_number", "simulation_run_id", "cells"})
ORGANISMS = frozenset(
    {"tick_number", "simulation_run_id", *(f"organisms.{name}" for name in (
        "organism_id", "parent_id", "birth_tick", "program_id", "energy", "ip", "is_dead"))}
)  # fmt: skip


@pytest.mark.parametrize(("fields", "tolerated"), [(ENVIRONMENT, 0.003), (ORGANISMS, 0)], ids=["cells", "organisms"])
def test_mutated_ticks_are_decoded_as_protobuf_does_or_refused(
    bench: Any, fields: frozenset[str], tolerated: float
) -> None:
    """Tolerated: malformed insides of a cell (a tag beyond 32 bit, a varint beyond 64), see docs/storage.md."""
    strict: Any = GetMessageClass(project(fields))
    rng = random.Random(7)
    original = specimen(bench).SerializeToString()
    only_ours = read = 0
    for _ in range(MUTANTS):
        mutant = mutated(original, rng)
        ours = decoded(bench, mutant, fields)
        if ours is None:
            continue
        read += 1
        try:
            theirs = strict.FromString(mutant)
        except DecodeError:
            only_ours += 1
        else:
            assert ours == as_row(theirs)
    assert read > MUTANTS / 8
    assert only_ours <= MUTANTS * tolerated


def specimen(bench: Any) -> TickData:
    tick: TickData = bench.tick(77, cells=[(place, place << 16, place - 2, place) for place in range(6)])
    for place in range(3):
        organism = tick.organisms.add(organism_id=place, birth_tick=9, program_id="äöü", energy=-5, is_dead=True)
        organism.ip.components.extend([5, -1])
        organism.data_registers.add(scalar=4)
    tick.organisms[1].parent_id = 0
    return tick


def mutated(original: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(original)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(mutant))
        change = rng.randrange(5)
        if change == 0:
            mutant[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            mutant[at] = rng.randrange(256)
        elif change == 2:
            del mutant[at : at + rng.randrange(1, 5)]
        elif change == 3:
            mutant[at:at] = rng.randbytes(rng.randrange(1, 5))
        else:
            mutant[at:at] = mutant[rng.randrange(len(mutant)) :][: rng.randrange(1, 30)]
    return bytes(mutant)


def decoded(bench: Any, mutant: bytes, fields: frozenset[str]) -> dict[str, Any] | None:
    try:
        rows = bench.rows(bench.put(frame([mutant]), TickRange(77, 77)), fields=fields)
    except BadBatchFile:
        return None
    return dict(rows[0])


def as_row(message: Any) -> dict[str, Any]:
    row = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type and field.is_repeated:
            row[field.name] = [as_row(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        elif field.message_type:
            row[field.name] = as_row(value)
        else:
            row[field.name] = list(value) if field.is_repeated else value
    return row
