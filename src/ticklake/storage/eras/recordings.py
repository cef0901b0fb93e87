"""Reads chunks: walks into each one, recording by recording, and never holds a whole chunk."""

from __future__ import annotations

import io
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ticklake.storage.delimited import MAX_MESSAGE_BYTES
from ticklake.storage.eras.detection import (
    DELTAS,
    DELTAS_BEFORE,
    SNAPSHOT,
    TICK_COUNT,
    Era,
    UnknownShape,
    check_chunk_field,
    is_renumbered,
    organism_at,
)
from ticklake.storage.eras.molecules import Cells, State, cells_of, delta_in
from ticklake.storage.eras.wire import BYTES, VARINT, ByteStream, Field, signed, varint
from ticklake.storage.errors import BadBatchFile, BadFile
from ticklake.storage.files import BatchFile
from ticklake.storage.names import is_compressed
from ticklake.ticks import TickRange
from ticklake.world import MAX_CELLS, World

_RUN_ID, _FIRST, _LAST, _DELTA_TICKS, _DELTA_TYPES = 1, 2, 3, 7, 8
_INCREMENTAL, _ACCUMULATED = 1, 2
_MOST_HELD_BYTES = 32 << 20
_MOST_LISTED_BYTES = 1 << 20
_LONGEST_RUN_ID = 201
"""One more than is allowed."""
_OVERHEAD_BYTES = 64
"""About what an organism or a delta takes in memory beside its bytes."""


class Layout(NamedTuple):
    """The numbers of the fields of a recording."""

    name: str
    tick: int
    time: int
    kind: int | None
    cells: int
    organisms: int
    created: int
    genomes: int
    run_id: int | None = None

    def number_at(self, number: int) -> str | None:
        """Returns the name of a number of a recording."""
        names = {self.time: "time", self.kind: "kind", self.created: "created", self.genomes: "genomes"}
        return names.get(number)

    def is_unfit(self, part: Field) -> bool:
        """Returns whether a field has another wire type than it should have."""
        if part.number in (self.cells, self.organisms, self.run_id):
            return part.kind != BYTES
        return part.number in (self.tick, self.time, self.kind, self.created, self.genomes) and part.kind != VARINT


_OF_SNAPSHOT = Layout("snapshot", tick=2, time=3, kind=None, cells=5, organisms=4, created=8, genomes=9, run_id=1)
_OF_DELTA = Layout("delta", tick=1, time=2, kind=3, cells=4, organisms=5, created=6, genomes=9)


class Wanted(NamedTuple):
    """What to decode of each recording."""

    cells: bool
    organisms: bool
    changes: bool
    snapshots: bool

    def cells_of(self, layout: Layout) -> bool:
        """Returns whether to decode the cells that a recording lists."""
        return self.cells or self.changes or (self.snapshots and layout is _OF_SNAPSHOT)


@dataclass
class Recording:
    """One recorded tick: its cells as far as they are wanted, and its organisms as bytes."""

    offset: int
    tick: int = 0
    time: int = 0
    kind: int = 0
    interval: int | None = None
    """The number of ticks since the recording before, if it is known."""
    since: int | None = None
    """The recording before it in its chunk; None for a snapshot, which is complete."""
    cells: Cells = field(default_factory=Cells)
    changes: Cells = field(default_factory=Cells)
    """The cells that differ from those of the recording before; of a snapshot all."""
    organisms: list[bytes] = field(default_factory=list)
    created: int | None = None
    genomes: int | None = None
    """The totals of the run so far. One that is 0, or that the build does not know, is not written."""
    bytes_of_organisms: int = 0

    def size(self) -> int:
        """Returns about how many bytes it has in memory."""
        return 1 + 12 * (len(self.cells.flat) + len(self.changes.flat)) + self.bytes_of_organisms

    def add_organism(self, organism: bytes) -> None:
        """Adds an organism. Raises ValueError if all of them are more than a tick may have."""
        self.organisms.append(organism)
        self.bytes_of_organisms += len(organism) + _OVERHEAD_BYTES
        if self.bytes_of_organisms > MAX_MESSAGE_BYTES:
            raise ValueError(f"a recording has organisms of more than {MAX_MESSAGE_BYTES} bytes")

    @property
    def snapshots(self) -> Cells:
        return self.changes if self.since is None else Cells()


class _Delta(NamedTuple):
    """A delta that is not applied yet: where it is, and its cells, decoded or not."""

    offset: int
    tick: int
    kind: int
    cells: Cells | bytes

    def size(self) -> int:
        return _OVERHEAD_BYTES + (len(self.cells) if isinstance(self.cells, bytes) else 12 * len(self.cells.flat))


