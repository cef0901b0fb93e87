"""The code of a task on an executor: reads slices, writes Parquet files, and returns a result for each slice."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ticklake import faults
from ticklake.errors import TickLakeError
from ticklake.lake.delta import Location, ParquetFile, ParquetFileWriter
from ticklake.lake.empty import Ticks, joined
from ticklake.lake.errors import LakeUnwritable, OffTheGrid, RowsDoNotFit, StorageUnavailable
from ticklake.lake.flush.counts import checked_counts
from ticklake.lake.order import beginnings, ordered
from ticklake.lake.slices import Piece, Slice, Source
from ticklake.lake.table import Table
from ticklake.storage import FORMAT, BatchFile, Storage, is_chunked, read_ticks
from ticklake.storage.errors import StoredFileMissing
from ticklake.text import error_text, message_text, traceback_text
from ticklake.world import World

Rows = Callable[[pa.RecordBatch, World | None], pa.RecordBatch]
Observe = Callable[[pa.RecordBatch], Mapping[str, int]]
Read = Callable[["Work", Slice], Iterator[pa.RecordBatch]]

# A slice up to this size is decoded completely before it is written, so an invalid one adds nothing to a shared file.
_WHOLE_BYTES = 32 << 20
# Bytes of ticks decoded at a time.
_CHUNK_BYTES = 8 << 20
# A shared file is closed before it would have more rows than this.
_FULL_ROWS = 16 << 20


def _count_nothing(ticks: pa.RecordBatch) -> Mapping[str, int]:  # noqa: ARG001
    return {}


@dataclass(frozen=True)
class Work:
    """The input that all tasks of a flush share."""

    flush_id: str
    storage: Storage | None
    world: World | None
    reads: tuple[str, ...]
    table: Table | None = None
    location: Location | None = None
    rows: Rows | None = None
    observe: Observe = _count_nothing
    read: Read | None = None
    """Reads ticks from another source than storage."""
    ordinal: str = "tick_number"
    """The column with the numbers of ticks, or of event batches."""

    @property
    def name(self) -> str:
        """The name in error messages."""
        return self.table.name if self.table else "no table"


@dataclass(frozen=True)
class Decoded:
    """Some ticks of a slice, their rows (None if there is no table), and the counts from `observe`."""

    ticks: Ticks
    rows: pa.RecordBatch | None
    observed: Mapping[str, int]
    format: str = ""
    """The format of their file."""


@dataclass(frozen=True)
class Indexed:
    """A piece that is completely in the files of this task. `empty` are its ticks without rows."""

    number: int
    ticks: Ticks
    empty: Ticks
    rows: int
    observed: Mapping[str, int]
    format: str = ""


@dataclass(frozen=True)
class Checked:
    """A piece that was only checked: it is valid and has these ticks."""

    number: int
    ticks: Ticks


@dataclass(frozen=True)
class Failed:
    """A piece that cannot be indexed, and the reason. None of its rows is in a file."""

    number: int
    error: str
    trace: str


@dataclass(frozen=True)
class Unavailable:
    """The task failed, but not because of a slice: for example, the disk is full or the storage is gone."""

    error: TickLakeError


@dataclass(frozen=True)
class Spent:
    """The working time of a task."""

    seconds: float


Result = Indexed | Checked | Failed | ParquetFile | Unavailable | Spent


def index(work: Work, task: int, pieces: Sequence[Piece]) -> list[Result]:
    """Indexes pieces into a few files. Returns `Failed` for invalid pieces and never raises because of them."""
    files = Files(work, task)
    try:
        results = [index_piece(work, piece, files) for piece in pieces]
        return [*results, *files.finish()]
    except (LakeUnwritable, StorageUnavailable) as error:
        files.discard()
        return [Unavailable(error)]
    except Exception as error:
        # Some rows cannot be written to a shared file. Index each piece alone to find the culprit.
        files.discard()
        if len(pieces) == 1:
            return [_failed(pieces[0], error)]
    return [result for piece in pieces for result in index(work, task, [piece])]


def index_piece(work: Work, piece: Piece, files: Files) -> Indexed | Checked | Failed:
    """Indexes one piece, or returns `Failed`. Raises only errors that the piece did not cause."""
    account = Account(work, piece, files)
    try:
        for part in decoded_slice(work, piece.slice):
            account.add(part)
    except (LakeUnwritable, StorageUnavailable):
        account.abandon()
        raise
    except Exception as error:
        account.abandon()
        return _failed(piece, error)
    return account.finish()


def _failed(piece: Piece, error: Exception) -> Failed:
    return Failed(piece.number, failure_text(error), traceback_text(error))


class Account:
    """Collects one piece and writes it to the files completely, or not at all."""

    def __init__(self, work: Work, piece: Piece, files: Files) -> None:
        self._work, self._piece, self._files = work, piece, files
        self._held: list[pa.RecordBatch] = []
        self._own: ParquetFileWriter | None = None
        self._ticks: list[Ticks] = []
        self._empty: list[Ticks] = []
        self._rows = 0
        self._format = ""
        self._observed: Counter[str] = Counter()

    def add(self, part: Decoded) -> None:
        self._ticks.append(part.ticks)
        if self._piece.check:
            return
        self._observed.update(part.observed)
        self._format = part.format
        if part.rows is not None and self._work.table is not None:
            self._empty.append(np.setdiff1d(part.ticks, _distinct(part.rows, self._work.table.ordinal)))
            self._hold(part.rows)

    def finish(self) -> Indexed | Checked:
        """Writes the held rows to the files. Called after the last part."""
        if self._piece.check:
            return Checked(self._piece.number, joined(self._ticks))
        if self._own is not None:
            self._files.close(self._own)
        elif self._rows:
            self._write_held(self._files.shared(self._rows))
        ticks, empty = joined(self._ticks), joined(self._empty)
        return Indexed(self._piece.number, ticks, empty, self._rows, dict(self._observed), self._format)

    def abandon(self) -> None:
        """Discards the piece and its own file."""
        self._held.clear()
        if self._own is not None:
            self._files.abandon(self._own)

    def _hold(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        self._held.append(rows)
        if self._own is None and sum(batch.nbytes for batch in self._held) > _WHOLE_BYTES:
            self._own = self._files.open()
        if self._own is not None:
            self._write_held(self._own)

    def _write_held(self, writer: ParquetFileWriter) -> None:
        for batch in self._held:
            writer.append(batch)
        self._held.clear()


class Files:
    """The Parquet files of one task: a shared one for small slices, a separate one for each large slice."""

    def __init__(self, work: Work, task: int) -> None:
        self._work, self._task = work, task
        # Spark may run a task again while its first attempt is still running.
        self._attempt = secrets.token_hex(4)
        self._count = 0
        self._open: list[ParquetFileWriter] = []
        self._shared: ParquetFileWriter | None = None
        self._shared_rows = 0
        self._finished: list[ParquetFile] = []

    def open(self) -> ParquetFileWriter:
        assert self._work.table is not None  # noqa: S101  there are rows only if there is a table
        name = f"{self._work.flush_id}-{self._task:04d}-{self._attempt}-{self._count:04d}.parquet"
        self._count += 1
        writer = ParquetFileWriter(self._location, name, self._work.table)
        self._open.append(writer)
        return writer

    def shared(self, rows: int) -> ParquetFileWriter:
        if self._shared is not None and self._shared_rows + rows > _FULL_ROWS:
            self.close(self._shared)
            self._shared = None
        if self._shared is None:
            self._shared, self._shared_rows = self.open(), 0
        self._shared_rows += rows
        return self._shared

    def close(self, writer: ParquetFileWriter) -> None:
        finished = writer.close()
        self._open.remove(writer)
        if finished is not None:
            self._finished.append(finished)

    def abandon(self, writer: ParquetFileWriter) -> None:
        writer.discard()
        self._open.remove(writer)

    def finish(self) -> list[ParquetFile]:
        for writer in list(self._open):
            self.close(writer)
        faults.reach("lake.task.written")
        return self._finished

    def discard(self) -> None:
        for writer in self._open:
            writer.discard()
        for finished in self._finished:
            self._location.file(finished.path).remove()

    @property
    def _location(self) -> Location:
        assert self._work.location is not None  # noqa: S101  there are files only if there is a table
        return self._work.location


def read(work: Work, slice_: Slice) -> Iterator[pa.RecordBatch]:
    assert work.storage is not None and isinstance(slice_.source, BatchFile)  # noqa: S101  other sources have their own `read`
    try:
        yield from read_ticks(
            work.storage,
            slice_.source,
            ticks=slice_.ticks,
            skip=slice_.skip,
            fields=work.reads,
            world=work.world,
            chunk_bytes=_CHUNK_BYTES,
        )
    except (OSError, StoredFileMissing) as error:
        if not work.storage.reachable(slice_.source.run_id):
            raise StorageUnavailable(storage=work.storage.url, reason=error) from error
        raise


def decoded_slice(work: Work, slice_: Slice) -> Iterator[Decoded]:
    """Decodes a slice and makes its rows. Raises if any of it cannot be indexed."""
    for batch in (work.read or read)(work, slice_):
        yield decoded(work, slice_.source, batch)


def decoded(work: Work, source: Source, batch: pa.RecordBatch) -> Decoded:
    """Makes the rows of a batch and counts with `observe`. Raises if any tick cannot be indexed.

    A flush, `index --replace` and `verify --deep` all use this function, so they always agree.
    """
    # A copy: a view would keep the whole decoded batch alive.
    ticks = batch.column(work.ordinal).to_numpy().copy()
    known = (batch.schema.metadata or {}).get(FORMAT, b"").decode()
    if not is_chunked(known):  # the reader has checked that a chunk has every n-th tick
        _check_grid(work, source, ticks)
    rows = checked_rows(work, batch) if work.table is not None else None
    return Decoded(ticks, rows, checked_counts(work.observe(batch)), known)


def failure_text(error: BaseException) -> str:
    """Returns in one line why a slice cannot be indexed."""
    return message_text(error) if isinstance(error, TickLakeError) else error_text(error)


def _check_grid(work: Work, file: Source, ticks: Ticks) -> None:
    """Raises `OffTheGrid`. Slices, gaps and verdicts do not count ticks off the sampling grid."""
    step = work.world.sampling_interval if work.world else 1
    off = ticks[ticks % step != 0]
    if len(off):
        raise OffTheGrid(key=file.key, tick=int(off[0]), step=step)


def checked_rows(work: Work, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the indexer's rows for these ticks, sorted. Raises if they do not fit the table, the ticks or the key."""
    assert work.rows is not None and work.table is not None  # noqa: S101
    rows = work.rows(batch, work.world)
    found, wanted = _columns(rows.schema), _columns(work.table.schema)
    if found != wanted:
        raise RowsDoNotFit(table=work.table.name, reason=f"their columns are {found}, not {wanted}")
    for name in work.table.key:
        if rows.column(name).null_count:
            raise RowsDoNotFit(table=work.table.name, reason=f"a row has no {name}, which is part of the key")
    for column, field in zip(rows.columns, work.table.schema, strict=True):
        if missing := _null_in(column, field, field.name):
            raise RowsDoNotFit(table=work.table.name, reason=f"a row has no {missing}, which must not be null")
    rows = ordered(pa.RecordBatch.from_arrays(rows.columns, schema=work.table.schema), work.table.key)
    unknown = np.setdiff1d(_distinct(rows, work.table.ordinal), batch.column(work.ordinal).to_numpy())
    if len(unknown):
        raise RowsDoNotFit(table=work.table.name, reason=f"rows have tick {unknown[0]}, which was not in the input")
    return rows


