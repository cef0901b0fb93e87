"""What a flush costs at the table, its Spark job aside, as the table grows: the look, the file, the commit, the syncs.

The same flushes with compaction beside them, without it, and committed by delta-rs as a reference, in one run.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from bench.results import Figure, Section
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from ticklake.disk import sync
from ticklake.lake.delta import Location
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import Compaction
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))
TICKS, CELLS = 10, 100
MARKS = (100, 1_000, 5_000)
# Each mark is the mean of so many flushes before it: a checkpoint, which comes every hundred, is in each.
WINDOW = 100

Flush = Callable[[int], None]


def measure(directory: Path, flushes: int = MARKS[-1]) -> Section:
    ours = growth(directory / "ours", flushes, compacting=False)
    compacted = growth(directory / "compacted", flushes, compacting=True)
    reference = run(delta_rs(directory / "delta-rs"), min(1_000, flushes))
    marks = [mark for mark in MARKS if mark <= flushes]
    first, last = WINDOW, marks[-1]
    figures = [Figure(f"flush {mark:,}, compaction beside it", at(compacted, mark), "ms") for mark in marks]
    figures += [Figure(f"flush {mark:,}, no compaction", at(ours, mark), "ms") for mark in marks]
    figures += [Figure(f"flush {mark:,}, by delta-rs", at(reference, mark), "ms") for mark in marks if mark <= 1_000]
    return Section(
        "Growth",
        f"A flush of {TICKS * CELLS:,} rows without its Spark job: look, Parquet file, commit, all synced. Means of"
        f" {WINDOW} flushes up to the one named, checkpoints included; compaction is not in the time of a flush.",
        [
            *figures,
            Figure(f"flush {last:,} ÷ flush {first:,}, compaction", at(compacted, last) / at(compacted, first), "times",
                   at_most=1.5),
            Figure(f"flush {last:,} ÷ flush {first:,}, no compaction", at(ours, last) / at(ours, first), "times"),
            Figure(f"opening after {last:,} flushes, compaction", opening(directory / "compacted"), "ms"),
            Figure(f"opening after {last:,} flushes, no compaction", opening(directory / "ours"), "ms"),
            Figure(f"files after {last:,} flushes, compaction", len(open_table(directory / "compacted").files), ""),
        ],
    )  # fmt: skip


def at(times: list[float], mark: int) -> float:
    return statistics.fmean(times[mark - WINDOW : mark]) * 1000


def growth(directory: Path, flushes: int, *, compacting: bool) -> list[float]:
    directory.mkdir()
    ledger = open_table(directory)
    compaction = Compaction(open_table(directory))

    def flush(number: int) -> None:
        ledger.refresh()
        ticks = ticks_of(number)
        assert not len(ledger.present([ticks]))
        ledger.commit([write(directory, number, ticks)], {"ticklake.sources": source(number, ticks)})

    def tidy(number: int) -> None:
        if compacting and number % 10 == 9:
            list(compaction.steps())

    return run(flush, flushes, tidy)


def run(flush: Flush, flushes: int, between: Flush = lambda _: None) -> list[float]:
    times = []
    for number in range(flushes):
        started = time.perf_counter()
        flush(number)
        times.append(time.perf_counter() - started)
        between(number)
    return times


def delta_rs(directory: Path) -> Flush:
    """The same through `create_write_transaction`, and its syncs."""
    delta = DeltaTable.create(directory, SCHEMA)

    def flush(number: int) -> None:
        delta.update_incremental()
        pa.table(delta.get_add_actions(flatten=True))
        ticks = ticks_of(number)
        file = write(directory, number, ticks)
        add = AddAction(file.path, file.size, {}, int(time.time() * 1000), True, file.stats)
        properties = CommitProperties({"ticklake.sources": source(number, ticks)}, max_commit_retries=0)
        delta.create_write_transaction([add], "append", SCHEMA, commit_properties=properties)
        delta.update_incremental()
        sync(directory / "_delta_log" / f"{delta.version():020d}.json")
        sync(directory / "_delta_log")

    return flush


def ticks_of(number: int) -> TickRange:
    return TickRange(number * TICKS, (number + 1) * TICKS - 1)


def source(number: int, ticks: TickRange) -> str:
    return json.dumps([{"file": f"run/batch_{number}.pb.zst", "ticks": ticks, "message": "m" * 36, "claim": 1}])


def write(directory: Path, number: int, ticks: TickRange) -> ParquetFile:
    writer = ParquetFileWriter(Location.of(directory), f"{number:08d}.parquet", TABLE)
    numbers = [tick for tick in range(ticks.start, ticks.end + 1) for _ in range(CELLS)]
    writer.append(pa.RecordBatch.from_arrays([numbers, list(range(CELLS)) * TICKS], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    return file


def open_table(directory: Path) -> Ledger:
    return Ledger(Location.of(directory), TABLE)


def opening(directory: Path) -> float:
    started = time.perf_counter()
    open_table(directory)
    return (time.perf_counter() - started) * 1000
