"""The public face: `from ticklake import …` has what the documentation uses, and all of it is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from google.protobuf.message import Message as Protobuf

import ticklake

ROOT = Path(__file__).parents[3]
NAMES = [name for name in ticklake.__all__ if name != "__version__"]
CLASSES = [name for name in NAMES if isinstance(getattr(ticklake, name), type)]
PROTOBUF = [name for name in CLASSES if issubclass(getattr(ticklake, name), Protobuf)]
PROTOS = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "src" / "ticklake" / "contracts").glob("*.proto")
)

# The decorator has the name of its package, so it cannot be an attribute of `ticklake`.
ALLOWED = {"ticklake", "ticklake.errors", "ticklake.spark", "ticklake.consumer: consumer"}


def snippets() -> Iterator[tuple[str, str]]:
    """All Python code that users see: whole examples, and the snippets of the pages."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield str(page.relative_to(ROOT)), dedent(code)


def imports(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = ", ".join(sorted(alias.name for alias in node.names))
            yield f"{node.module}: {names}" if node.module == "ticklake.consumer" else node.module


def members(kind: type) -> Iterator[str]:
    """The public methods and properties of a class that TickLake itself has defined."""
    for parent in kind.__mro__:
        if parent.__module__.startswith("ticklake"):
            for name, value in vars(parent).items():
                callee = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if not name.startswith("_") and (inspect.isfunction(callee) or isinstance(callee, property)):
                    yield name


def test_examples_and_pages_import_public_names_only():
    found = {
        f"{place}: {module}"
        for place, code in snippets()
        for module in imports(code)
        if module.partition(".")[0].partition(":")[0] == "ticklake" and module not in ALLOWED
    }
    assert found == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_there_and_documented(name: str):
    thing: Any = getattr(ticklake, name)
    if name in PROTOBUF:
        assert re.search(rf"^message {name} {{", PROTOS, re.MULTILINE)
        return
    # A dataclass without a docstring gets its signature as one.
    assert thing.__doc__ and not thing.__doc__.startswith(f"{name}("), f"{name} has no docstring"
    if isinstance(thing, type):
        undocumented = [member for member in members(thing) if not inspect.getdoc(getattr(thing, member))]
        assert undocumented == [], f"methods of {name} without a docstring"


def test_the_face_knows_what_it_does_not_have():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ticklake.nonsense  # noqa: B018
    assert {*NAMES, "errors", "spark"} <= set(dir(ticklake))
    assert ticklake.errors.RunNotFound


def test_python_m_ticklake_is_the_command():
    done = subprocess.run([sys.executable, "-m", "ticklake", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ticklake {ticklake.__version__}\n"


def reference() -> str:
    """The pages of the reference, with the pieces of files that they show."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md")))

    def shown(match: re.Match[str]) -> str:
        lines = (ROOT / match[1]).read_text(encoding="utf-8").splitlines()
        return "\n".join(lines[int(match[2]) - 1 : int(match[3]) if match[3] else None])

    return re.sub(r'^--8<-- "([^":]+):(\d+)(?::(\d+))?"$', shown, text, flags=re.MULTILINE)


def resolved(path: str) -> Any:
    """What a dotted path names: as much of it as possible is a module."""
    words = path.split(".")
    for cut in range(len(words), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(words[:cut]))
        except ImportError:
            continue
        for word in words[cut:]:
            thing = getattr(thing, word)
        return thing
    raise AssertionError(f"{path} is nowhere")


def test_the_reference_has_every_public_name_once():
    text = reference()
    listed = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    listed += [f"ticklake.{name}" for name in PROTOBUF if re.search(rf"^message {name} {{", text, re.MULTILINE)]
    assert sorted({f"ticklake.{name}" for name in NAMES} - set(listed)) == []
    assert sorted(name for name in set(listed) if listed.count(name) > 1) == []


def test_the_reference_names_nothing_that_is_not_there_or_not_documented():
    for path in re.findall(r"^::: (\S+)$", reference(), re.MULTILINE):
        assert inspect.getdoc(resolved(path)), path
