"""Modules are easy to find: no crowded package, no module that needs half of the others, no name used twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).parents[3] / "src" / "ticklake"
MOST_IMPORTS = 15
MOST_MODULES = 15
# A module of this name plays the same part in each of its packages.
SAME_ROLE = {"__init__", "errors", "sqlite", "postgres", "backend", "wakeups"}


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py")]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("ticklake", exclude_type_checking_imports=True, cache_dir=None)


def test_no_module_imports_more_than_fifteen_others(graph: grimp.ImportGraph):
    imports = {module: len(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert {module: count for module, count in imports.items() if count > MOST_IMPORTS} == {}


def test_no_package_has_more_than_fifteen_modules():
    counts = Counter(str(path.parent.relative_to(SOURCE)) for path in modules() if path.name != "__init__.py")
    assert {package: count for package, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_name_is_used_twice_within_a_top_level_package():
    found = defaultdict(list)
    for path in modules():
        place = path.relative_to(SOURCE)
        if len(place.parts) > 1 and path.stem not in SAME_ROLE:
            found[place.parts[0], path.stem].append(str(place))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
