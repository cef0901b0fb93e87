"""docs/errors.md has every error, with what it means and what to do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from ticklake import errors

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "list_errors.py"))


def test_the_page_is_up_to_date():
    assert TOOL["page"]() == PAGE, "docs/errors.md is out of date: make errors"


def test_every_error_has_a_row_that_says_something():
    rows = re.findall(r'^\| <a id="\w+"></a>`(\w+)`[^|]* \| (.+?[.)]) \| (.+?[.?`)]) \|$', PAGE, re.MULTILINE)
    known = set(errors.__all__) - {"TickLakeError"}
    assert {name for name, _, _ in rows} == known


@pytest.mark.parametrize(
    ("message", "meaning", "remedy"),
    [
        ("It broke: REASON. Mend it. Soon.", "It broke: REASON.", "Mend it. Soon."),
        ("It broke; mend it.", "It broke.", "Mend it."),
        ("It is missing: pip install 'it'.", "It is missing.", "`pip install 'it'`"),
        ("WHERE: `a: b` is wrong; write `c`.", "WHERE: `a: b` is wrong.", "Write `c`."),
        ("It broke.", "It broke.", TOOL["NO_REMEDY"]),
    ],
)
def test_a_message_is_parted_into_what_happened_and_what_to_do(message: str, meaning: str, remedy: str):
    assert TOOL["meaning_and_remedy"](message) == (meaning, remedy)
