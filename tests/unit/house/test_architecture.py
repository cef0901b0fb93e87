"""The picture of the packages is that of the code, and the page names modules that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = (ROOT / "docs" / "packages.svg").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    pytest.importorskip("grimp")
    return runpy.run_path(str(ROOT / "tools" / "draw_imports.py"))


def test_the_picture_has_the_packages_and_imports_of_the_code(tool: dict[str, Any]):
    *upper, base = tool["layers"]()
    drawn = {tuple(edge.split()) for edge in re.findall(r'data-edge="([^"]+)"', PICTURE)}
    assert sorted(re.findall(r'data-package="(\w+)"', PICTURE)) == sorted(name for layer in upper for name in layer)
    assert " · ".join(sorted(base)) in PICTURE
    assert drawn == {way for way in tool["edges"]() if way[1] not in base}, (
        "docs/packages.svg is out of date: make imports"
    )


def test_what_is_drawn_strong_leads_wherever_an_import_leads(tool: dict[str, Any]):
    ways = {("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("d", "c"), ("a", "d")}
    assert tool["direct"](ways) == {("a", "b"), ("b", "c"), ("c", "d"), ("d", "c")}


def test_the_page_names_modules_that_exist():
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert len(named) > 30
    assert [module for module in named if not (ROOT / "src" / "ticklake" / module).is_file()] == []
