"""Which ticks the chunks of a file have, from the beginning of each chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ticklake.errors import TickLakeError
from ticklake.storage.eras.detection import DELTAS_BEFORE, SNAPSHOT, TICK_COUNT
from ticklake.storage.eras.formats import format_of, is_chunked
from ticklake.storage.eras.wire import VARINT, BrokenWire, ByteStream, signed
from ticklake.storage.files import BatchFile, Storage
from ticklake.ticks import Grid, Stretch, TickRange, joined_stretches

_FIRST, _LAST = 2, 3
_HEAD_BYTES = 1 << 12
_CACHED = 200_000


def stretches_of(storage: Storage, file: BatchFile, step: int) -> list[Stretch]:
    """Returns the stretches of a file; every `step`-th tick of its name if its chunks do not say more.

    A file that cannot be read promises what its name says. Its reader says what is wrong.
    """
    try:
        found = _read(storage, file)
    except (TickLakeError, BrokenWire, OSError):
        found = ()
    named = [Stretch(file.ticks.start, file.ticks.end, step)]
    return joined_stretches(one._replace(step=one.step or step) for one in found) or named


def stretches_of_run(storage: Storage, files: Sequence[BatchFile], step: int) -> dict[str, list[Stretch]]:
    """Returns the stretches of each file of a run, which are in order; nothing if it has no chunks.

    A run may continue with a newer build, so the first and the last file decide.
    """
    if not any(is_chunked(_format(storage, file.key)) for file in (*files[:1], *files[-1:])):
        return {}
    return {file.key: stretches_of(storage, file, step) for file in files}


def grid_of(stretches: Iterable[Sequence[Stretch]], step: int) -> Grid:
    """Returns the ticks that a run records, given the stretches of its files."""
    return Grid(step, joined_stretches(one for chunks in stretches for one in chunks))


def _format(storage: Storage, key: str) -> str:
    """Returns the format of a file; empty if it cannot be read, which others report."""
    try:
        return format_of(storage, key)
    except (TickLakeError, OSError):
        return ""


@lru_cache(_CACHED)
def _read(storage: Storage, file: BatchFile) -> tuple[Stretch, ...]:
    """Returns a stretch for each chunk, with step 0 if it does not say its interval; none if there are no chunks.

    Cached, because the content of a file does not change.
    """
    found: list[Stretch] = []
    with storage.open(file.key) as opened:
        stream = ByteStream(opened, opened.read(_HEAD_BYTES))
        while not stream.at_end():
            length = stream.varint()
            end = stream.offset + length
            chunk = _chunk(stream, end)
            if chunk is None:
                return ()
            found.append(chunk)
            if chunk.end >= file.ticks.end:
                break
            stream.skip_to(end)
    # If it has other ticks than its name says, nothing of it is indexed.
    is_whole = bool(found) and TickRange(found[0].start, found[-1].end) == file.ticks
    return tuple(found) if is_whole else ()


def _chunk(stream: ByteStream, end: int) -> Stretch | None:
    """Reads the beginning of a chunk; all of it only if it has one tick. None if the message is no chunk."""
    values = {_FIRST: 0, _LAST: 0, TICK_COUNT: 0, DELTAS_BEFORE: 0}
    for field in stream.fields(end):
        if field.number == SNAPSHOT and values[TICK_COUNT] != 1:
            break
        if field.number in values and field.kind == VARINT:
            values[field.number] = signed(field.value)
    first, last, count = values[_FIRST], values[_LAST], values[TICK_COUNT]
    if count < 1 or not TickRange(first, last):
        return None
    step = max(0, values[DELTAS_BEFORE]) if count == 1 else (last - first) // (count - 1)
    return Stretch(first, last, step)
