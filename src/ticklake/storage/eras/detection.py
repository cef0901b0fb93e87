"""Tells from the bytes of a batch file which format of the original it has. The original writes no version.

The first field that only one format has decides. Readers refuse what contradicts it later in the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.storage.delimited import split
from ticklake.storage.eras.wire import BYTES, VARINT, BrokenWire, ByteStream, Field, fields, signed, varint
from ticklake.storage.errors import BadBatchFile, BadFile
from ticklake.storage.projection import project, with_field

SNAPSHOT, DELTAS_BEFORE, DELTAS = 5, 6, 10
TICK_COUNT = 4
_FORMAT_VERSION = 1000
_CHUNK_FIELDS = {1: BYTES, 2: VARINT, 3: VARINT, TICK_COUNT: VARINT, SNAPSHOT: BYTES, 7: BYTES, 8: BYTES, DELTAS: BYTES}
_ORGANISMS_OF_TICK, _CELLS_OF_TICK, _ORGANISMS_OF_DELTA = 4, 5, 5
REGISTERS, _REGISTERS_BEFORE_E, _REGISTERS_SINCE_E = 11, 8, 48
_DECIDES_E = 26
"""`ip_before_fetch`, a message, up to era D; `entropy_register`, a number, since E."""
_MUTATIONS = 39
_SHIFTED_TYPE = 1 << 20
"""Types are shifted by 16 bits in era A, and by 20 since B. No type of era A is so large."""
_LARGEST_OF_A = 1 << 15
"""Values have 16 bits in era A, and 20 since B."""
_LARGEST_CELL = 1024
_LARGEST_ORGANISM = 4 << 20
_MOST_NUMBERS = 8_000_000
"""So many tags, lengths and numbers are looked at. Files need a few; one made to decide nothing must not take hours."""
_RUN_ID = 1


class Era(StrEnum):
    """A format of the original. Up to C, a message is a tick. Since D, it is a chunk: a snapshot and its deltas."""

    OWN = "TickLake"
    """Written by TickLake: as era A, with a version."""
    A = "A"
    B = "B"
    C = "C"
    D = "D"
    E = "E"
    F = "F"
    G = "G"

    @property
    def has_chunks(self) -> bool:
        return self in (Era.D, Era.E, Era.F, Era.G)

    @property
    def renumbered(self) -> bool:
        """True if organisms have the numbers of 2026-03-28."""
        return self in (Era.E, Era.F, Era.G)

    @property
    def registers(self) -> int:
        """How often organisms have the field `REGISTERS`."""
        return _REGISTERS_SINCE_E if self.renumbered else _REGISTERS_BEFORE_E


_Version: Any = GetMessageClass(project(frozenset({"format_version"})))
_OF_B: Any = project(
    frozenset({"organisms.entropy_register", "organisms.molecule_marker_register"}), later=True
).fields_by_name["organisms"]
_OF_F: Any = project(
    frozenset({"organisms.generation", "organisms.parent_genome_hash"}), later=True, renumbered=True
).fields_by_name["organisms"]
_SinceB: Any = GetMessageClass(_OF_B.message_type)
_SinceF: Any = GetMessageClass(with_field(_OF_F.message_type, _MUTATIONS))


class UnknownShape(ValueError):
    """Bytes that no known format has, at an offset."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset

    def in_file(self, key: str) -> BadBatchFile:
        return BadBatchFile(key=key, offset=self.offset, tick=None, reason=self)


def era_of_file(key: str, head: bytes, reopen: Callable[[], BinaryIO]) -> Era:
    """Returns the era of a batch file as `era_of` does. Raises `BadBatchFile`."""
    try:
        return era_of(head, reopen)
    except UnknownShape as error:
        raise error.in_file(key) from error


def era_of(head: bytes, reopen: Callable[[], BinaryIO]) -> Era:
    """Returns the era of a file from its first bytes. Only if they do not decide, opens it again and reads on.

    A file that decides nothing is read as era A: it has no cells. So is one that is broken before anything is decided;
    its reader says what is wrong. Raises `UnknownShape`.
    """
    version = _version_in(head)
    if version:
        return Era.OWN
    found = _evidence_in(head)
    # The version is at the end of a tick, after the cells.
    if found.era in (None, Era.A) and not found.is_chunk and version is None and _first_version(reopen):
        return Era.OWN
    if found.era is None:
        found = _Evidence()
        with suppress(BrokenWire, BadFile), reopen() as stream:
            found.read(_Looked(stream))
    return found.conclusion()