_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def _null_in(column: pa.Array, field: pa.Field, name: str) -> str | None:
    """Returns the name of a field that is null but must not be, at any depth. Writing it would end the task."""
    kind = field.type
    if column.null_count and not field.nullable:
        return name
    if pa.types.is_struct(kind):
        return _null_among(column.drop_null().flatten(), list(kind), name)
    if pa.types.is_map(kind):
        there = column.drop_null()
        entries = slice(there.offsets[0].as_py(), there.offsets[-1].as_py())
        return _null_among([there.keys[entries], there.items[entries]], [kind.key_field, kind.item_field], f"{name}[]")
    if any(is_kind(kind) for is_kind in _LISTS):
        return _null_in(column.flatten(), kind.value_field, f"{name}[]")
    return None


def _null_among(columns: Sequence[pa.Array], fields: Sequence[pa.Field], name: str) -> str | None:
    found = (_null_in(part, inner, f"{name}.{inner.name}") for part, inner in zip(columns, fields, strict=True))
    return next(filter(None, found), None)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _distinct(rows: pa.RecordBatch, ordinal: str) -> Ticks:
    """Returns the distinct ticks of rows that are in order."""
    ascending: Ticks = rows.column(ordinal).to_numpy()
    return ascending[beginnings(ascending)]
