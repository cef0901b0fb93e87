"""`spark.read.format("ticks")`: batch files as a DataFrame, of which only what is asked for is read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual, StringContains

import ticklake.spark
from ticklake.contracts import TickData
from ticklake.errors import DeltaMissing
from ticklake.lake.read.source import Ticks, TicksReader
from ticklake.lake.session.session import reason_of
from ticklake.ticks import TickRange


@pytest.fixture
def ticks(spark: SparkSession, maker: Any) -> Any:
    """Reads the maker's run."""
    ticklake.spark.register(spark)
    maker.metadata()
    maker.batches(4)

    def read(**options: Any) -> DataFrame:
        return spark.read.format("ticks").options(**options).load(f"{maker.storage.url}/{maker.run_id}")

    return read


def break_file(maker: Any, start: int, end: int) -> Path:
    """Cuts a batch file short: whoever opens it notices."""
    path = Path(maker.storage.url) / maker.storage.batches(maker.run_id, ticks=TickRange(start, end)).files[0].key
    os.truncate(path, path.stat().st_size // 2)
    return path


def test_a_run_is_a_table_of_ticks_with_every_field_of_the_contract(ticks: Any) -> None:
    frame = ticks()
    assert frame.columns == [field.name for field in TickData.DESCRIPTOR.fields]
    assert frame.count() == 400
    cells = frame.selectExpr("tick_number", "explode(cells) AS cell").selectExpr("sum(cell.flat_index)").first()[0]
    assert cells == sum((tick + 7 * cell) % 100 for tick in range(400) for cell in range(10))
    first = frame.where("tick_number = 7").first()
    assert (first.organisms[0].energy, first.organisms[0].ip.components) == (7, [7, 3])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tick_number = 150", [150]),
        ("tick_number > 148 AND tick_number <= 150", [149, 150]),
        ("tick_number IN (120, 180)", [120, 180]),
        ("tick_number >= 199 AND tick_number < 200 AND format_version = 1", [199]),
    ],
)
def test_files_without_the_ticks_of_a_condition_are_not_opened(
    ticks: Any, maker: Any, condition: str, expected: list[int]
) -> None:
    for start in (0, 200, 300):
        break_file(maker, start, start)
    found = ticks(columns="tick_number,format_version").where(condition).orderBy("tick_number").collect()
    assert [row.tick_number for row in found] == expected


def test_options_choose_ticks_and_columns(ticks: Any, maker: Any) -> None:
    break_file(maker, 0, 0)
    frame = ticks(tickStart=190, tickEnd=205, columns="tick_number, organisms.energy")
    assert frame.schema.simpleString() == "struct<tick_number:bigint,organisms:array<struct<energy:int>>>"
    assert [row.organisms[0].energy for row in frame.orderBy("tick_number").collect()] == list(range(190, 206))


def test_a_schema_chooses_columns_too(spark: SparkSession, ticks: Any, maker: Any) -> None:
    schema = "organisms array<struct<organism_id int, energy int>>, tick_number long"
    frame = spark.read.format("ticks").schema(schema).load(f"{maker.storage.url}/{maker.run_id}")
    assert frame.where("tick_number = 3").first() == ([(1, 3)], 3)


def test_a_damaged_file_names_itself_in_one_line(ticks: Any, maker: Any) -> None:
    path = break_file(maker, 0, 0)
    with pytest.raises(Exception) as caught:
        ticks(columns="tick_number").collect()
    assert f"{maker.run_id}/{path.name}" in reason_of(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": "tick_number,nonsense"}, "TickData has no field nonsense"),
        ({"tickStart": "soon"}, "Option tickStart of the Spark format \"ticks\" cannot be 'soon'"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(ticks: Any, options: dict[str, str], reason: str) -> None:
    with pytest.raises(Exception) as caught:
        ticks(**options).collect()
    assert reason in reason_of(caught.value)


def test_partitions_are_shares_of_equal_bytes(maker: Any) -> None:
    files = [maker.storage.batch(info.storage_key) for info in maker.batches(8)]
    total = sum(file.size for file in files)
    options = {"path": f"{maker.storage.url}/{maker.run_id}", "partitionBytes": str(-(-total // 3))}
    shares = TicksReader(options, Ticks({}).schema()).partitions()
    weights = [sum(piece.slice.weight() for piece in share.pieces) for share in shares]
    assert len(shares) == 3
    assert max(weights) < 1.2 * min(weights)


def test_filters_that_are_answered_whole_are_not_asked_again(maker: Any) -> None:
    reader = TicksReader({"path": f"{maker.storage.url}/{maker.run_id}"}, Ticks({}).schema())
    tick, run = ("tick_number",), ("simulation_run_id",)
    whole = [IsNotNull(tick), GreaterThan(tick, 3), LessThanOrEqual(tick, 9)]
    rest = [In(tick, (4, 9)), StringContains(run, "x"), EqualTo(run, "x")]
    assert list(reader.pushFilters([*whole, *rest])) == rest


def test_a_session_without_delta_is_told_how_to_have_one(
    spark: SparkSession, maker: Any, resources: Any, index_metadata: Any
) -> None:
    maker.metadata()
    index_metadata()
    with pytest.raises(DeltaMissing, match="with_delta"):
        ticklake.spark.register(spark, lake=maker.lake_folder)


def test_the_page_shows_how_it_works(spark: SparkSession, maker: Any) -> None:
    maker.metadata()
    maker.batches(1)
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "tickStart" in block)
    names: dict[str, Any] = {"spark": spark}
    exec(code.replace("/shared/runs/RUN", f"{maker.storage.url}/{maker.run_id}").replace("1000", "90"), names)
    assert names["ticks"].count() == 10