def eras_left(head: bytes, *, whole: bool) -> list[Era]:
    """Returns the eras that a file may have by its first bytes: one, if they decide or are the `whole` file.

    Raises `UnknownShape` if there are none.
    """
    version, found = _version_in(head), _evidence_in(head)
    if version:
        return [Era.OWN]
    if whole and (found.broken or not head):
        raise UnknownShape(found.broken_at, str(found.broken or "the file is empty"))
    if found.is_chunk or whole:
        return [found.conclusion()] if found.era or whole else found.chunks_left()
    left = [found.era] if found.era else [Era.A, Era.B, Era.C]
    return left if found.era not in (None, Era.A) or version == 0 else [Era.OWN, *left]


def _version_in(head: bytes) -> int | None:
    """Returns the version of the first message, 0 if it has none; None if the message is longer or broken."""
    with suppress(BrokenWire, DecodeError):
        length, start = varint(head, 0, len(head))
        if len(head) >= start + length:
            return int(_Version.FromString(head[start : start + length]).format_version)
    return None


def _evidence_in(head: bytes) -> _Evidence:
    found, stream = _Evidence(), _Looked(io.BytesIO(), head)
    try:
        found.read(stream)
    except BrokenWire as error:
        found.broken, found.broken_at = error, stream.offset
    return found


def _first_version(reopen: Callable[[], BinaryIO]) -> int:
    """Returns the version in the first message, which may be longer than the bytes that were read."""
    with suppress(BadFile, DecodeError), reopen() as stream:
        for _, messages in split(stream, ""):
            return int(_Version.FromString(messages[0]).format_version)
    return 0


class _Looked(ByteStream):
    """A stream of which only so much is looked at."""

    _numbers = 0

    def varint(self) -> int:
        self._numbers += 1
        if self._numbers > _MOST_NUMBERS:
            raise UnknownShape(self.offset, f"nothing in its first {self.offset} bytes decides its format")
        return super().varint()


class _Evidence:
    """What the fields read so far say about the era."""

    def __init__(self) -> None:
        self.era: Era | None = None
        self.is_chunk = False
        self._empty_cells: int | None = None
        self._negative: int | None = None
        """Where a cell of code with a negative value is."""
        self._since_b = False
        """Whether an organism has a register that began with era B."""
        self._registers: bool | None = None
        """Whether the first organism has the numbers since era E."""
        self._deltas: int | None = None
        self._since_f = False
        self._count = 0
        self.broken: BrokenWire | None = None
        """What is wrong at the byte `broken_at`, if the bytes read are not all of the file's."""
        self.broken_at = 0

    def read(self, stream: ByteStream) -> None:
        """Reads messages until the era is known."""
        while self.era is None and not stream.at_end():
            end = stream.varint()
            end += stream.offset
            self._read_message(stream, end)
            stream.skip_to(end)

    def conclusion(self) -> Era:
        if self.era is not None:
            return self.era
        if not self.is_chunk:
            if self._empty_cells is not None:
                raise UnknownShape(
                    self._empty_cells,
                    "field 5 of its ticks is always empty, which is a cell in era A and no cells in era C",
                )
            if self._since_b:  # or C, if it has no cells: then both have the same rows
                return Era.B
            if self._negative is not None:
                raise UnknownShape(
                    self._negative,
                    "a cell has a negative value, stored differently in eras A and B, but nothing tells which it is",
                )
            return Era.A
        # Without organisms, the eras that are left have the same rows. With founders only, E and F differ in their
        # generation: 0 in F, and unknown in E.
        if self._registers is False:
            return Era.D
        return Era.F if self._deltas is None and self._since_f else Era.E

    def chunks_left(self) -> list[Era]:
        """Returns the eras of chunks that are possible so far."""
        if self._registers is False:
            return [Era.D]
        later = [Era.F, Era.G] if self._since_f else [Era.E, Era.F, Era.G]
        return later if self._registers else [Era.D, *later]

    def _read_message(self, stream: ByteStream, end: int) -> None:
        cells: Era | None = None
        start, run_id = stream.offset, False
        for field in stream.fields(end):
            run_id = run_id or field.number == _RUN_ID
            if self.is_chunk or (field.number == TICK_COUNT and field.kind == VARINT):
                self.is_chunk = True
                self._add_of_chunk(stream, field)
                if self.era:
                    return
            elif field.number == _CELLS_OF_TICK and field.kind == BYTES and cells is None:
                cells = self._era_of_cells(stream, field)
                if cells is Era.A:  # files of TickLake are read in the same way
                    if self._since_b:
                        raise UnknownShape(field.start, "it has an organism of era B or later, but a cell of era A")
                    self.era = Era.A
                    return
            elif field.number == _ORGANISMS_OF_TICK and field.kind == BYTES and not self._since_b:
                length = field.end - field.start
                self._since_b = length <= _LARGEST_ORGANISM and _has(_SinceB, stream.take(length))
            elif field.number == _FORMAT_VERSION and field.value:
                # Whatever the types of its cells are.
                self.era = Era.OWN
                return
        if not run_id:
            raise UnknownShape(start, "a message has no run id, as in no known era")
        self.era = self.era or cells

    def _era_of_cells(self, stream: ByteStream, field: Field) -> Era | None:
        if field.start == field.end:
            self._empty_cells = field.start
            return None
        cell = stream.take(min(field.end - field.start, _LARGEST_CELL))
        if cell[0] & 7 == BYTES:
            return Era.C
        with suppress(BrokenWire):
            for part in fields(cell):
                if part.number == 5 or (part.number == 2 and signed(part.value) >= _SHIFTED_TYPE):
                    return Era.B
                if part.number == 2 and part.value:
                    return Era.A
                if part.number == 3 and not -_LARGEST_OF_A <= signed(part.value) < _LARGEST_OF_A:
                    return Era.B
                if part.number == 3 and signed(part.value) < 0:
                    self._negative = field.start
        return None

    def _add_of_chunk(self, stream: ByteStream, field: Field) -> None:
        if field.number == DELTAS_BEFORE and field.kind == VARINT:
            self.era = Era.G
        elif field.number == DELTAS:
            self.era = Era.F
        elif field.number == TICK_COUNT:
            self._count = field.value
        elif field.number == SNAPSHOT:
            self._look_for_organisms(stream, field, _ORGANISMS_OF_TICK)
        elif field.number == DELTAS_BEFORE:
            self._deltas = DELTAS_BEFORE
            self._look_for_organisms(stream, field, _ORGANISMS_OF_DELTA)
            if self._registers is not None:
                self.era = Era.E if self._registers else Era.D

    def _look_for_organisms(self, stream: ByteStream, recording: Field, number: int) -> None:
        for field in stream.fields(recording.end):
            # If no delta follows that decides, any organism but a founder does.
            if self._registers is not None and (self._since_f or self._count > 1 or not self._registers):
                return
            if field.number == number and field.kind == BYTES:
                organism = organism_at(stream, field)
                if self._registers is None:
                    self._registers = is_renumbered(organism, field.start)
                self._since_f = _has(_SinceF, organism)


