"""The table `metadata`: whoever reads it reads what was written, and whoever writes it makes it so."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ticklake import faults
from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import LakeUnreadable, LakeUnwritable, MetadataUnreadable, TableOfAnotherRun
from ticklake.lake.delta import Location, recovery
from ticklake.lake.metadata import Written, disagreement, read_metadata, write_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.presence import world_of

RUN = "20251014-143025-550e8400"


def metadata(step: int = 1, shape: tuple[int, ...] = (60, 80), run: str = RUN) -> SimulationMetadata:
    environment = EnvironmentConfig(dimensions=len(shape), shape=shape, toroidal=[True] * len(shape))
    return SimulationMetadata(simulation_run_id=run, environment=environment, sampling_interval=step)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    directory = tmp_path / RUN / "metadata"
    assert write_metadata(Location.of(directory), metadata()) is Written.NEW
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
            read_metadata(Location.of(table), RUN)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_in_one_line_and_mended_by_the_next_write(table: Path, damage: object) -> None:
    damage(file_of(table))  # type: ignore[operator]
    with pytest.raises(MetadataUnreadable, match=f"ticklake index {RUN}"):
        read_metadata(Location.of(table), RUN)
    assert "cannot be read" in disagreement(Location.of(table), metadata())
    assert world_of(Catalog(table.parents[1]), RUN) is None
    assert write_metadata(Location.of(table), metadata()) is Written.REPAIRED
    assert read_metadata(Location.of(table), RUN) == metadata()
    assert write_metadata(Location.of(table), metadata()) is None
    assert not disagreement(Location.of(table), metadata())


def commit_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def replaced(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))


def overwritten(table: Path) -> None:
    """Makes a table of three commits and damages the middle one."""
    write_metadata(Location.of(table), metadata(step=5))
    write_metadata(Location.of(table), metadata())
    replaced(commit_of(table, 2), b'"timestamp":1', b'"timestamp":2')


def checkpointed(table: Path) -> None:
    """Damages a commit that a checkpoint sums up."""
    DeltaTable(table).create_checkpoint()
    replaced(commit_of(table, 1), b'"timestamp":1', b'"timestamp":2')


LOGS = {
    "rows deleted": lambda table: DeltaTable(table).delete(),
    "log emptied": lambda table: [file.unlink() for file in (table / "_delta_log").iterdir()],
    "one bit of the newest commit": lambda table: replaced(commit_of(table, 1), b'"timestamp":1', b'"timestamp":2'),
    "newest commit cut off": lambda table: commit_of(table, 1).write_bytes(commit_of(table, 1).read_bytes()[:100]),
    "newest commit empty": lambda table: commit_of(table, 1).write_bytes(b""),
    "newest commit gone": lambda table: commit_of(table, 1).unlink(),
    "first commit gone": lambda table: commit_of(table, 0).unlink(),
    "first commit cut off": lambda table: commit_of(table, 0).write_bytes(commit_of(table, 0).read_bytes()[:100]),
    "first commit empty": lambda table: commit_of(table, 0).write_bytes(b""),
    "first commit no JSON": lambda table: commit_of(table, 0).write_bytes(b"{}}\n{}\n"),
    "an earlier commit": overwritten,
    "a commit behind a checkpoint": checkpointed,
}


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("damage", LOGS.values(), ids=LOGS)
def test_a_damaged_log_is_told_with_advice_that_works(table: Path, damage: object) -> None:
    damage(table)  # type: ignore[operator]
    for file in (table / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    told = disagreement(Location.of(table), metadata())
    assert f"`ticklake index {RUN}` writes it again" in told and "tried again" not in told
    assert write_metadata(Location.of(table), metadata()) in (Written.REPAIRED, Written.NEW)
    assert not disagreement(Location.of(table), metadata())
    assert read_metadata(Location.of(table), RUN) == metadata()
    assert write_metadata(Location.of(table), metadata()) is None
    assert DeltaTable(table).to_pyarrow_table().num_rows == 6


def test_rows_that_were_deleted_are_not_waited_for(table: Path) -> None:
    DeltaTable(table).delete()
    with pytest.raises(MetadataUnreadable, match="it has no rows"):
        read_metadata(Location.of(table), RUN)


def test_a_table_that_is_being_created_is_waited_for(table: Path) -> None:
    commit_of(table, 1).unlink()
    assert read_metadata(Location.of(table), RUN) is None


def test_a_log_that_is_copied_back_is_not_set_aside(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = commit_of(table, 1).read_bytes()
    replaced(commit_of(table, 1), b'"timestamp":1', b'"timestamp":2')
    copied: list[int] = []

    def sleep(_: float) -> None:
        if not copied:
            copied.append(commit_of(table, 1).write_bytes(whole))

    monkeypatch.setattr(recovery.time, "sleep", sleep)
    assert write_metadata(Location.of(table), metadata()) is None
    assert copied and not list(table.rglob("*.torn"))


@pytest.mark.warns("Set .* aside")
def test_two_writers_set_a_damaged_log_aside_once(table: Path) -> None:
    replaced(commit_of(table, 1), b'"timestamp":1', b'"timestamp":2')
    os.utime(commit_of(table, 1), (0, 0))
    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda _: write_metadata(Location.of(table), metadata()), range(4)))
    assert Written.REPAIRED in written
    assert read_metadata(Location.of(table), RUN) == metadata()
    assert len(list(table.rglob("*.torn"))) == 2


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_while_the_log_is_set_aside_is_repaired_by_the_next_write(table: Path, nth: int) -> None:
    replaced(commit_of(table, 1), b'"timestamp":1', b'"timestamp":2')
    os.utime(commit_of(table, 1), (0, 0))
    faults.arm(f"lake.set_aside.after:full:{nth}")
    try:
        with pytest.raises(LakeUnwritable):
            write_metadata(Location.of(table), metadata())
    finally:
        faults.arm("")
    assert f"`ticklake index {RUN}` writes it again" in disagreement(Location.of(table), metadata())
    write_metadata(Location.of(table), metadata())
    assert read_metadata(Location.of(table), RUN) == metadata()


def test_a_file_that_cannot_be_read_is_no_damage(table: Path) -> None:
    file = file_of(table)
    file.rename(table / "away")
    file.mkdir()
    told = disagreement(Location.of(table), metadata())
    assert "Make it readable" in told and "tried again" not in told
    with pytest.raises(LakeUnreadable):
        write_metadata(Location.of(table), metadata())
    assert not list(table.rglob("*.torn"))
    file.rmdir()
    (table / "away").rename(file)
    assert not disagreement(Location.of(table), metadata())


def test_metadata_that_were_mended_take_the_place_of_the_first(table: Path) -> None:
    assert "simulation_info.samplingInterval is 1 instead of 5" in disagreement(Location.of(table), metadata(step=5))
    assert write_metadata(Location.of(table), metadata(step=5)) is Written.CHANGED
    found = read_metadata(Location.of(table), RUN)
    assert found is not None and found.sampling_interval == 5
    assert "samplingInterval" in DeltaTable(table).history(1)[0]["ticklake.replaced"]
    assert DeltaTable(table).to_pyarrow_table().num_rows == 6, "in the place of the others, not beside them"


def test_metadata_of_another_run_are_neither_read_nor_replaced(table: Path) -> None:
    other = table.parents[1] / "20251015-143025-660e8400" / "metadata"
    shutil.copytree(table, other)
    for act in (
        lambda: read_metadata(Location.of(other), "20251015-143025-660e8400"),
        lambda: write_metadata(Location.of(other), metadata(run="20251015-143025-660e8400")),
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
    assert read_metadata(Location.of(tmp_path / RUN / "metadata"), RUN) is None
    assert not disagreement(Location.of(tmp_path / RUN / "metadata"), metadata())
