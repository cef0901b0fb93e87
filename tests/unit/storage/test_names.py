from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import UnsafeRunId, UnsafeStorageKey
from ticklake.storage.names import (
    batch_name,
    check_key,
    check_run_id,
    new_run_id,
    parse_batch_name,
    run_started_at,
)
from ticklake.ticks import TickRange

TICKS = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)).map(lambda pair: TickRange(*sorted(pair)))


def test_a_run_id_is_a_time_and_a_unique_part() -> None:
    assert new_run_id(datetime(2025, 10, 14, 14, 30, 25, tzinfo=UTC), "550e8400") == "20251014-143025-550e8400"


def test_a_run_id_is_written_in_utc() -> None:
    now = datetime(2025, 10, 14, 16, 30, 25, tzinfo=timezone(timedelta(hours=2)))
    assert new_run_id(now, "550e8400") == "20251014-143025-550e8400"


def test_two_runs_of_the_same_second_have_different_ids() -> None:
    now = datetime(2025, 10, 14, tzinfo=UTC)
    assert new_run_id(now) != new_run_id(now)


def test_a_run_id_tells_when_the_run_started() -> None:
    assert run_started_at("20251014-143025-550e8400") == datetime(2025, 10, 14, 14, 30, 25, tzinfo=UTC)


def test_a_run_id_of_the_original_tells_it_to_the_hundredth() -> None:
    started = run_started_at("20261115-20015548-2c9e2726-7747-4c42-981e-28eaf2f72311")
    assert started == datetime(2026, 11, 15, 20, 1, 55, 480_000, tzinfo=UTC)


@pytest.mark.parametrize("run_id", ["", "run-1", "20251314-143025-x", "20251014-143025", "٢٠٢٥١٠١٤-143025-x", "2025"])
def test_other_run_ids_tell_nothing(run_id: str) -> None:
    assert run_started_at(run_id) is None


@pytest.mark.parametrize(
    "run_id",
    ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a\0b", "a b", "a\n", "ä", "a*", "x" * 201, "a:b", "a%2fb"],
)
def test_a_run_id_that_is_no_plain_name_is_refused(run_id: str) -> None:
    with pytest.raises(UnsafeRunId, match="letters, digits"):
        check_run_id(run_id)


@pytest.mark.parametrize(
    "key",
    ["", "run", "/etc/passwd", "run/", "run//x", "run/../x", "../run/x", "run/./x", "run/.x", "run/a\0", "C:\\x/y"],
)
def test_a_key_that_could_leave_the_storage_is_refused(key: str) -> None:
    with pytest.raises(UnsafeStorageKey):
        check_key(key)


def test_batch_names_are_those_of_the_contract() -> None:
    assert batch_name(TickRange(0, 99), compressed=False) == "batch_0000000000_0000000099.pb"
    assert batch_name(TickRange(0, 99), compressed=True) == "batch_0000000000_0000000099.pb.zst"


@given(TICKS, st.booleans())
def test_every_batch_name_is_understood(ticks: TickRange, compressed: bool) -> None:
    assert parse_batch_name(batch_name(ticks, compressed)) == ticks


@given(TICKS, st.integers(1, 25), st.integers(1, 25))
def test_numbers_of_any_width_are_understood(ticks: TickRange, first: int, last: int) -> None:
    assert parse_batch_name(f"batch_{ticks.start:0{first}d}_{ticks.end:0{last}d}.pb") == ticks


@pytest.mark.parametrize(
    "name",
    [
        "batch_5_4.pb", "batch_1_2.pb.gz", "batch_1.pb", "batch_-1_2.pb", "batch_1_2.pb.zst.tmp", ".batch_1_2.pb",
        "xbatch_1_2.pb", "batch_1_2.pb\n", "batch_٣_٤.pb", f"batch_0_{2**63}.pb", f"batch_0_{'9' * 5000}.pb", "",
    ],
)  # fmt: skip
def test_names_that_only_look_like_batches_are_none(name: str) -> None:
    assert parse_batch_name(name) is None


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    parse_batch_name(text)
    run_started_at(text)
