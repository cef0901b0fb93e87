"""Compaction: fewer files, the same rows, whoever else writes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import DuplicateKey
from ticklake.lake.delta import DeltaLog, Location, parquet
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.table import Table
from ticklake.lake.upkeep import merging
from ticklake.lake.upkeep.compaction import BY_HAND, Compacted, Compaction, Policy, plan
from ticklake.lake.upkeep.merging import tick_ranges
from ticklake.lake.verify.fingerprint import fingerprints
from ticklake.ticks import TickRange

SCHEMA = pa.schema(
    [("tick_number", pa.int64()), ("id", pa.int32()), ("name", pa.string()), ("alive", pa.bool_()), ("e", pa.float64())]
)
TABLE = Table("beings", SCHEMA, ("tick_number", "id"))


def folder_of(log: DeltaLog) -> Path:
    return Path(str(log.location))


def rows(ticks: Sequence[int], each: int = 3) -> pa.RecordBatch:
    numbers = [tick for tick in ticks for _ in range(each)]
    ids = list(range(each)) * len(ticks)
    names = [None if (tick + one) % 5 == 0 else f"n{one}" for tick, one in zip(numbers, ids, strict=True)]
    alive = [one % 2 == 0 for one in ids]
    return pa.RecordBatch.from_arrays([numbers, ids, names, alive, [one / 7 for one in numbers]], schema=SCHEMA)


def write(directory: Path, name: str, *parts: pa.RecordBatch) -> ParquetFile:
    writer = ParquetFileWriter(Location.of(directory), f"{name}.parquet", TABLE)
    for part in parts:
        writer.append(part)
    file = writer.close()
    assert file is not None
    return file


def add(ledger: Ledger, name: str, *parts: pa.RecordBatch) -> None:
    ledger.commit([write(folder_of(ledger), name, *parts)], {})


def fingerprint(directory: Path) -> list[list[int]]:
    return [column.tolist() for column in fingerprints(DeltaTable(directory).to_pyarrow_table())]


def optimize(ledger: Ledger, policy: Policy = BY_HAND) -> Compacted:
    return sum(Compaction(ledger, policy).steps(), Compacted())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Location.of(tmp_path), TABLE)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """Files in and out of order, one within the span of another, one whose ticks are not in order."""
    add(ledger, "a", rows([0, 1, 2]))
    add(ledger, "d", rows([10, 30, 50]))
    add(ledger, "b", rows([7, 8]), rows([4, 5]))
    add(ledger, "c", rows(range(20, 29)))
    ledger.commit([], {"ticklake.empty": "[[3, 3, 1]]"})
    return ledger


def test_many_files_become_one_with_the_same_rows(filled: Ledger) -> None:
    before = fingerprint(folder_of(filled))
    done = optimize(filled)
    assert (done.files_removed, done.files_added) == (4, 1)
    assert fingerprint(folder_of(filled)) == before
    assert len(filled.files) == len(DeltaTable(str(filled.location)).file_uris()) == 1


def test_a_compacted_file_is_in_order_of_its_key_and_laid_out_like_any_other(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 8)
    for start in (30, 0, 20, 10):
        add(ledger, str(start), rows(range(start, start + 10)))
    optimize(ledger)
    (path,) = DeltaTable(str(ledger.location)).file_uris()
    table = pq.read_table(path)
    assert table.select(["tick_number", "id"]).to_pylist() == [
        {"tick_number": tick, "id": one} for tick in range(40) for one in range(3)
    ]
    whole = write(folder_of(ledger), "whole", rows(range(40)))
    layouts = [_layout(Path(path)), _layout(folder_of(ledger) / whole.path)]
    assert layouts[0] == layouts[1]
    assert layouts[0]["groups"] == 15
    actions = pa.table(DeltaTable(str(ledger.location)).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["num_records"], actions["min.tick_number"], actions["max.tick_number"]) == (120, 0, 39)


def _layout(path: Path) -> dict[str, object]:
    metadata = pq.read_metadata(path)
    columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    return {
        "groups": metadata.num_row_groups,
        "encodings": [column.encodings for column in columns],
        "compression": [column.compression for column in columns],
        "index": [column.has_column_index for column in columns],
        "schema": metadata.schema.to_arrow_schema(),
    }


def test_memory_is_bounded_by_stretches_of_ticks(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(folder_of(filled))
    monkeypatch.setattr(merging, "_ROWS_AT_ONCE", 7)
    files = [filled.location.file(file.path) for file in filled.files]
    assert max(batch.num_rows for batch in merging.merged(files, TABLE)) <= 7
    optimize(filled)
    assert fingerprint(folder_of(filled)) == before


@given(st.dictionaries(st.integers(0, 1000), st.integers(1, 20)), st.integers(1, 30))
def test_stretches_hold_every_tick_once_and_few_rows(counts: dict[int, int], at_once: int) -> None:
    ticks = np.array(sorted(counts), np.int64)
    found = list(tick_ranges(ticks, np.array([counts[tick] for tick in sorted(counts)], np.int64), at_once))
    held = [[tick for tick in sorted(counts) if tick in stretch] for stretch in found]
    assert [tick for part in held for tick in part] == sorted(counts)
    assert all(len(part) == 1 or sum(counts[tick] for tick in part) <= at_once for part in held)


def test_the_ledger_sees_ticks_through_the_compacted_file(filled: Ledger) -> None:
    other = Ledger(filled.location, TABLE)
    there = other.present([TickRange(0, 99)]).tolist()
    optimize(filled)
    for old in ("a", "b", "c", "d"):
        (folder_of(filled) / f"{old}.parquet").unlink()
    other.refresh()
    for ledger in (filled, other, Ledger(filled.location, TABLE)):
        assert ledger.present([TickRange(0, 99)]).tolist() == there
    add(other, "e", rows([60]))
    assert other.present([TickRange(29, 99)]).tolist() == [30, 50, 60]


def test_readers_see_the_same_table_before_and_after(filled: Ledger) -> None:
    def seen() -> list[object]:
        delta = DeltaTable(str(filled.location))
        beings = duckdb.from_arrow(delta.to_pyarrow_dataset())
        return [
            beings.order("tick_number, id").fetchall(),
            pl.read_delta(str(filled.location)).sort("tick_number", "id").rows(),
            delta.to_pandas().sort_values(["tick_number", "id"]).to_dict("list"),
            DeltaTable(str(filled.location), version=2).to_pyarrow_table().num_rows,
        ]

    before = repr(seen())
    optimize(filled)
    assert repr(seen()) == before


def test_a_compaction_says_that_it_changed_no_data(filled: Ledger) -> None:
    optimize(filled)
    commit = DeltaTable(str(filled.location)).history(1)[0]
    assert commit["operation"] == "OPTIMIZE"
    assert commit["operationMetrics"]["numRemovedFiles"] == 4
    assert "ticklake.sources" not in commit
    text = (folder_of(filled) / "_delta_log" / f"{filled.version:020d}.json").read_text()
    assert text.count('"dataChange":false') == 5
    assert '"dataChange":true' not in text


def in_between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Does something once, when the merged file is written and not yet committed."""
    left = [act]

    def reach(point: str) -> None:
        if point == "lake.compaction.written" and left:
            left.pop()()

    monkeypatch.setattr("ticklake.faults.reach", reach)


