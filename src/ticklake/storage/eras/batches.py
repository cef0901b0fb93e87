"""Record batches of the recordings in chunks, with the columns that ticks have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.storage.checks import first_invalid
from ticklake.storage.eras.detection import REGISTERS, Era, is_renumbered
from ticklake.storage.eras.meaning import EVERY_COLUMN, OF_RECORDINGS, Fields, cells_as_structs, conformed, in_lists
from ticklake.storage.eras.molecules import Cells
from ticklake.storage.eras.recordings import ChunkReader, Recording, Wanted
from ticklake.storage.eras.wire import ByteStream
from ticklake.storage.errors import BadBatchFile
from ticklake.storage.files import BatchFile
from ticklake.storage.handlers import handler
from ticklake.storage.projection import project, with_field
from ticklake.ticks import TickRange
from ticklake.world import World

_OF_DEATH = frozenset({"organisms.is_dead", "organisms.death_tick"})
_NEVER = 2**63 - 1
_NUMBERS = {
    "tick_number": "tick",
    "capture_time_ms": "time",
    "since": "since",
    "total_organisms_created": "created",
    "total_unique_genomes": "genomes",
}


class Request(NamedTuple):
    """What to read from a batch file."""

    file: BatchFile
    ticks: TickRange | None
    skip: Container[int]
    era: Era
    fields: Fields
    world: World | None
    chunk_bytes: int


def decoded_recordings(stream: BinaryIO, head: bytes, asked: Request) -> Iterator[pa.RecordBatch]:
    """Yields the wanted recordings of a file. `head` was read from the stream before."""
    decoder = RecordingDecoder(asked.fields, asked.era, asked.file.key)
    wanted = Wanted(*map(decoder.has, Wanted._fields))
    reader = ChunkReader(asked.file, asked.ticks, asked.skip, asked.era, wanted, asked.world)
    held: list[Recording] = []
    bytes_held = 0
    for recording in reader.recordings(ByteStream(stream, head)):
        held.append(recording)
        bytes_held += recording.size()
        if bytes_held >= asked.chunk_bytes:
            yield decoder.decode(held)
            held, bytes_held = [], 0
        del recording
    if held:
        yield decoder.decode(held)


class RecordingDecoder:
    """Makes record batches of recordings."""

    def __init__(self, fields: Fields, era: Era, key: str) -> None:
        self._era, self._key = era, key
        self._run_id = key.partition("/")[0]
        self.schema = schema_of(fields)
        below = fields.below("organisms")
        self._organisms = self._strict = None
        if below:
            descriptor = project(below | _OF_DEATH, later=True, renumbered=era.renumbered)
            organism: Any = descriptor.fields_by_name["organisms"].message_type
            self._organisms, self._strict = handler(organism), GetMessageClass(with_field(organism, REGISTERS))
            self._registers = self._strict.DESCRIPTOR.fields_by_number[REGISTERS].name

    def has(self, name: str) -> bool:
        return name in self.schema.names

    def decode(self, recordings: list[Recording]) -> pa.RecordBatch:
        columns = [self._column(field, recordings) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if invalid := first_invalid(batch, None, self._era):
            raise self._bad(recordings[invalid[0]], invalid[1])
        return batch

    def _column(self, field: pa.Field, recordings: list[Recording]) -> pa.Array:
        if field.name in _NUMBERS:
            return pa.array([getattr(one, _NUMBERS[field.name]) for one in recordings], field.type)
        if field.name == "simulation_run_id":
            return pa.array([self._run_id] * len(recordings), field.type)
        if field.name in ("cells", *OF_RECORDINGS):
            parts: list[Cells] = [getattr(one, field.name) for one in recordings]
            return in_lists(
                [len(one.flat) for one in parts], cells_as_structs(parts, field.type.value_type), field.type
            )
        if field.name == "organisms":
            lengths, organisms = self._counted(recordings)
            return in_lists(lengths, conformed(organisms, field.type.value_type, self._era), field.type)
        # Only snapshots have the others, such as rng_state.
        empty: Any = [] if pa.types.is_list(field.type) else b"" if pa.types.is_binary(field.type) else 0
        return pa.array([empty] * len(recordings), field.type)

    def _counted(self, recordings: list[Recording]) -> tuple[npt.NDArray[Any], pa.StructArray]:
        """Returns the organisms, and how many each recording has.

        After a resume, the original records organisms again that were dead in the recording before. These do not count,
        so two files with the same tick have the same organisms.
        """
        organisms = self._decoded(recordings)
        lengths = np.array([len(one.organisms) for one in recordings])
        since = np.repeat([-1 if one.interval is None else one.tick - one.interval for one in recordings], lengths)
        deaths = pc.fill_null(organisms.field("death_tick"), _NEVER).to_numpy()
        before = (deaths <= since) & organisms.field("is_dead").to_numpy(zero_copy_only=False)
        if before.any():
            places = np.repeat(np.arange(len(lengths)), lengths)
            lengths = lengths - np.bincount(places[before], minlength=len(lengths))
            organisms = organisms.filter(pa.array(~before))
        return lengths, organisms

    def _decoded(self, recordings: list[Recording]) -> pa.StructArray:
        assert self._organisms is not None and self._strict is not None  # noqa: S101  there is such a column
        strict, registers = self._strict.FromString, self._registers
        for one in recordings:
            try:
                for organism in one.organisms:
                    if len(getattr(strict(organism), registers)) != self._era.registers:
                        self._check_numbers(organism, one)
            except DecodeError as error:
                raise self._bad(one, f"an organism is not an OrganismState message ({error})") from error
        organisms = [organism for one in recordings for organism in one.organisms]
        return self._organisms.list_to_record_batch(organisms).to_struct_array()

    def _check_numbers(self, organism: bytes, recording: Recording) -> None:
        """Raises `BadBatchFile` if an organism does not have the field numbers of the era."""
        try:
            same = is_renumbered(organism, recording.offset) == self._era.renumbered
        except ValueError as error:
            raise self._bad(recording, str(error)) from error
        if not same:
            raise self._bad(recording, f"an organism has other field numbers than those of era {self._era}")

    def _bad(self, recording: Recording, reason: str) -> BadBatchFile:
        return BadBatchFile(key=self._key, offset=recording.offset, tick=recording.tick, reason=reason)


def tick_schema(fields: Iterable[str]) -> pa.Schema:
    """Returns the schema of the batches that `read_ticks` yields."""
    return schema_of(Fields(("tick_number", *fields)))


def schema_of(fields: Fields) -> pa.Schema:
    """Returns the schema of ticks with these fields. It is the same for every era."""
    schema = fields.schema(handler(project(fields.paths, later=True)).schema())
    for name in fields.of_recordings:
        schema = schema.append(schema_of(Fields(EVERY_COLUMN)).field("cells").with_name(name))
    return schema.append(pa.field("since", pa.int64())) if fields.since else schema
