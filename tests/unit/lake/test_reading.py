"""`ticklake.read`: rows for Arrow, pandas and Polars, and of the files only what the ticks need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest

import ticklake
from ticklake.errors import LakeNotFound, NoSuchColumn, NoTicksInTable, RunNotInLake, TableNotInRun
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.lake import Lake
from ticklake.lake.table import Table

RUN = "20251014-143025-550e8400"
TABLE = EnvironmentIndexer.table
TICKS, CELLS = 1000, 1000


def write(lake: Path, table: Table, rows: pa.RecordBatch) -> None:
    """One file in the table's layout, committed as a flush commits it."""
    ledger = Lake(lake).ledger(RUN, table)
    writer = ParquetFileWriter(ledger.location, "a.parquet", table)
    writer.append(rows)
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A million cells in an environment_data of one file."""
    root = tmp_path_factory.mktemp("lake")
    assert TABLE is not None
    values = np.random.default_rng(1).integers(0, 1000, TICKS * CELLS)
    known = {"tick_number": np.repeat(np.arange(TICKS), CELLS), "cell_id": np.tile(np.arange(CELLS), TICKS)}
    columns = [pa.array(known.get(field.name, values)).cast(field.type) for field in TABLE.schema]
    write(root, TABLE, pa.RecordBatch.from_arrays(columns, schema=TABLE.schema))
    write(root, Table("lines", pa.schema([("line", pa.int64())]), ("line",)), pa.record_batch({"line": [1, 2]}))
    return root


COUNTED = """
import sys
import duckdb, ticklake

def count():
    return int(open("/proc/self/io").read().split()[1])

{before}
start = count()
{code}
print(count() - start)
"""


def bytes_read(before: str, code: str) -> int:
    """What a process reads from files for this code. Libraries are loaded by the first use, `before`."""
    script = COUNTED.format(before=before, code=code)
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_ticks_are_both_ends_included(lake: Path) -> None:
    rows = ticklake.read(lake / RUN, "environment_data", ticks=(10, 12)).to_arrow()
    assert sorted(set(rows["tick_number"].to_pylist())) == [10, 11, 12]
    assert rows.num_rows == 3 * CELLS


def test_without_ticks_it_is_the_whole_table(lake: Path) -> None:
    assert len(ticklake.read(RUN, "environment_data", lake=lake)) == TICKS * CELLS
    assert sum(batch.num_rows for batch in ticklake.read(lake / RUN, "environment_data").batches()) == TICKS * CELLS


def test_the_same_rows_come_as_arrow_pandas_and_polars(lake: Path) -> None:
    rows = ticklake.read(lake / RUN, "environment_data", ticks=(5, 5), columns=["tick_number", "cell_id"])
    arrow, pandas, polars = rows.to_arrow(), rows.to_pandas(), rows.to_polars()
    assert arrow.column_names == ["tick_number", "cell_id"]
    assert arrow["cell_id"].to_pylist() == pandas["cell_id"].tolist() == polars["cell_id"].to_list()


def test_duckdb_takes_the_rows_as_they_are(lake: Path) -> None:
    rows = ticklake.read(lake / RUN, "environment_data", ticks=(5, 6))
    with duckdb.connect() as connection:
        connection.register("chosen", rows)
        assert connection.execute("SELECT count(*) FROM chosen").fetchall() == [(2 * CELLS,)]


def test_one_tick_of_a_large_file_is_read_without_the_rest(lake: Path) -> None:
    size = (lake / RUN / "environment_data" / "a.parquet").stat().st_size
    read = f"ticklake.read({str(lake / RUN)!r}, {{!r}}{{}}).to_arrow()"
    count = bytes_read(read.format("lines", ""), read.format("environment_data", ", ticks=(500, 500)"))
    # One row group of eight, the file's footer and the log.
    assert size / 100 < count < size / 5


def test_duckdb_reads_one_tick_of_a_large_file_without_the_rest(lake: Path) -> None:
    file = lake / RUN / "environment_data" / "a.parquet"
    query = f"duckdb.sql(\"SELECT sum(cell_id) FROM '{file}' WHERE tick_number = {{}}\").fetchall()"
    assert bytes_read(query.format(-1), query.format(500)) < file.stat().st_size / 5


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (LakeNotFound, {"run": RUN, "lake": "nowhere"}, "No lake at nowhere"),
        (RunNotInLake, {"run": "other"}, f"the newest runs are: {RUN}"),
        (TableNotInRun, {"table": "nothing"}, "it has: environment_data, lines"),
        (NoTicksInTable, {"table": "lines", "ticks": (0, 1)}, "no column tick_number"),
        (NoSuchColumn, {"columns": ["energy"]}, "has no column 'energy'; it has: tick_number"),
    ],
)
def test_what_is_not_there_is_one_line(
    lake: Path, error: type[Exception], arguments: dict[str, Any], message: str
) -> None:
    given = {"run": RUN, "table": "environment_data", "lake": lake} | arguments
    with pytest.raises(error, match=message):
        ticklake.read(given.pop("run"), given.pop("table"), **given)


def test_the_page_shows_how_it_works(lake: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ticklake.read" in block)
    names: dict[str, Any] = {}
    exec(code.replace("/shared/lake/RUN", str(lake / RUN)).replace("(1000, 1009)", "(990, 999)"), names)
    assert len(names["rows"]) == 10 * CELLS


def test_ticklake_imports_none_of_the_large_libraries() -> None:
    heavy = {"pyspark", "deltalake", "pandas", "polars", "pyarrow", "duckdb"}
    code = f"import sys, ticklake; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_thread_of_the_reader_needs_python_when_the_process_ends(lake: Path) -> None:
    """It would be aborted now and then. A dataset that reads through Python has its file system from there."""
    files = ticklake.read(lake / RUN, "environment_data").dataset.filesystem
    assert not isinstance(files, pyarrow.fs.PyFileSystem)
    assert isinstance(files, pyarrow.fs.SubTreeFileSystem)
    assert isinstance(files.base_fs, pyarrow.fs.LocalFileSystem)
