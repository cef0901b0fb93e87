"""The documentation as a site: every page has its place, and links lead somewhere in both of its forms."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools" / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def places(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from places(entry)


def test_every_page_is_in_the_navigation_once(hooks: ModuleType):
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(places(SITE["nav"])) == sorted([*pages, *hooks.FROM_ROOT])


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [place for place in places(SITE["nav"]) if f"{place})" not in index and place != "index.md"] == []


def test_broken_links_fail_the_build_and_nothing_is_fetched():
    assert SITE["strict"] is True
    assert set(SITE["validation"]["links"].values()) == set(SITE["validation"]["nav"].values()) == {"warn"}
    assert SITE["theme"]["font"] is False
    settings = {key: value for key, value in SITE.items() if key != "repo_url"}
    assert "://" not in yaml.safe_dump(settings)


@pytest.mark.parametrize(
    ("place", "link", "on_the_site"),
    [
        ("docs/topics.md", "[commands](commands.md#ticklake-db)", "[commands](commands.md#ticklake-db)"),
        ("docs/decisions/05.md", "[15](../decisions/15.md)", "[15](15.md)"),
        ("docs/index.md", "[Changes](../CHANGELOG.md)", "[Changes](CHANGELOG.md)"),
        ("CHANGELOG.md", "[how](docs/guarantee.md#four-rules)", "[how](guarantee.md#four-rules)"),
        ("docs/events.md", "[a page](https://www.sqlite.org/x.html)", "[a page](https://www.sqlite.org/x.html)"),
        ("docs/topics.md", "[test_fork.py](../tests/contract/test_fork.py)", "`test_fork.py`"),
        ("docs/topics.md", "[`topics/reader.py`](../src/ticklake/topics/reader.py)", "`topics/reader.py`"),
        ("docs/decisions/08.md", "[the test](../../tests/contract/test_fork.py)", "the test"),
        ("docs/topics.md", "[gone.py](../src/gone.py)", "[gone.py](../src/gone.py)"),
        ("docs/topics.md", "```\n[a](../b.py)\n```", "```\n[a](../b.py)\n```"),
    ],
)
def test_a_link_out_of_the_pages_is_a_name_on_the_site(hooks: ModuleType, place: str, link: str, on_the_site: str):
    assert hooks.rewritten(link, place, None) == on_the_site


def test_a_link_out_of_the_pages_leads_to_the_repository_if_it_has_an_address(hooks: ModuleType):
    found = hooks.rewritten("[a](../../tests/conftest.py#L3)", "docs/decisions/08.md", "https://example.org/ticklake/")
    assert found == "[a](https://example.org/ticklake/blob/HEAD/tests/conftest.py#L3)"
