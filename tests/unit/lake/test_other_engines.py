"""What another engine does to a table is followed, or the table is refused in one line. No row is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from ticklake.errors import NullInKey, StaleRewrite, TableAppendOnly, TableUnreadable, UnknownTableFormat
from ticklake.lake.delta import DeltaLog, Location, commits
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.empty import EMPTY, joined
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.queries import query
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.lake.verify.coverage import covered, row_counts
from ticklake.lake.verify.fingerprint import fingerprints
from ticklake.lake.verify.inspection import inspected
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32()), ("owner_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))


def folder_of(log: DeltaLog) -> Path:
    return Path(str(log.location))


def add(ledger: Ledger, tick: int) -> None:
    ledger.refresh()
    writer = ParquetFileWriter(ledger.location, f"{uuid4().hex}.parquet", TABLE)
    writer.append(pa.RecordBatch.from_arrays([[tick] * 3, [0, 1, 2], [7, 8, 9]], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Four commits of one tick each."""
    made = Ledger(Location.of(tmp_path / "run" / "cells"), TABLE)
    for tick in range(1, 5):
        add(made, tick)
    return made


def rows_in(ledger: Ledger) -> int:
    return int(DeltaTable(str(ledger.location)).to_pyarrow_table().num_rows)


def compact(ledger: Ledger) -> None:
    for _ in Compaction(ledger, BY_HAND).steps():
        pass


def partition(directory: Path) -> None:
    rows = DeltaTable(directory).to_pyarrow_table()
    write_deltalake(directory, rows, mode="overwrite", schema_mode="overwrite", partition_by=["owner_id"])


def delete_by_vector(directory: Path) -> None:
    """Says that a file has deleted rows; which ones does not matter to who cannot read it."""
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    file = directory / "_delta_log" / commits.name_of(int(DeltaTable(directory).version()) + 1)
    file.write_text("\n".join(map(json.dumps, [{"commitInfo": {"operation": "DELETE"}}, protocol])) + "\n")


@pytest.mark.parametrize(("change", "reason"), [(partition, "owner_id"), (delete_by_vector, "deletionVectors")])
def test_a_table_whose_rows_are_not_all_in_its_files_is_refused_by_all(
    ledger: Ledger, change: Callable[[Path], None], reason: str
) -> None:
    change(folder_of(ledger))
    users: list[Callable[[], Any]] = [
        lambda: Ledger(ledger.location, TABLE),
        lambda: open_existing(ledger.location, folder_of(ledger).parent.name),
        lambda: add(ledger, 5),
        ledger.refresh,
        lambda: covered(ledger.location),
        lambda: row_counts(ledger.location),
        lambda: Catalog(folder_of(ledger).parents[1]).facts("run", "cells"),
    ]
    for use in users:
        with pytest.raises(UnknownTableFormat, match=reason) as raised:
            use()
        assert isinstance(raised.value, TableUnreadable)
        assert "\n" not in str(raised.value)


