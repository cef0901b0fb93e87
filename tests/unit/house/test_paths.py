"""Only `lake/delta` knows where the bytes of tables are. The rest of the lake has locations, and no paths."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LAKE = Path(__file__).parents[3] / "src" / "ticklake" / "lake"
# Places of bytes, and scratch for delta-rs. The session handles the files of Spark's start.
KNOW_PATHS = {"delta/folder.py", "delta/location.py", "delta/scratch.py", "session/java.py", "session/session.py"}
# Modules that open, list or name files. `local_path` and `lake_path` return paths.
FORBIDDEN = {"fileinput", "io", "pathlib", "shutil", "tempfile", "ticklake.checks.places", "ticklake.disk"}
NAMES_OF_OS = {"PathLike", "cpu_count", "fspath"}
"""These of `os` are no access to files: a user may give a place as a path."""


def uses_of_paths(text: str) -> list[str]:
    """Returns the imports and calls of a module with which it could use paths of files."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in FORBIDDEN or name.name.startswith("os.")]
        elif isinstance(node, ast.ImportFrom):
            names = [name.name for name in node.names]
            found += [str(node.module)] if node.module in FORBIDDEN or str(node.module).startswith("os.") else []
            found += [f"os.{name}" for name in names if node.module == "os" and name not in NAMES_OF_OS]
            found += [name for name in names if f"{node.module}.{name}" in FORBIDDEN]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            found += [f"os.{node.attr}"] if node.attr not in NAMES_OF_OS else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append("open")
    return found


@pytest.mark.parametrize("path", sorted(LAKE.rglob("*.py")), ids=lambda path: str(path.relative_to(LAKE)))
def test_the_lake_uses_paths_only_below_its_seam(path: Path):
    if str(path.relative_to(LAKE)) in KNOW_PATHS:
        assert uses_of_paths(path.read_text(encoding="utf-8"))
    else:
        assert uses_of_paths(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from pathlib import Path",
        "import pathlib",
        "import os.path",
        "from os import path",
        "from os import stat",
        "os.path.join(a, b)",
        "os.listdir(a)",
        "open(a)",
        "from ticklake.checks.places import lake_path",
        "from ticklake import disk",
    ],
)
def test_every_use_of_a_path_is_found(line: str):
    assert len(uses_of_paths(line)) == 1
