"""Files as each era of the original wrote them, made from its contract, not by our code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RUN = "20260301-12000000-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"

Cells = Mapping[int, tuple[int, int]]
"""Molecule and owner of each occupied cell. A molecule has 20 bits of value, 8 of type, 4 of marker."""


@dataclass
class Mutation:
    plugin: str
    kind: str
    cells: Sequence[int] = ()
    old: Sequence[int] = ()
    new: Sequence[int] = ()
    dv: Sequence[int] = ()


@dataclass
class Organism:
    id: int
    parent: int | None = None
    birth: int = 0
    energy: int = 5
    ip: tuple[int, ...] = (1, 2)
    is_dead: bool = False
    death: int | None = None
    entropy: int = 0
    marker: int = 0
    genome: int = 0
    opcode: int | None = None
    failure: str | None = None
    generation: int = 0
    program: str = "p"
    parent_genome: int = 77
    mutations: Sequence[Mutation] = ()


@dataclass
class Tick:
    number: int
    cells: Cells
    organisms: Sequence[Organism] = ()
    created: int = 0
    genomes: int = 0


@dataclass
class Chunk:
    """A chunk before it is encoded, so that tests can spoil it."""

    era: str
    ticks: Sequence[Tick]
    accumulated: int = 3
    changes: dict[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        first, last = self.ticks[0], self.ticks[-1]
        deltas, kinds = [], []
        touched: set[int] = set()
        for place, tick in enumerate(self.ticks[1:], 1):
            kind = 2 if place % self.accumulated == 0 else 1
            before = self.ticks[place - 1].cells
            now = {cell for cell in {*before, *tick.cells} if before.get(cell) != tick.cells.get(cell)}
            touched |= now
            changed = {cell: tick.cells.get(cell, (0, 0)) for cell in (touched if kind == 2 else now)}
            kinds.append(kind)
            deltas.append(
                number(1, tick.number) + number(2, 7) + number(3, kind) + part(4, columns(changed))
                + b"".join(part(5, organism(one, self.era)) for one in tick.organisms)
                + number(6, tick.created) + number(9, tick.genomes)
            )  # fmt: skip
        message = part(1, RUN.encode()) + number(2, first.number) + number(3, last.number)
        message += number(4, self.changes.get("count", len(self.ticks))) + part(5, tick_data(first, self.era))
        if self.era in "DE":
            return message + b"".join(part(6, delta) for delta in deltas)
        named = self.ticks[1].number - first.number if len(self.ticks) > 1 else 1
        message += number(6, self.changes.get("interval", named)) if self.era == "G" else b""
        message += packed(7, self.changes.get("ticks", [tick.number for tick in self.ticks[1:]])) + packed(8, kinds)
        return message + b"".join(part(10, delta) for delta in deltas)


def file_of(era: str, ticks: Sequence[Tick], chunk: int = 5) -> bytes:
    """The content of a batch file."""
    if era in "ABC":
        return framed(tick_data(tick, era) for tick in ticks)
    changes = {"interval": ticks[1].number - ticks[0].number} if len(ticks) > 1 else {}
    parts = [ticks[start : start + chunk] for start in range(0, len(ticks), chunk)]
    return framed(Chunk(era, part, changes=changes).encoded() for part in parts)


def metadata(era: str, shape: Sequence[int] = (10, 10), step: int = 1, fork: tuple[int, int] | None = None) -> bytes:
    """The content of a metadata file: the numbering changed within era D."""
    head = part(1, RUN.encode()) + number(3, 42)
    if era in "ABCD":
        environment = number(1, len(shape)) + packed(2, shape) + packed(3, [1] * len(shape))
        return framed([head + part(4, environment) + number(10, step)])
    config: dict[str, Any] = {"environment": {"shape": list(shape), "topology": "TORUS"}, "samplingInterval": step}
    config["runtime"] = {"organism": {"max-entropy": 10000}}
    origin = b"" if fork is None else part(7, part(1, b"parent") + number(2, fork[0]) + number(3, fork[1]))
    return framed([head + part(5, json.dumps(config).encode()) + origin])


def tick_data(tick: Tick, era: str) -> bytes:
    head = part(1, RUN.encode()) + number(2, tick.number) + number(3, 7)
    head += b"".join(part(4, organism(one, era)) for one in tick.organisms)
    if era in "AB":
        cells = b"".join(part(5, cell(flat, *content, era)) for flat, content in sorted(tick.cells.items())[::-1])
    else:
        cells = part(5, columns(tick.cells))
    return head + cells + part(6, b"random") + number(8, tick.created) + number(9, tick.genomes)


def cell(flat: int, molecule: int, owner: int, era: str) -> bytes:
    kind, value = molecule >> 20 & 0xFF, (molecule & 0xFFFFF ^ 0x80000) - 0x80000
    marker = number(5, molecule >> 28 & 0xF) if era == "B" else b""
    return (
        number(1, flat) + number(2, kind << (20 if era == "B" else 16)) + number(3, value) + number(4, owner) + marker
    )


def columns(cells: Cells) -> bytes:
    ordered = sorted(cells.items())
    return (
        packed(1, [flat for flat, _ in ordered])
        + packed(2, [molecule - (1 << 32 if molecule >> 31 else 0) for _, (molecule, _) in ordered])
        + packed(3, [owner for _, (_, owner) in ordered])
    )


def organism(one: Organism, era: str) -> bytes:
    new = era in "EFG"
    names = ("dead", "failed", "reason", "opcode", "cost", "entropy", "marker", "genome", "death")
    numbers = (15, 16, 17, 19, 21, 26, 27, 28, 29) if new else (18, 19, 20, 22, 24, 29, 30, 31, 32)
    at = dict(zip(names, numbers, strict=True))
    data = number(1, one.id) + (b"" if one.parent is None else number(2, one.parent, present=True))
    data += number(3, one.birth) + part(4, one.program.encode()) + number(5, one.energy)
    data += part(6, packed(1, one.ip)) + part(7, packed(1, (3, 4)))
    data += b"".join(part(11, number(1, 9)) for _ in range(48 if new else 8))
    data += number(at["dead"], one.is_dead) + number(at["failed"], one.failure is not None)
    data += b"" if one.failure is None else part(at["reason"], one.failure.encode())
    if one.opcode is not None and era != "A":
        data += number(at["opcode"], one.opcode, present=True) + number(at["cost"], 3, present=True)
    if era != "A":
        data += number(at["entropy"], one.entropy) + number(at["marker"], one.marker)
    if era in "DEFG":
        data += number(at["genome"], one.genome)
        data += b"" if one.death is None else number(at["death"], one.death, present=True)
    if era in "FG":
        data += number(37, one.generation)
        data += b"" if one.parent is None else number(38, one.parent_genome, present=True)
        data += b"".join(part(39, mutation(event)) for event in one.mutations)
    return data


def mutation(event: Mutation) -> bytes:
    data = part(1, event.plugin.encode()) + part(2, event.kind.encode()) + packed(3, event.cells)
    data += packed(4, event.old) + packed(5, event.new) + packed(6, [12])
    return data + packed(7, [step << 1 ^ step >> 63 for step in event.dv])


def framed(messages: Any) -> bytes:
    return b"".join(varint(len(message)) + message for message in messages)


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def packed(number: int, values: Sequence[int]) -> bytes:
    return part(number, b"".join(map(varint, values))) if values else b""


def number(number: int, value: int, present: bool = False) -> bytes:
    return varint(number << 3) + varint(value) if value or present else b""


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))
