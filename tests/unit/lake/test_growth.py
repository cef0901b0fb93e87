"""Tables that an older version of TickLake has written: they get the columns that were added since, as null.

`tests/data/tables-of-schema-1` was written by the commit before the columns were added.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import ticklake
from ticklake.errors import OtherTableSchema, UnknownTableFormat
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta import Location
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.queries import query
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

OLD = Path(__file__).parents[2] / "data" / "tables-of-schema-1"
RUN = "20260301-12000000-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"
KINDS = (EnvironmentIndexer, OrganismIndexer)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "lake"))


def table_of(kind: type[EnvironmentIndexer] | type[OrganismIndexer]) -> Table:
    assert kind.table is not None
    return kind.table


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_table_gets_the_new_columns_as_null_and_keeps_its_rows(
    lake: Path, kind: type[EnvironmentIndexer] | type[OrganismIndexer]
) -> None:
    table = table_of(kind)
    place = lake / RUN / table.name
    before = DeltaTable(place)
    old_names, rows = [field.name for field in before.schema().fields], before.to_pyarrow_table()
    ledger = kind.ledger(Lake(lake), RUN)
    after = DeltaTable(place)
    assert (after.version(), ledger.version) == (2, 2)
    assert after.metadata().id == before.metadata().id
    new = [name for name in table.schema.names if name not in old_names]
    assert after.metadata().configuration | {"ticklake.schema": "2"} == after.metadata().configuration
    assert [field.name for field in after.schema().fields] == table.schema.names
    grown = after.to_pyarrow_table()
    assert grown.select(old_names).sort_by([(name, "ascending") for name in table.key]) == rows.sort_by(
        [(name, "ascending") for name in table.key]
    )
    assert all(grown[name].null_count == grown.num_rows for name in new)
    assert ledger.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 4, 5]
    kind.ledger(Lake(lake), RUN)
    assert DeltaTable(place).version() == 2, "it grows once"


def test_every_reader_sees_the_new_columns_of_an_old_table(lake: Path) -> None:
    EnvironmentIndexer.ledger(Lake(lake), RUN)
    rows = ticklake.read(lake / RUN, "environment_data", columns=["tick_number", "marker"]).to_arrow()
    assert rows["marker"].null_count == rows.num_rows == 125
    with query(Catalog(lake), "SELECT count(*), count(type), sum(cell_id) > 0 FROM environment_data") as found:
        assert list(found.rows) == [(125, 0, True)]


def test_an_old_table_is_read_before_it_grows(lake: Path) -> None:
    location = Lake(lake).location(RUN, "environment_data")
    ledger = open_existing(location, RUN)
    assert ledger is not None and ledger.version == 1
    assert ticklake.read(lake / RUN, "environment_data").to_arrow().num_rows == 125


def test_two_indexers_open_an_old_table_at_once(lake: Path) -> None:
    first = EnvironmentIndexer.ledger(Lake(lake), RUN)
    second = EnvironmentIndexer.ledger(Lake(lake), RUN)
    first.refresh()
    assert first.head == second.head


def small(location: Path, version: int, *names: str) -> Ledger:
    schema = pa.schema([("tick_number", pa.int64()), *((name, pa.int32()) for name in names)])
    return Ledger(Location.of(location), Table("small", schema, ("tick_number",), version))


def test_a_table_grows_only_by_columns_at_its_end_and_with_a_new_version(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    small(place, 1, "a")
    with pytest.raises(OtherTableSchema):
        small(place, 1, "a", "b")
    with pytest.raises(OtherTableSchema):
        small(place, 2, "b", "a")
    small(place, 2, "a", "b")
    small(place, 3, "a", "b", "c")
    configuration = DeltaTable(place).metadata().configuration
    assert (configuration["ticklake.schema"], configuration["ticklake.added"]) == ("3", '["b", "c"]')
    with pytest.raises(UnknownTableFormat, match="version '3', but only versions up to 2"):
        small(place, 2, "a", "b")
