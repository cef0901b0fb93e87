"""Reads a slice of a batch file: the wanted ticks, checked against the ticks in the file's name."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from operator import lt
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.contracts import FORMAT_VERSION
from ticklake.storage.delimited import BLOCK_BYTES, split
from ticklake.storage.errors import BadBatchFile, BadFile
from ticklake.storage.files import BatchFile
from ticklake.storage.names import is_compressed
from ticklake.storage.projection import head
from ticklake.ticks import TickRange

# Protobuf's own parser reads these fields and skips the others. It refuses a tick with a broken outer structure.
_Head: Any = GetMessageClass(head())
_VERSIONS = range(FORMAT_VERSION + 1)


class Chunk:
    """Consecutive ticks: their numbers, their offsets in the decompressed file, and their bytes.

    Uses three lists instead of an object per tick, because files of small ticks have millions of them.
    """

    def __init__(self, numbers: list[int], offsets: list[int], messages: list[bytes]) -> None:
        self.numbers = numbers
        self.offsets = offsets
        self.messages = messages
        self.bytes = sum(map(len, messages))

    def __len__(self) -> int:
        return len(self.numbers)

    def extend(self, other: Chunk) -> None:
        self.numbers += other.numbers
        self.offsets += other.offsets
        self.messages += other.messages
        self.bytes += other.bytes

    def only(self, rows: Sequence[int]) -> Chunk:
        numbers, offsets, messages = self.numbers, self.offsets, self.messages
        return Chunk([numbers[row] for row in rows], [offsets[row] for row in rows], [messages[row] for row in rows])

    def ticks(self) -> Iterator[Chunk]:
        """Yields each tick as its own chunk."""
        return (self.only([row]) for row in range(len(self)))


class SliceReader:
    """Reads one slice, chunk by chunk. The slice is valid only if `chunks` ends without an error."""

    def __init__(self, file: BatchFile, ticks: TickRange | None, skip: Container[int]) -> None:
        self._file = file
        self._ticks = file.ticks if ticks is None else ticks
        self._skip = skip
        self._last: int | None = None
        self.has_version = True
        """True if every tick so far has a version: TickLake wrote it."""

    def chunks(self, stream: BinaryIO, chunk_bytes: int, head: bytes = b"") -> Iterator[Chunk]:
        """Yields the wanted ticks in chunks of at most `chunk_bytes`. A larger tick is its own chunk.

        `head` was read from the stream before.
        """
        chunk = Chunk([], [], [])
        for block in self._blocks(stream, head):
            for piece in (block,) if chunk.bytes + block.bytes <= chunk_bytes else block.ticks():
                if chunk and chunk.bytes + piece.bytes > chunk_bytes:
                    yield chunk
                    chunk = Chunk([], [], [])
                chunk.extend(piece)
            # A full chunk is yielded at once: the next tick may be large, and both would be in memory.
            if chunk.bytes >= chunk_bytes:
                yield chunk
                chunk = Chunk([], [], [])
        if chunk:
            yield chunk

    def _blocks(self, stream: BinaryIO, head: bytes) -> Iterator[Chunk]:
        """Yields the wanted ticks of each block. Reads to the end of the file to verify its checksum."""
        end = 0
        try:
            for offsets, messages in split(stream, self._file.key, head):
                block = Chunk(self._numbers(offsets, messages), offsets, messages)
                yield self._wanted(block)
                end = offsets[-1]
                if block.numbers[-1] > self._ticks.end:
                    self._drain(stream)
                    return
        except BadBatchFile:
            raise
        except BadFile as error:
            raise self._bad(error.offset, self._last, error.reason) from error
        if self._last != self._file.ticks.end:
            raise self._bad(
                end, self._last, f"the file ends after this tick, but its name says tick {self._file.ticks.end}"
            )

    def _wanted(self, block: Chunk) -> Chunk:
        first, last = self._ticks
        skip = self._skip
        if not skip and first <= block.numbers[0] and block.numbers[-1] <= last:
            return block
        return block.only([row for row, tick in enumerate(block.numbers) if first <= tick <= last and tick not in skip])

    def _numbers(self, offsets: list[int], messages: list[bytes]) -> list[int]:
        """Returns the numbers of a block's ticks. They must belong to this file and come after the block before."""
        head, numbers, runs, versions, counts = _Head(), [], set(), set(), {0}
        try:
            for message in messages:
                head.ParseFromString(message)
                numbers.append(head.tick_number)
                runs.add(head.simulation_run_id)
                versions.add(head.format_version)
                counts.add(head.tick_count)
        except DecodeError:
            raise self._first_bad(offsets, messages) from None
        if (
            runs != {self._file.run_id}
            or not versions.issubset(_VERSIONS)
            or counts != {0}
            or not all(map(lt, numbers, numbers[1:]))
            or not self._follows(numbers[0])
            or numbers[-1] > self._file.ticks.end
        ):
            raise self._first_bad(offsets, messages)
        self._last = numbers[-1]
        self.has_version = self.has_version and 0 not in versions
        return numbers

    def _follows(self, number: int) -> bool:
        return number == self._file.ticks.start if self._last is None else number > self._last

    def _first_bad(self, offsets: list[int], messages: list[bytes]) -> BadBatchFile:
        """Returns the error of the first invalid tick in a block."""
        for offset, message in zip(offsets, messages, strict=True):
            try:
                head = _Head.FromString(message)
            except DecodeError as error:
                return self._bad(offset, self._last, f"the message after this tick is not a TickData message ({error})")
            reason = self._misfit(head)
            if reason:
                return self._bad(offset, head.tick_number, reason)
            self._last = head.tick_number
        raise AssertionError("a block is invalid, but none of its ticks is")

    def _misfit(self, head: Any) -> str | None:
        """Returns why a tick does not belong in its place, or None."""
        ticks = self._file.ticks
        if head.format_version not in _VERSIONS:
            return f"format_version {head.format_version} is unknown here (known: 0 to {FORMAT_VERSION})"
        if head.tick_count:
            return "the message is a chunk of ticks, but those before it are ticks"
        if head.simulation_run_id != self._file.run_id:
            return f"the tick belongs to run {head.simulation_run_id[:200]!r}"
        if head.tick_number not in ticks:
            return f"the tick is outside {ticks}, the range in the file's name"
        if not self._follows(head.tick_number):
            before = f"starts with this tick, but its name says {ticks.start}"
            return (
                f"the file {before}" if self._last is None else f"ticks must ascend, but tick {self._last} is before it"
            )
        return None

    def _drain(self, stream: BinaryIO) -> None:
        if is_compressed(self._file.key):
            while stream.read(BLOCK_BYTES):
                pass

    def _bad(self, offset: int, tick: int | None, reason: object) -> BadBatchFile:
        return BadBatchFile(key=self._file.key, offset=offset, tick=tick, reason=reason)
