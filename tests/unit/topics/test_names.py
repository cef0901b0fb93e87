"""From run ids to schema and file names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.database.names import check_name, schema_name
from ticklake.errors import InvalidName

visible = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=255).filter(str.strip)


def test_a_plain_run_id_stays_readable():
    assert schema_name("20251014-143025-550e8400") == "SIM_20251014_143025_550E8400"


@given(visible)
def test_every_name_is_safe_for_a_schema_and_a_file(run_id: str):
    assert re.fullmatch(r"SIM_[A-Z0-9_]{1,59}", schema_name(run_id))


@given(st.lists(visible | st.text("ab-_ A", min_size=1, max_size=8).filter(str.strip), unique=True))
def test_two_runs_never_share_a_name(run_ids: list[str]):
    assert len({schema_name(run_id).lower() for run_id in run_ids}) == len(run_ids)


def test_nobody_can_choose_a_run_id_that_hits_anothers_hash():
    hashed = schema_name("Some Run")
    copies = [hashed, hashed[4:], hashed[4:].lower(), hashed[4:].lower().replace("_", "-")]
    assert hashed not in {schema_name(copy) for copy in copies}


@pytest.mark.parametrize("name", ["", " ", "\t", "a\x00b", "a\x7f", "\udc80", "a" * 256])
def test_names_that_no_database_can_hold_are_refused(name: str):
    with pytest.raises(InvalidName, match="topic"):
        check_name("topic", name)


def test_something_that_is_no_text_is_refused():
    with pytest.raises(InvalidName):
        check_name("topic", None)  # type: ignore[arg-type]
