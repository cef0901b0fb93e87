"""The table `metadata`: whoever reads it reads what was written, and whoever writes it makes it so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import MetadataUnreadable, TableOfAnotherRun
from ticklake.lake.metadata import Written, disagreement, read_metadata, write_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.presence import step_of

RUN = "20251014-143025-550e8400"


def metadata(step: int = 1, shape: tuple[int, ...] = (60, 80), run: str = RUN) -> SimulationMetadata:
    environment = EnvironmentConfig(dimensions=len(shape), shape=shape, toroidal=[True] * len(shape))
    return SimulationMetadata(simulation_run_id=run, environment=environment, sampling_interval=step)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    directory = tmp_path / RUN / "metadata"
    assert write_metadata(directory, metadata()) is Written.NEW
    return directory


def file_of(table: Path) -> Path:
    (path,) = DeltaTable(table).file_uris()
    return Path(path)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


DAMAGES = {"cut off": cut, "one bit": flip, "gone": Path.unlink, "empty": lambda file: file.write_bytes(b"")}


def test_every_flipped_bit_is_noticed(table: Path) -> None:
    file = file_of(table)
    good = file.read_bytes()
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 1 << place % 8
        file.write_bytes(data)
        with pytest.raises(MetadataUnreadable):
            read_metadata(table, RUN)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_in_one_line_and_mended_by_the_next_write(table: Path, damage: object) -> None:
    damage(file_of(table))  # type: ignore[operator]
    with pytest.raises(MetadataUnreadable, match=f"ticklake index {RUN}"):
        read_metadata(table, RUN)
    assert "cannot be read" in disagreement(table, metadata())
    assert step_of(Catalog(table.parents[1]), RUN) is None
    assert write_metadata(table, metadata()) is Written.REPAIRED
    assert read_metadata(table, RUN) == metadata()
    assert write_metadata(table, metadata()) is None
    assert not disagreement(table, metadata())


def test_metadata_that_were_mended_take_the_place_of_the_first(table: Path) -> None:
    assert "simulation_info.samplingInterval is 1 instead of 5" in disagreement(table, metadata(step=5))
    assert write_metadata(table, metadata(step=5)) is Written.CHANGED
    found = read_metadata(table, RUN)
    assert found is not None and found.sampling_interval == 5
    assert "samplingInterval" in DeltaTable(table).history(1)[0]["ticklake.replaced"]
    assert DeltaTable(table).to_pyarrow_table().num_rows == 6, "in the place of the others, not beside them"


def test_metadata_of_another_run_are_neither_read_nor_replaced(table: Path) -> None:
    other = table.parents[1] / "20251015-143025-660e8400" / "metadata"
    shutil.copytree(table, other)
    for act in (
        lambda: read_metadata(other, "20251015-143025-660e8400"),
        lambda: write_metadata(other, metadata(run="20251015-143025-660e8400")),
    ):
        with pytest.raises(TableOfAnotherRun):
            act()


def test_its_pages_have_checksums(table: Path) -> None:
    file = file_of(table)
    data = bytearray(file.read_bytes())
    column = pq.read_metadata(file).row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start + column.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match="CRC checksum"):
        pq.ParquetFile(file, page_checksum_verification=True).read()


def test_nothing_is_read_where_there_is_no_table(tmp_path: Path) -> None:
    assert read_metadata(tmp_path / RUN / "metadata", RUN) is None
    assert not disagreement(tmp_path / RUN / "metadata", metadata())
