"""What a table holds: ticks with rows and without, rows counted, keys that are there twice, fingerprints of ticks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from ticklake.completeness import contents
from ticklake.errors import TableUnreadable
from ticklake.lake.delta import Location
from ticklake.lake.empty import EMPTY, EmptyTicks, packed
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.verify import coverage
from ticklake.lake.verify.coverage import RowCounts, covered, row_counts
from ticklake.lake.verify.deep import Versions, judge
from ticklake.lake.verify.fingerprint import Fingerprints, fingerprints, merged
from ticklake.ticks import Grid, TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("id", pa.int32()), ("name", pa.string()), ("alive", pa.bool_())])
KEY = ("tick_number", "id")


def rows(ticks: list[int], ids: list[int], names: list[str | None] | None = None) -> pa.Table:
    names = names if names is not None else [f"n{number}" for number in ids]
    return pa.table([ticks, ids, names, [number % 2 == 0 for number in ids]], schema=SCHEMA)


@given(st.sets(st.integers(0, 10_000)))
def test_empty_ticks_come_back_as_they_were(ticks: set[int]):
    ascending = np.array(sorted(ticks), np.int64)
    assert EmptyTicks(packed(ascending)).all().tolist() == ascending.tolist()


def test_empty_ticks_are_packed_into_runs():
    assert packed(np.array([0, 10, 20, 30, 41], np.int64)) == "[[0, 30, 10], [41, 41, 1]]"


def test_a_tick_without_rows_is_in_the_table_once_its_commit_says_so(tmp_path: Path):
    ledger = Ledger(Location.of(tmp_path), Table("t", SCHEMA, KEY))
    ledger.commit([], {EMPTY: packed(np.array([3, 4, 5], np.int64))})
    assert ledger.present([TickRange(4, 9)]).tolist() == [4, 5]
    assert Ledger(Location.of(tmp_path), Table("t", SCHEMA, KEY)).present([TickRange(0, 9)]).tolist() == [3, 4, 5]
    write_deltalake(tmp_path, rows([1, 1, 7], [1, 2, 1]), mode="append")
    found = covered(Location.of(tmp_path))
    assert (found.with_rows.tolist(), found.without_rows.tolist()) == ([1, 7], [3, 4, 5])
    assert found.ticks.tolist() == [1, 3, 4, 5, 7]


def test_a_table_that_is_not_there_covers_nothing(tmp_path: Path):
    assert covered(Location.of(tmp_path / "none")).ticks.tolist() == []
    assert row_counts(Location.of(tmp_path / "none"), KEY).rows.sum() == 0


def test_rows_are_counted_and_keys_that_are_there_twice_are_named(tmp_path: Path):
    write_deltalake(tmp_path, rows([1, 1, 2], [1, 2, 1]))
    write_deltalake(tmp_path, rows([2, 3], [1, 9]), mode="append")
    counts = row_counts(Location.of(tmp_path), KEY)
    assert (counts.ticks.tolist(), counts.rows.tolist()) == ([1, 2, 3], [2, 2, 1])
    assert (counts.duplicated, counts.duplicates) == (1, [{"tick_number": 2, "id": 1}])


def test_counting_in_stretches_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_deltalake(tmp_path, rows([tick for tick in range(100) for _ in range(3)], [0, 1, 1] * 100))
    whole = row_counts(Location.of(tmp_path), KEY)
    monkeypatch.setattr(coverage, "_ROWS_AT_ONCE", 7)
    parts = row_counts(Location.of(tmp_path), KEY)
    assert (parts.ticks.tolist(), parts.rows.tolist()) == (whole.ticks.tolist(), whole.rows.tolist())
    assert parts.duplicated == whole.duplicated == 100


def test_a_damaged_table_is_an_error_that_names_it(tmp_path: Path):
    write_deltalake(tmp_path, rows([1], [1]))
    for path in DeltaTable(tmp_path).file_uris():
        Path(path).write_bytes(b"rubbish")
    with pytest.raises(TableUnreadable, match=tmp_path.name):
        covered(Location.of(tmp_path))


# Fingerprints

values = st.tuples(st.integers(0, 5), st.integers(0, 50), st.sampled_from([None, "", "a", "b"]))


@given(st.lists(values), st.randoms())
def test_a_fingerprint_does_not_depend_on_order_or_on_how_rows_are_cut(found: list[tuple], rng):
    whole = fingerprints(rows(*map(list, zip(*found, strict=True))) if found else rows([], [], []))
    shuffled = rng.sample(found, len(found))
    middle = len(found) // 2
    parts = [
        fingerprints(rows(*map(list, zip(*part, strict=True))))
        for part in (shuffled[:middle], shuffled[middle:])
        if part
    ]
    together = merged(parts)
    assert [column.tolist() for column in whole] == [column.tolist() for column in together]


@pytest.mark.parametrize(
    "other",
    [
        rows([1, 1], [1, 3]),
        rows([1, 1], [1, 2], ["n1", None]),
        rows([1, 1], [1, 2], ["n1", "n3"]),
        rows([1, 1], [2, 1], ["n1", "n2"]),
    ],
)
def test_rows_that_differ_in_any_column_have_another_fingerprint(other: pa.Table):
    assert fingerprints(rows([1, 1], [1, 2])).hashes[0] != fingerprints(other).hashes[0]


def of(ticks: list[int], hashes: list[int]) -> Fingerprints:
    return Fingerprints(np.array(ticks), np.array([1 if h else 0 for h in hashes]), np.array(hashes, np.uint64))


def file(ticks: list[int], hashes: list[int], before: list[int] | None = None) -> Versions:
    return Versions(now=of(ticks, hashes), before=of(ticks, before or hashes))


def test_files_and_table_that_agree_have_no_flaw():
    deep = judge([file([0, 1], [5, 6]), file([2], [0])], of([0, 1], [5, 6]), {}, Grid(1))
    assert (deep.ticks, deep.flaws) == (3, 0)


def test_rows_from_before_columns_were_added_agree_with_their_files():
    files = [file([0, 1, 2], [5, 6, 7], before=[15, 16, 17])]
    deep = judge(files, of([0, 1, 2], [15, 6, 27]), {}, Grid(1))
    assert deep.different == [TickRange(2, 2)]
    assert (deep.ticks, deep.flaws) == (3, 1)


def test_what_differs_is_disputed_or_has_no_file_is_named():
    files = [file([0, 10, 20], [5, 6, 7]), file([20, 30], [8, 9])]
    deep = judge(files, of([0, 10, 20, 40], [5, 99, 7, 1]), {"bad": "torn"}, Grid(10))
    assert deep.different == [TickRange(10, 10), TickRange(30, 30)]
    assert deep.disputed == [TickRange(20, 20)]
    assert deep.unproven == [TickRange(40, 40)]
    assert deep.flaws == 5


def test_the_last_tick_that_there_can_be_is_counted(tmp_path: Path):
    last = 2**63 - 1
    write_deltalake(tmp_path, rows([last - 1, last, last], [1, 1, 1]))
    found = row_counts(Location.of(tmp_path), KEY)
    assert (found.ticks.tolist(), found.rows.tolist(), found.duplicated) == ([last - 1, last], [1, 2], 1)


def test_rows_and_ticks_of_a_table_that_grows_are_those_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_deltalake(tmp_path, rows([1, 1, 2], [1, 2, 1]))

    def counted(location: Location) -> RowCounts:
        found = row_counts(location, KEY)
        write_deltalake(tmp_path, rows([3], [1]), mode="append")
        return found

    monkeypatch.setattr(contents, "row_counts", counted)
    monkeypatch.setattr(contents, "check_owner", lambda *_: None)
    found = contents.Contents.read(Location.of(tmp_path), "run", count_rows=True)
    assert (found.rows, found.numbers.tolist(), found.unreadable) == (3, [1, 2], "")
    assert covered(Location.of(tmp_path)).ticks.tolist() == [1, 2, 3]