def test_an_append_in_between_does_not_stop_it(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Ledger(filled.location, TABLE)
    in_between(monkeypatch, lambda: add(other, "late", rows([100])))
    assert next(Compaction(filled, BY_HAND).steps()).files_removed == 4
    ticks = [*range(3), 4, 5, 7, 8, 10, *range(20, 29), 30, 50, 100]
    assert sorted(set(fingerprint(folder_of(filled))[0])) == ticks


def test_of_two_at_once_one_wins_and_the_other_leaves_nothing(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(folder_of(filled))
    other = Ledger(filled.location, TABLE)
    in_between(monkeypatch, lambda: optimize(other) and None)
    assert optimize(filled) == Compacted()
    assert fingerprint(folder_of(filled)) == before
    files = {path.name for path in folder_of(filled).glob("*-compacted.parquet")}
    assert files == {file.path for file in filled.files}


def test_ticks_removed_in_between_stay_removed(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Ledger(filled.location, TABLE)
    in_between(monkeypatch, lambda: other.remove(TickRange(20, 28)))
    optimize(filled)
    assert set(fingerprint(folder_of(filled))[0]) == {0, 1, 2, 4, 5, 7, 8, 10, 30, 50}
    assert filled.present([TickRange(0, 99)]).tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 10, 30, 50]


def test_a_table_with_a_key_twice_is_left_as_it_is(filled: Ledger) -> None:
    add(filled, "twin", rows([8]))
    before = fingerprint(folder_of(filled))
    with pytest.raises(DuplicateKey):
        optimize(filled)
    assert fingerprint(folder_of(filled)) == before
    assert not list(folder_of(filled).glob("*-compacted.parquet"))


def test_a_table_is_opened_by_what_it_says_of_itself(filled: Ledger, tmp_path: Path) -> None:
    ledger = open_existing(filled.location, folder_of(filled).parent.name)
    assert ledger is not None
    assert ledger.table == TABLE
    DeltaTable.create(tmp_path / "other", SCHEMA)
    assert open_existing(Location.of(tmp_path / "other"), "run") is None


# The policy

SMALL = Policy(full_bytes=1000, fan_in=4)
HAND = Policy(full_bytes=1000, fan_in=2, growth=1)
sizes = st.lists(st.integers(1, 1200), max_size=60)


def live(sizes: Sequence[int]) -> list[LiveFile]:
    files = [LiveFile(f"{n}", size, 1, TickRange(10 * n, 10 * n + 9)) for n, size in enumerate(sizes)]
    return random.Random(1).sample(files, len(files))


def settled(files: list[LiveFile], policy: Policy) -> tuple[list[LiveFile], int]:
    """What is left when the plan has been followed to its end, and how many bytes were written for it."""
    written = 0
    while groups := plan(files, policy):
        for group in groups:
            size = sum(file.size for file in group)
            written += size
            ticks = TickRange(group[0].ticks.start, group[-1].ticks.end)
            files = [file for file in files if file not in group] + [LiveFile(group[0].path, size, 1, ticks)]
    return files, written


@given(sizes, st.sampled_from([SMALL, HAND]))
def test_groups_are_neighbours_and_make_no_file_too_large(sizes: list[int], policy: Policy) -> None:
    files = live(sizes)
    order = sorted(files, key=lambda file: file.ticks)
    taken: list[LiveFile] = []
    for group in plan(files, policy):
        place = order.index(group[0])
        assert order[place : place + len(group)] == group
        assert len(group) > 1
        size = sum(file.size for file in group)
        assert 2 * size >= policy.full_bytes or policy.growth * max(file.size for file in group) <= size
        assert size <= policy.full_bytes
        assert all(file.size < policy.full_bytes // 2 for file in group)
        taken += group
    assert len(taken) == len(set(taken))


@given(sizes)
def test_by_hand_no_two_neighbours_are_left_that_fit_into_one(sizes: list[int]) -> None:
    left, _ = settled(live(sizes), HAND)
    small = [file.size < 500 for file in sorted(left, key=lambda file: file.ticks)]
    assert not any(one and other for one, other in pairwise(small))


@given(st.integers(1, 15), st.integers(1, 600))
def test_in_the_background_files_stay_few_and_rows_are_rewritten_seldom(size: int, flushes: int) -> None:
    files: list[LiveFile] = []
    written = 0
    for number in range(flushes):
        files.append(LiveFile(f"{number}", size, 1, TickRange(number, number)))
        files, more = settled(files, SMALL)
        written += more
    full = sum(file.size >= 500 for file in files)
    assert len(files) - full <= 26
    assert written <= 8 * size * flushes


def test_a_file_that_could_hold_any_tick_is_left_alone() -> None:
    files = [LiveFile("a", 5, 1, ANY_TICK), *live([5, 5])]
    assert plan(files, BY_HAND) == [sorted(files[1:], key=lambda file: file.ticks)]