def test_a_file_of_another_engine_may_have_any_name(ledger: Ledger) -> None:
    name = "pärt 1%.parquet"
    pq.write_table(pa.table([[9], [0], [7]], schema=SCHEMA), folder_of(ledger) / name)
    size = (folder_of(ledger) / name).stat().st_size
    new = {"path": quote(name), "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    file = folder_of(ledger) / "_delta_log" / commits.name_of(ledger.version + 1)
    file.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n" + json.dumps({"add": new}) + "\n")
    vacuum = Vacuum(ledger.location, folder_of(ledger).parent.name, 0, force=True)
    list(vacuum.remove(vacuum.find()))
    assert covered(ledger.location).ticks.tolist() == [1, 2, 3, 4, 9]
    assert ledger.location.file(name) in Catalog(folder_of(ledger).parents[1]).files("run", "cells")


def test_a_file_is_removed_by_the_very_name_that_it_was_added_by(ledger: Ledger) -> None:
    """A name can be written in more than one way, and readers compare them as they are written."""
    (folder_of(ledger) / "of=1").mkdir()
    rows = pa.table([[9] * 3, [0, 1, 2], [7, 8, 9]], schema=SCHEMA)
    pq.write_table(rows, folder_of(ledger) / "of=1" / "a.parquet")
    size = (folder_of(ledger) / "of=1" / "a.parquet").stat().st_size
    new = {"path": "of=1/a.parquet", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    stats = {"stats": json.dumps({"numRecords": 3, "minValues": {"tick_number": 9}, "maxValues": {"tick_number": 9}})}
    actions = [{"commitInfo": {"operation": "WRITE"}}, {"add": new | stats}]
    file = folder_of(ledger) / "_delta_log" / commits.name_of(ledger.version + 1)
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")
    compact(ledger)
    assert (len(ledger.files), rows_in(ledger)) == (1, 15)
    compact(Ledger(ledger.location, TABLE))
    assert rows_in(ledger) == 15


@pytest.mark.parametrize("name", ["a b.parquet", "a%20b.parquet", "100%.parquet"])
def test_a_file_with_any_name_is_found_where_it_is(ledger: Ledger, name: str) -> None:
    """The log writes a name as a URL does."""
    rows = pa.table([[9] * 3, [0, 1, 2], [7, 8, 9]], schema=SCHEMA)
    pq.write_table(rows, folder_of(ledger) / name)
    size = (folder_of(ledger) / name).stat().st_size
    new = {"path": quote(name), "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    file = folder_of(ledger) / "_delta_log" / commits.name_of(ledger.version + 1)
    file.write_text("\n".join(map(json.dumps, [{"commitInfo": {"operation": "WRITE"}}, {"add": new}])) + "\n")
    catalog = Catalog(folder_of(ledger).parents[1])
    assert ledger.location.file(name) in catalog.files("run", "cells")
    assert all(file.exists() for file in catalog.files("run", "cells"))
    with query(catalog, "SELECT count(*) FROM cells") as answer:
        assert list(answer.rows) == [(15,)]


def stale_optimize(ledger: Ledger) -> DeltaTable:
    """An OPTIMIZE that began before our compaction and commits after it: delta-rs does not notice."""
    other = DeltaTable(str(ledger.location))
    compact(Ledger(ledger.location, TABLE))
    other.optimize.compact()
    assert rows_in(ledger) == 24
    return other


def test_a_table_that_a_late_optimize_has_doubled_is_refused_until_it_is_restored(ledger: Ledger) -> None:
    stale_optimize(ledger)
    for use in (ledger.refresh, ledger.refresh, lambda: add(ledger, 5), lambda: Ledger(ledger.location, TABLE)):
        with pytest.raises(StaleRewrite, match=r"restore\(5\)") as raised:
            use()
        assert "\n" not in str(raised.value)
    DeltaTable(str(ledger.location)).restore(5)
    ledger.refresh()
    add(ledger, 5)
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2, 3, 4, 5]
    assert rows_in(ledger) == 15


@pytest.mark.parametrize("again", [DeltaTable.delete, lambda delta, _: delta.optimize.compact()])
def test_doubled_rows_are_refused_also_when_they_are_rewritten(
    ledger: Ledger, again: Callable[[DeltaTable, str], object]
) -> None:
    stale_optimize(ledger)
    again(DeltaTable(str(ledger.location)), "cell_id = 0")
    for use in (ledger.refresh, lambda: Ledger(ledger.location, TABLE)):
        with pytest.raises(StaleRewrite, match=r"restore\(5\)"):
            use()
    DeltaTable(str(ledger.location)).restore(5)
    add(ledger, 5)
    assert rows_in(ledger) == 15


def test_doubled_rows_that_are_overwritten_are_gone(ledger: Ledger) -> None:
    good = DeltaTable(str(ledger.location)).to_pyarrow_table()
    stale_optimize(ledger)
    write_deltalake(str(ledger.location), good, mode="overwrite")
    add(Ledger(ledger.location, TABLE), 5)
    assert rows_in(ledger) == 15


def without_rows(ledger: Ledger, *ticks: int) -> None:
    """A commit that says of these ticks that they have no rows."""
    for tick in ticks:
        ledger.commit([], {EMPTY: json.dumps([[tick, tick, 1]])})


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_restore_has_undone_is_not_there(ledger: Ledger, checkpoint: bool) -> None:
    without_rows(ledger, 5)
    version = ledger.version
    without_rows(ledger, 6)
    add(ledger, 7)
    if checkpoint:
        ledger.checkpoint()
    DeltaTable(str(ledger.location)).restore(version)
    ledger.refresh()
    for look in (ledger, Ledger(ledger.location, TABLE)):
        assert look.present([TickRange(0, 9)]).tolist() == [1, 2, 3, 4, 5]
    without_rows(ledger, 6)
    ledger.checkpoint()
    DeltaTable(str(ledger.location)).restore(version + 2)
    assert covered(ledger.location).ticks.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_many_restores_are_followed_in_no_time(ledger: Ledger) -> None:
    for _ in range(20):
        add(ledger, 5)
        without_rows(ledger, 6)
        DeltaTable(str(ledger.location)).restore(ledger.version - 2)
        ledger.refresh()
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2, 3, 4]


def test_a_restore_by_time_leaves_what_has_no_rows_to_be_indexed_again(ledger: Ledger) -> None:
    without_rows(ledger, 5)
    now = datetime.now(UTC)
    add(ledger, 6)
    DeltaTable(str(ledger.location)).restore(now)
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2, 3, 4]


