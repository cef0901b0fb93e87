"""What `WHERE tick_number = N` reads of a large table: bytes through the read calls of a process, not seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from bench.results import Figure, Section
from bench.runs import RUN_ID, produce

from ticklake.indexers.builtin.environment import SCHEMA, EnvironmentIndexer
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.storage.codec import read_ticks
from ticklake.world import World

FILE_ROWS = 16 << 20
TABLE = EnvironmentIndexer.table
assert TABLE is not None

COUNTED = """
import sys
import duckdb, ticklake
lake, run, tick = sys.argv[1], sys.argv[2], int(sys.argv[3])

def count():
    return int(open("/proc/self/io").read().split()[1])

def arrow(tick):
    return ticklake.read(f"{{lake}}/{{run}}", "environment_data", ticks=(tick, tick)).to_arrow().num_rows

def duck(tick):
    connection = duckdb.connect()
    files = f"{{lake}}/{{run}}/environment_data/*.parquet"
    query = "SELECT count(*), sum(molecule_value) FROM read_parquet(?) WHERE tick_number = ?"
    return connection.execute(query, [files, tick]).fetchall()[0][0]

# Libraries are loaded by the first use, on a tick that is not there.
{reader}(-1)
start = count()
rows = {reader}(tick)
print(count() - start, rows)
"""


def measure(directory: Path, rows: int = 100_000_000) -> Section:
    lake = directory / "lake"
    total = fill(directory, lake, rows)
    facts = Catalog(lake).facts(RUN_ID, "environment_data")
    assert facts.ticks is not None
    tick = (facts.ticks.start + facts.ticks.end) // 2
    shares = {reader: read_by(reader, lake, tick) / facts.bytes * 100 for reader in ("arrow", "duck")}
    return Section(
        "Reading one tick",
        f"`environment_data` with {total:,} rows in {facts.files} files, {facts.bytes / 2**20:,.0f} MiB, written in the"
        " layout of the indexers; all columns of one tick from the middle (DuckDB: two), bytes of all read calls over"
        " those of the table.",
        [
            Figure("`ticklake.read(…, ticks=(N, N))`", shares["arrow"], "%", at_most=1.0),
            Figure("DuckDB, `WHERE tick_number = N`", shares["duck"], "%", at_most=1.0),
            Figure("bytes a row", facts.bytes / total, "bytes"),
        ],
    )


def read_by(reader: str, lake: Path, tick: int) -> int:
    command = [sys.executable, "-c", COUNTED.format(reader=reader), str(lake), RUN_ID, str(tick)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, found = map(int, done.stdout.split())
    assert found > 0
    return count


def fill(directory: Path, lake: Path, rows: int) -> int:
    """A table of so many rows: a simulated run over and over, each time at later ticks, as few files as tasks make."""
    ledger = Lake(lake).ledger(RUN_ID, TABLE)
    files: list[ParquetFile] = []
    total = written = 0
    writer = ParquetFileWriter(ledger.location, "0.parquet", TABLE)
    for batch in repeated(list(simulated(directory, min(rows, 5_000_000))), rows):
        writer.append(batch)
        total, written = total + batch.num_rows, written + batch.num_rows
        if written >= FILE_ROWS or total >= rows:
            file = writer.close()
            assert file is not None
            files.append(file)
            writer, written = ParquetFileWriter(ledger.location, f"{len(files)}.parquet", TABLE), 0
    ledger.commit(files, {})
    return total


def simulated(directory: Path, cells: int) -> Iterator[pa.RecordBatch]:
    storage, _ = produce(directory, cells)
    world = World.of(storage.read_metadata(RUN_ID))
    for file in storage.every_batch(RUN_ID):
        for ticks in read_ticks(storage, file, fields=EnvironmentIndexer.reads, world=world):
            # Cells come in order from this simulation.
            yield EnvironmentIndexer.rows(ticks, world)


def repeated(batches: list[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    span = pc.max(batches[-1].column("tick_number")).as_py() + 1
    total = turn = 0
    while True:
        for batch in batches:
            later = pc.add(batch.column("tick_number"), turn * span)
            yield pa.RecordBatch.from_arrays([later, *batch.columns[1:]], schema=SCHEMA)
            total += batch.num_rows
            if total >= rows:
                return
        turn += 1
