"""Tables, options and tools that are refused in one line, and Spark errors that say little."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ticklake.errors import BadSourceOption, BadTable, DeltaMissing, JavaMissing, PolarsMissing, QueryTooSlow
from ticklake.lake.read.queries import Limits, _limited
from ticklake.lake.read.reading import read
from ticklake.lake.read.source import Ticks, TicksReader
from ticklake.lake.read.views import with_delta
from ticklake.lake.session.java import find_java
from ticklake.lake.session.session import reason_of
from ticklake.lake.table import Table

RUN = "20251014-143025-550e8400"
TICK = ("tick_number", pa.int64())


@pytest.mark.parametrize(
    ("columns", "key", "reason"),
    [
        ([TICK], (), "it needs a key, which starts with tick_number"),
        ([TICK], ("tick_number", "cell_id"), "its key names 'cell_id', which is not one of its columns"),
        ([TICK, ("a", pa.int64()), ("a", pa.int64())], ("tick_number",), "two of its columns have the same name"),
        ([("tick_number", pa.int32())], ("tick_number",), "tick_number, the first column of its key, must be an int64"),
    ],
    ids=["no key", "no such column", "a column twice", "no int64"],
)
def test_a_table_without_a_good_key_is_refused(
    columns: list[tuple[str, pa.DataType]], key: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(BadTable, match=reason):
        Table("t", pa.schema(columns), key)


def test_a_source_without_a_path_is_refused() -> None:
    with pytest.raises(BadSourceOption, match="takes the folder of a run"):
        TicksReader({"path": "/"}, Ticks({}).schema())


def test_a_java_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("no program")
    (tmp_path / "bin" / "java").chmod(0o755)
    with pytest.raises(JavaMissing, match="java cannot be started"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_packages_that_are_missing_are_named(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(PolarsMissing):
        read(RUN, "t", lake=lake).to_polars()
    monkeypatch.setitem(sys.modules, "delta", None)
    with pytest.raises(DeltaMissing):
        with_delta(SparkSession.Builder())


def test_a_builder_gets_the_settings_for_delta() -> None:
    settings = with_delta(SparkSession.Builder())._options
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert "delta-spark" in settings["spark.jars.packages"]


def test_a_result_whose_rows_come_too_slowly_is_refused() -> None:
    with duckdb.connect() as connection, pytest.raises(QueryTooSlow):
        _limited(connection.sql("FROM range(10)"), Limits(seconds=-1.0))


def test_an_error_without_a_text_has_at_least_a_name() -> None:
    assert reason_of(RuntimeError()) == "RuntimeError"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / RUN / "t", pa.table({"tick_number": pa.array(range(10), pa.int64())}))
    return tmp_path