class _Chunk:
    """The state of one chunk while it is read."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.run_id = ""
        self.first = self.last = self.count = 0
        self.snapshot: Recording | None = None
        self.world: State | None = None
        self.held: list[_Delta] = []
        """The deltas that lead from the state of the world to the last recording."""
        self.held_bytes = 0
        self.ticks: list[int] = []
        self.kinds: list[int] = []
        self.listed: dict[int, list[int]] = {}
        """The ticks and kinds of the deltas, as listed in the chunk since era F."""
        self.named: int | None = None
        """The sampling interval that it names, since era G. It comes after the snapshot."""

    def drop_held(self) -> None:
        self.held.clear()
        self.held_bytes = 0

    def add_listed(self, stream: ByteStream, part: Field) -> None:
        """Adds the ticks or kinds of deltas. Raises ValueError if they are more than it says that it has."""
        values, length = self.listed.setdefault(part.number, []), part.end - part.start
        if length <= _MOST_LISTED_BYTES:
            values.extend(_packed(stream.take(length)))
        if length > _MOST_LISTED_BYTES or len(values) >= min(self.count, _MOST_LISTED_BYTES):
            raise ValueError(f"field {part.number} of a chunk lists more deltas than {self.count} ticks can have")

    def interval(self) -> int | None:
        """Returns the sampling interval: what its first, last and number of ticks imply, or what it names."""
        return self.named if self.count < 2 else (self.last - self.first) // (self.count - 1)

    def check_interval(self, of_run: int | None) -> None:
        """Raises ValueError if it does not have every n-th tick of its run, or names another n."""
        step = self.interval() or of_run or 1
        if self.first % step or [*range(self.first + step, self.last + 1, step)] != self.ticks:
            ticks = f"a chunk of {self.count} ticks from {self.first} to {self.last}"
            raise ValueError(f"{ticks} does not have every n-th tick, counted from 0; by the metadata, n is {of_run}")
        if self.named is not None and (self.named != step or step < 0):
            raise ValueError(f"a chunk names the sampling interval {self.named}, but its ticks have {step}")


class ChunkReader:
    """Reads the recordings of one slice. The slice is valid only if `recordings` ends without an error.

    An accumulated delta replaces all deltas before it, also those in the slice. So the rows of a tick never depend on
    the slice. Of the deltas before a slice, only the last accumulated one and those after it are decoded.
    """

    def __init__(
        self,
        file: BatchFile,
        ticks: TickRange | None,
        skip: Container[int],
        era: Era,
        wanted: Wanted,
        world: World | None = None,
    ) -> None:
        self._file, self._era, self._wanted = file, era, wanted
        self._ticks = file.ticks if ticks is None else ticks
        self._skip = skip
        self._size = world.cells if world else MAX_CELLS
        self._interval = world.sampling_interval if world else None
        self._last: int | None = None
        self._tick: int | None = None
        self._offset = 0

    def recordings(self, stream: ByteStream) -> Iterator[Recording]:
        """Yields the wanted recordings. Raises `BadBatchFile` with the byte and the tick of what is wrong."""
        try:
            while not stream.at_end():
                self._offset = stream.offset
                length = stream.varint()
                chunk = _Chunk(stream.offset + length)
                yield from self._read(stream, chunk)
                if self._ticks.end <= chunk.last < self._file.ticks.end:
                    break
            else:
                self._check_end()
            if is_compressed(self._file.key):
                stream.drain()
        except UnknownShape as error:
            raise self._bad(str(error), error.offset) from error
        except BadBatchFile:
            raise
        except BadFile as error:
            raise self._bad(str(error.reason), error.offset) from error
        except ValueError as error:
            raise self._bad(str(error)) from error

    def _read(self, stream: ByteStream, chunk: _Chunk) -> Iterator[Recording]:
        alone: list[Recording] = []
        for part in stream.fields(chunk.end):
            if chunk.snapshot is not None and chunk.snapshot.tick >= self._ticks.end < chunk.last:
                stream.skip_to(chunk.end)
                break
            check_chunk_field(part)
            if part.number < SNAPSHOT:
                self._add_head(stream, chunk, part)
            elif part.number == SNAPSHOT:
                self._begin(chunk)
                if chunk.last < self._ticks.start or chunk.first > self._ticks.end:
                    stream.skip_to(chunk.end)
                    break
                recorded = self._record(stream, chunk, part, _OF_SNAPSHOT)
                if chunk.count > 1:
                    yield from recorded
                else:
                    alone += recorded  # its interval comes after it
            elif part.number == DELTAS or (part.number == DELTAS_BEFORE and part.kind == BYTES):
                self._check_delta(chunk, part)
                yield from self._record(stream, chunk, part, _OF_DELTA)
            elif part.number == DELTAS_BEFORE:
                chunk.named = signed(part.value)
            elif part.number in (_DELTA_TICKS, _DELTA_TYPES):
                chunk.add_listed(stream, part)
        else:
            self._finish(chunk)
        for one in alone:
            one.interval = chunk.interval() or self._interval
            yield one
        self._last = chunk.last

    def _add_head(self, stream: ByteStream, chunk: _Chunk, part: Field) -> None:
        if chunk.snapshot is not None:
            raise ValueError(f"field {part.number} of a chunk comes after its snapshot")
        if part.number == _RUN_ID:
            chunk.run_id = _run_id(stream, part)
        elif part.number == _FIRST:
            chunk.first = signed(part.value)
        elif part.number == _LAST:
            chunk.last = signed(part.value)
        elif part.number == TICK_COUNT:
            chunk.count = signed(part.value)

    def _begin(self, chunk: _Chunk) -> None:
        """Checks what a chunk says of itself, before its snapshot."""
        if chunk.snapshot is not None:
            raise ValueError("a chunk has two snapshots")
        self._tick, name = chunk.first, self._file.ticks
        if chunk.run_id != self._file.run_id:
            raise ValueError(f"the chunk belongs to run {chunk.run_id!r}")
        if chunk.count == 0:
            raise ValueError("the message is no chunk of ticks, but those before it are")
        if not 0 <= chunk.first <= chunk.last or chunk.count < 1:
            raise ValueError(f"a chunk of {chunk.count} ticks from {chunk.first} to {chunk.last} is impossible")
        if chunk.first not in name or chunk.last not in name:
            raise ValueError(f"the chunk has ticks {chunk.first} to {chunk.last}, outside {name}, the file's name")
        if self._last is None and chunk.first != name.start:
            raise ValueError(f"the file starts with this tick, but its name says {name.start}")
        if self._last is not None and chunk.first <= self._last:
            raise ValueError(f"chunks must ascend, but tick {self._last} is before it")

    def _check_delta(self, chunk: _Chunk, part: Field) -> None:
        if chunk.snapshot is None:
            raise ValueError("a delta comes before the snapshot of its chunk")
        if (part.number == DELTAS) != (self._era in (Era.F, Era.G)):
            raise ValueError(f"a delta is in field {part.number}, but the file has the format of era {self._era}")

    def _record(self, stream: ByteStream, chunk: _Chunk, part: Field, layout: Layout) -> Iterator[Recording]:
        """Reads a recording and applies its cells. Yields it if it is wanted."""
        self._offset = part.start
        since = chunk.snapshot.tick if chunk.snapshot is not None else None
        found = Recording(part.start, interval=chunk.interval() or self._interval, since=since)
        content = self._read_content(stream, part, found, layout)
        self._add(chunk, found, layout)
        self._apply(chunk, content, found)
        # All are checked when they are decoded, but this also refuses what detection could not walk.
        if found.organisms and is_renumbered(found.organisms[0], part.start) != self._era.renumbered:
            raise ValueError(f"an organism has other field numbers than those of era {self._era}")
        chunk.snapshot = found
        if self._is_wanted(found.tick):
            yield found

    def _apply(self, chunk: _Chunk, content: Cells | bytes, found: Recording) -> None:
        """Applies the cells that a recording lists, now or if they are needed, and keeps what is wanted of them."""
        wanted, is_wanted = self._wanted, self._is_wanted(found.tick)
        if found.since is None:
            assert isinstance(content, Cells)  # noqa: S101  a snapshot is decoded at once
            found.changes = content.occupied() if is_wanted and (wanted.changes or wanted.snapshots) else Cells()
            if wanted.cells or wanted.changes:
                chunk.world = State(content, self._size, tracks=wanted.changes)
        elif chunk.world is not None:
            restarts = found.kind == _ACCUMULATED
            if is_wanted and wanted.changes and isinstance(content, Cells):
                self._catch_up(chunk, chunk.world)
                found.changes = chunk.world.differing(content, restarts=restarts)
            elif restarts:
                chunk.drop_held()
            chunk.held.append(_Delta(found.offset, found.tick, found.kind, content))
            chunk.held_bytes += chunk.held[-1].size()
            if is_wanted or chunk.held_bytes > _MOST_HELD_BYTES:
                self._catch_up(chunk, chunk.world)
        if chunk.world is not None and is_wanted and wanted.cells:
            found.cells = chunk.world.cells()

    def _catch_up(self, chunk: _Chunk, world: State) -> None:
        """Applies the deltas that were not needed until now."""
        for self._offset, self._tick, kind, cells in chunk.held:
            delta = delta_in(cells, self._size) if isinstance(cells, bytes) else cells
            (world.restart if kind == _ACCUMULATED else world.apply)(delta)
        chunk.drop_held()

    def _cells(self, stream: ByteStream, part: Field, found: Recording, layout: Layout) -> Cells | bytes:
        """Returns the cells of a recording, decoded only if that is necessary or if they are large."""
        if not self._wanted.cells_of(layout):
            return Cells()
        if layout is _OF_DELTA and not self._is_wanted(found.tick) and part.end - part.start <= _MOST_HELD_BYTES:
            return stream.take(part.end - part.start)
        return cells_of(stream, part.end, self._size)

    def _read_content(self, stream: ByteStream, part: Field, found: Recording, layout: Layout) -> Cells | bytes:
        """Reads the fields of a recording. Returns the cells that it lists, if they are wanted."""
        cells: list[Cells | bytes] = []
        begun = False
        for inner in stream.fields(part.end):
            if layout.is_unfit(inner):
                raise ValueError(f"field {inner.number} of a {layout.name} has wire type {inner.kind}")
            if inner.number == layout.tick:
                if begun:
                    raise ValueError(f"the tick of a {layout.name} comes after its cells or organisms")
                found.tick = self._tick = signed(inner.value)
            elif inner.number == layout.cells:
                begun = True
                if cells:
                    raise ValueError(f"a {layout.name} has its cells twice")
                cells.append(self._cells(stream, inner, found, layout))
            elif inner.number == layout.organisms:
                begun = True
                if self._wanted.organisms and self._is_wanted(found.tick):
                    found.add_organism(organism_at(stream, inner))
            elif inner.number == layout.run_id:
                self._check_run(_run_id(stream, inner), layout)
            elif name := layout.number_at(inner.number):
                setattr(found, name, signed(inner.value))
        return cells[0] if cells else Cells()

    def _check_run(self, run_id: str, layout: Layout) -> None:
        if run_id != self._file.run_id:
            raise ValueError(f"the {layout.name} belongs to run {run_id!r}")

    def _add(self, chunk: _Chunk, found: Recording, layout: Layout) -> None:
        """Checks the place of a recording in its chunk."""
        self._tick = found.tick
        if layout is _OF_SNAPSHOT:
            if found.tick != chunk.first:
                raise ValueError(f"the snapshot of a chunk has this tick, but the chunk says {chunk.first}")
            return
        if found.kind not in (_INCREMENTAL, _ACCUMULATED):
            raise ValueError(f"delta type {found.kind} is unknown")
        before = chunk.ticks[-1] if chunk.ticks else chunk.first
        if found.tick <= before:
            raise ValueError(f"ticks must ascend, but tick {before} is before it")
        if found.tick > chunk.last:
            raise ValueError(f"the tick is outside its chunk, which ends with {chunk.last}")
        chunk.ticks.append(found.tick)
        chunk.kinds.append(found.kind)

    def _finish(self, chunk: _Chunk) -> None:
        """Compares a chunk that was read to its end with what it says of itself."""
        if chunk.snapshot is None:
            raise ValueError("a chunk has no snapshot")
        if chunk.count != 1 + len(chunk.ticks):
            raise ValueError(f"a chunk says that it has {chunk.count} ticks, but has {1 + len(chunk.ticks)}")
        if chunk.snapshot.tick != chunk.last:
            raise ValueError(f"a chunk ends with this tick, but says {chunk.last}")
        chunk.check_interval(self._interval)
        for number, values in ((_DELTA_TICKS, chunk.ticks), (_DELTA_TYPES, chunk.kinds)):
            if chunk.listed.get(number, values) != values:
                raise ValueError(f"field {number} of a chunk lists other deltas than it has")

    def _check_end(self) -> None:
        if self._last != self._file.ticks.end:
            raise ValueError(f"the file ends after this tick, but its name says tick {self._file.ticks.end}")

    def _is_wanted(self, tick: int) -> bool:
        return tick in self._ticks and tick not in self._skip

    def _bad(self, reason: str, offset: int | None = None) -> BadBatchFile:
        at = self._offset if offset is None else offset
        return BadBatchFile(key=self._file.key, offset=at, tick=self._tick, reason=reason)


def first_chunk_length(head: bytes) -> int:
    """Returns the number of recordings of the first chunk, from the first bytes of a file; 1 if it has no chunks."""
    stream = ByteStream(io.BytesIO(), head)
    end = stream.varint()
    for part in stream.fields(end + stream.offset):
        if part.number >= TICK_COUNT:
            return part.value if (part.number, part.kind) == (TICK_COUNT, VARINT) else 1
    return 1


def _run_id(stream: ByteStream, part: Field) -> str:
    """Returns a run id. What is too long for one is cut off, and still differs from any."""
    return stream.take(min(part.end - part.start, _LONGEST_RUN_ID)).decode(errors="replace")


def _packed(content: bytes) -> list[int]:
    values, at = [], 0
    while at < len(content):
        value, at = varint(content, at, len(content))
        values.append(signed(value))
    return values