def _has(kind: Any, organism: bytes) -> bool:
    """Returns whether an organism has any of the fields of this message. A broken one has none: its reader says so."""
    with suppress(DecodeError):
        return bool(kind.FromString(organism).ListFields())
    return False


def check_chunk_field(field: Field) -> None:
    """Raises `UnknownShape` if no era has this field in a chunk."""
    kinds = (BYTES, VARINT) if field.number == DELTAS_BEFORE else (_CHUNK_FIELDS.get(field.number),)
    if field.kind not in kinds:
        raise UnknownShape(
            field.start, f"a chunk has field {field.number} of wire type {field.kind}, as in no known era"
        )


def organism_at(stream: ByteStream, field: Field) -> bytes:
    """Returns the bytes of an organism. Raises `UnknownShape` if there are far more than organisms have."""
    length = field.end - field.start
    if length > _LARGEST_ORGANISM:
        raise UnknownShape(field.start, f"an organism of {length} bytes is longer than the {_LARGEST_ORGANISM} allowed")
    return stream.take(length)


def is_renumbered(organism: bytes, offset: int) -> bool:
    """Returns whether an organism has the numbers since era E. Raises `UnknownShape` if it fits neither numbering."""
    registers, kinds = 0, set()
    for part in fields(organism):
        if part.number == REGISTERS:
            registers += 1
        elif part.number == _DECIDES_E:
            kinds.add(part.kind)
    since_e = registers == _REGISTERS_SINCE_E or (registers != _REGISTERS_BEFORE_E and kinds == {VARINT})
    before_e = registers == _REGISTERS_BEFORE_E or (registers != _REGISTERS_SINCE_E and kinds == {BYTES})
    contradicted = kinds - {VARINT if since_e else BYTES}
    if since_e == before_e or contradicted:
        text = f"an organism has {registers} registers in field {REGISTERS} and wire types {sorted(kinds)} in field"
        raise UnknownShape(offset, f"{text} {_DECIDES_E}, as in no known era")
    return since_e
