"""What another engine writes into our own words in a log is understood, or refused in one line by all who read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticklake.errors import DamagedCommit, TableUnreadable, TickLakeError, UnknownTableFormat
from ticklake.lake.delta import Location, commits, summary
from ticklake.lake.delta.summary import Summary
from ticklake.lake.empty import EMPTY, REMOVED, EmptyTicks
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read import Catalog, Presence
from ticklake.lake.table import Table
from ticklake.lake.verify.coverage import covered, key_of, row_counts
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("name", pa.string())])
TABLE = Table("own", SCHEMA, ("tick_number",))
ODD: list[dict[str, Any]] = [
    {EMPTY: "[[0, 10, 0]]"},
    {EMPTY: "[[0, 10, -1]]"},
    {EMPTY: "[[10, 0, 1]]"},
    {EMPTY: "[[0, 99999999999999999999999, 1]]"},
    {EMPTY: "[[0, 10, 99999999999999999999999]]"},
    {EMPTY: "[[100.5, 101.5, 1]]"},
    {EMPTY: "[[100.0, 101.0, 1]]"},
    {EMPTY: "[[true, true, 1]]"},
    {EMPTY: '[["0", "1", 1]]'},
    {EMPTY: "[[0, 1]]"},
    {EMPTY: "[5]"},
    {EMPTY: "{}"},
    {EMPTY: "null"},
    {EMPTY: None},
    {EMPTY: 7},
    {EMPTY: "what?"},
    {EMPTY: "[" * 100_000},
    {REMOVED: '["a", "b"]'},
    {REMOVED: "[1.5, 2]"},
    {REMOVED: "[0, 99999999999999999999999]"},
    {REMOVED: "[2, 1]"},
    {REMOVED: "[1]"},
    {REMOVED: "{}"},
]


def said(info: dict[str, Any]) -> str:
    return json.dumps(info)[:60]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(Location.of(tmp_path / "run" / "own"), TABLE)
    made.commit([], {EMPTY: "[[0, 20, 2]]"})
    return made


def foreign(directory: Path, info: dict[str, Any]) -> None:
    file = directory / "_delta_log" / commits.name_of(int(DeltaTable(directory).version()) + 1)
    file.write_text(json.dumps({"commitInfo": {"operation": "WRITE", "timestamp": 1, **info}}) + "\n")


@pytest.mark.parametrize("info", ODD, ids=said)
def test_an_odd_record_of_ticks_without_rows_is_refused_and_nothing_is_taken(info: dict[str, Any]) -> None:
    empty = EmptyTicks("[[0, 20, 2]]")
    with pytest.raises(ValueError, match="its record of empty ticks is not valid"):
        empty.apply({EMPTY: "[[100, 100, 1]]", **info} if REMOVED in info else info)
    assert empty.text() == "[[0, 20, 2]]"


@pytest.mark.parametrize("info", ODD, ids=said)
def test_an_odd_commit_is_named_by_all_who_read_the_log(ledger: Ledger, info: dict[str, Any]) -> None:
    foreign(Path(str(ledger.location)), info)
    catalog = Catalog(Path(str(ledger.location)).parents[1])
    users: list[Callable[[], Any]] = [
        ledger.refresh,
        lambda: Ledger(ledger.location, TABLE),
        lambda: covered(ledger.location),
        lambda: catalog.facts("run", "own"),
        lambda: Presence().ranges(catalog, "run", "own", 1),
    ]
    for use in users:
        with pytest.raises((DamagedCommit, TableUnreadable), match=commits.name_of(2)):
            use()


@pytest.mark.parametrize("parameters", ["5", [5], {"version": "9" * 5000}, {"version": [1]}, 7, None])
def test_an_odd_restore_is_taken_for_one_of_nothing(ledger: Ledger, parameters: Any) -> None:
    foreign(Path(str(ledger.location)), {"operation": "RESTORE", "operationParameters": parameters})
    assert covered(ledger.location).ticks.tolist() == []


@pytest.mark.parametrize("text", ["[[0, 10, 0]]", "[[0, 1.5, 1]]", "what?", 7])
def test_an_odd_summary_is_none(ledger: Ledger, text: Any) -> None:
    """Its checksum is right: an older version of ours may have written down what a commit said."""
    ledger.checkpoint()
    stored = Summary.stored(ledger.location)
    assert stored.version == 1
    path = Path(ledger.location.log) / "_ticklake_summary.json"
    odd = json.dumps(vars(stored) | {"empty": text})
    path.write_text(f"{odd}\n{summary._checksum(odd)}")
    assert covered(ledger.location).ticks.tolist() == list(range(0, 21, 2))
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 4)]).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    "key",
    ["tick_number", "[", '"tick_number"', "7", '["nope"]', "[7]", "[null]", "{}", '{"tick_number": 1}', '["name"]'],
)
def test_an_odd_key_is_refused_in_one_line(ledger: Ledger, key: str) -> None:
    DeltaTable(str(ledger.location)).alter.set_table_properties({"ticklake.key": key}, raise_if_not_exists=False)
    users: list[Callable[[], Any]] = [
        lambda: key_of(ledger.location),
        lambda: covered(ledger.location),
        lambda: row_counts(ledger.location),
        lambda: open_existing(ledger.location, Path(str(ledger.location)).parent.name),
    ]
    for use in users:
        with pytest.raises(TickLakeError, match=r"ticklake\.key") as raised:
            use()
        assert isinstance(raised.value, UnknownTableFormat)
        assert "\n" not in str(raised.value)
