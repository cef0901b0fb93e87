"""A slice: the ticks of one batch file that somebody wants, checked against what the file's name promises."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, BinaryIO, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.contracts import FORMAT_VERSION
from ticklake.errors import BadBatchFile, BadFile
from ticklake.storage.delimited import BLOCK_BYTES, split
from ticklake.storage.files import BatchFile
from ticklake.storage.names import is_compressed
from ticklake.storage.projection import project
from ticklake.ticks import TickRange

# Protobuf's own parser reads these and walks over all else: it also refuses a tick whose outer structure is broken.
_Head = GetMessageClass(project(frozenset({"simulation_run_id", "tick_number", "format_version"})))


class Chunk(NamedTuple):
    """Some ticks of a slice: their numbers, where each starts in the file, their bytes."""

    numbers: list[int]
    offsets: list[int]
    data: list[bytes]


class SliceReader:
    """Reads one slice, chunk by chunk. It is good once `chunks` has ended without an error, not before."""

    def __init__(self, file: BatchFile, ticks: TickRange | None, skip: Container[int]) -> None:
        self._file = file
        self._ticks = file.ticks if ticks is None else ticks
        self._skip = skip
        self._last: int | None = None

    def chunks(self, stream: BinaryIO, chunk_bytes: int) -> Iterator[Chunk]:
        """The wanted ticks in chunks of about `chunk_bytes`; a larger tick is a chunk of its own."""
        chunk, size = Chunk([], [], []), 0
        try:
            for number, offset, data in self._wanted(stream):
                if size and size + len(data) > chunk_bytes:
                    yield chunk
                    chunk, size = Chunk([], [], []), 0
                chunk.numbers.append(number)
                chunk.offsets.append(offset)
                chunk.data.append(data)
                size += len(data)
        except BadBatchFile:
            raise
        except BadFile as error:
            raise self._bad(error.offset, self._last, error.reason) from error
        if size:
            yield chunk

    def _wanted(self, stream: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
        first, last = self._ticks
        offset = 0
        for offset, data in split(stream, self._file.key):
            number = self._number(offset, data)
            if number > last:
                self._finish(stream)
                return
            if number >= first and number not in self._skip:
                yield number, offset, data
        if self._last != self._file.ticks.end:
            raise self._bad(offset, self._last, f"the file ends here, its name promises tick {self._file.ticks.end}")

    def _number(self, offset: int, data: bytes) -> int:
        """The number of the next tick, which must fit this file and follow the one before."""
        try:
            head: Any = _Head.FromString(data)
        except DecodeError as error:
            raise self._bad(offset, self._last, "the message after this tick is no TickData") from error
        number: int = head.tick_number
        first, last = self._file.ticks
        follows = number == first if self._last is None else self._last < number <= last
        if not follows or head.simulation_run_id != self._file.run_id or not 0 <= head.format_version <= FORMAT_VERSION:
            raise self._bad(offset, number, self._misfit(head))
        self._last = number
        return number

    def _misfit(self, head: Any) -> str:
        """Why a tick does not belong where it is."""
        ticks = self._file.ticks
        if not 0 <= head.format_version <= FORMAT_VERSION:
            return f"format_version {head.format_version} is unknown here (known: 0 to {FORMAT_VERSION})"
        if head.simulation_run_id != self._file.run_id:
            return f"the tick belongs to run {head.simulation_run_id!r}"
        if head.tick_number not in ticks:
            return f"the tick is outside {ticks}, the range that the file's name promises"
        if self._last is None:
            return f"the file starts with this tick, its name promises {ticks.start}"
        return f"ticks must ascend, and tick {self._last} comes before it"

    def _finish(self, stream: BinaryIO) -> None:
        """The wanted ticks are through; the checksum of a compressed file is at its very end."""
        if is_compressed(self._file.key):
            while stream.read(BLOCK_BYTES):
                pass

    def _bad(self, offset: int, tick: int | None, reason: str) -> BadBatchFile:
        return BadBatchFile(key=self._file.key, offset=offset, tick=tick, reason=reason)