def test_a_tick_below_0_is_unexpected_and_no_damage(ledger: Ledger) -> None:
    write_deltalake(str(ledger.location), pa.table([[-1], [0], [0]], schema=SCHEMA), mode="append")
    for look in (ledger, Ledger(ledger.location, TABLE)):
        add(look, look.version)
        assert look.present([TickRange(-5, 9)]).tolist() == covered(ledger.location).ticks.tolist()
    assert inspected(ledger.location).flaws == {}


def test_an_optimize_of_another_engine_that_is_in_time_is_followed(ledger: Ledger) -> None:
    DeltaTable(str(ledger.location)).optimize.compact()
    add(ledger, 5)
    add(Ledger(ledger.location, TABLE), 6)
    assert rows_in(ledger) == 18


def of_another_writer(ledger: Ledger) -> Path:
    """A checkpoint that says the same as ours in other bytes."""
    ledger.checkpoint()
    (file,) = (folder_of(ledger) / "_delta_log").glob("*.checkpoint.parquet")
    pq.write_table(pq.read_table(file), file, compression="gzip")
    return file


def test_a_checkpoint_of_another_writer_stays_if_the_commits_under_it_are_gone(ledger: Ledger) -> None:
    checkpoint = of_another_writer(ledger)
    for version in range(ledger.version):
        (folder_of(ledger) / "_delta_log" / commits.name_of(version)).unlink()
    assert inspected(ledger.location).flaws == {}
    add(Ledger(ledger.location, TABLE), 5)
    assert checkpoint.exists()
    assert rows_in(ledger) == 15


def test_a_damaged_checkpoint_that_nothing_can_replace_is_not_touched(ledger: Ledger) -> None:
    checkpoint = of_another_writer(ledger)
    checkpoint.write_bytes(b"PAR1")
    for version in range(ledger.version + 1):
        (folder_of(ledger) / "_delta_log" / commits.name_of(version)).unlink()
    with pytest.raises(Exception, match="cells"):
        Ledger(ledger.location, TABLE)
    assert checkpoint.read_bytes() == b"PAR1"


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: b"", lambda data: data[:100] + data])
def test_the_advice_for_a_damaged_checkpoint_works(ledger: Ledger, damage: Callable[[bytes], bytes]) -> None:
    ledger.checkpoint()
    (checkpoint,) = (folder_of(ledger) / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    advice = "remove _last_checkpoint beside it and then the file itself"
    assert advice in inspected(ledger.location).flaws[str(checkpoint)]
    (checkpoint.parent / "_last_checkpoint").unlink()
    checkpoint.unlink()
    assert inspected(ledger.location).flaws == {}
    assert (rows_in(ledger), covered(ledger.location).ticks.tolist()) == (12, [1, 2, 3, 4])


@pytest.mark.warns("Set .* aside")
def test_a_checkpoint_that_is_not_as_we_wrote_it_is_set_aside_if_all_commits_are_there(ledger: Ledger) -> None:
    checkpoint = of_another_writer(ledger)
    add(Ledger(ledger.location, TABLE), 5)
    assert not checkpoint.exists()
    assert rows_in(ledger) == 15


def test_no_row_is_removed_from_a_table_that_is_append_only(ledger: Ledger) -> None:
    DeltaTable(str(ledger.location)).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TableAppendOnly, match=r"delta\.appendOnly"):
        ledger.plan_removal(np.array([1], np.int64), TickRange(0, 9), 1)
    with pytest.raises(TableAppendOnly):
        ledger.remove(TickRange(1, 1))
    add(ledger, 5)
    compact(ledger)
    assert (len(ledger.files), rows_in(ledger)) == (1, 15)


@pytest.mark.parametrize("ticks", [[None], [None, 7, 8], [9, None]])
def test_a_row_without_a_tick_hides_no_tick(ledger: Ledger, ticks: list[int | None]) -> None:
    rows = pa.table([ticks, [0] * len(ticks), [0] * len(ticks)], schema=SCHEMA)
    write_deltalake(str(ledger.location), rows, mode="append")
    ledger.refresh()
    found = ledger.present([TickRange(0, 9)])
    assert found.dtype == np.int64
    assert found.tolist() == sorted({1, 2, 3, 4, *filter(None, ticks)})
    assert fingerprints(rows).ticks.tolist() == [tick for tick in ticks if tick is not None]
    with pytest.raises(TableUnreadable, match="rows without tick_number"):
        covered(ledger.location)


def test_a_row_without_a_tick_is_never_merged_away(ledger: Ledger) -> None:
    write_deltalake(str(ledger.location), pa.table([[None, 7, 7], [0, 1, 2], [0, 0, 0]], schema=SCHEMA), mode="append")
    with pytest.raises(NullInKey):
        compact(ledger)
    assert rows_in(ledger) == 15


def test_what_is_no_integer_is_no_tick() -> None:
    with pytest.raises(TypeError):
        joined([np.array([1.0, np.nan])])  # type: ignore[list-item]
