"""The rules of the house, kept by tests."""

from __future__ import annotations

import ast
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ticklake import errors
from ticklake.database.statements import statements

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "ticklake"


def sources() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))


def tracked() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return (ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def error_classes() -> list[type[errors.TickLakeError]]:
    return [getattr(errors, name) for name in errors.__all__ if name != "TickLakeError"]


def fields_named_in(kind: type[errors.TickLakeError]) -> list[tuple[str, str | None]]:
    """Each field that the message shows, with its format."""
    return [(field, form) for _, field, form, _ in string.Formatter().parse(kind.message) if field]


def test_imports_point_down_and_each_library_has_one_place():
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_an_error_is_one_line_and_one_sentence_at_least(kind: type[errors.TickLakeError]):
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    message = str(kind(**{field: moment if "%" in (form or "") else 7 for field, form in fields_named_in(kind)}))
    assert "\n" not in message
    assert message.endswith((".", "?", ")")), message


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_an_error_has_a_message_of_its_own_and_declares_its_fields(kind: type[errors.TickLakeError]):
    declared = {name for parent in kind.__mro__ for name in getattr(parent, "__annotations__", {})}
    assert "message" in vars(kind)
    assert {field for field, _ in fields_named_in(kind)} <= declared


def test_an_error_has_its_message_without_docstrings():
    script = "from ticklake.errors import RunNotFound; print(RunNotFound(run_id='r', places='s', found='none'))"
    done = subprocess.run([sys.executable, "-OO", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("No run 'r' in s;")


def test_statistics_of_files_are_read_in_one_place():
    """The place of a column in a schema is none among the leaves of a file, and a file may have no statistics."""
    lake = SOURCE / "lake"
    for path in lake.rglob("*.py"):
        raw = re.findall(r"\.row_group\(|\.statistics\b|get_add_actions|schema_arrow|physical_schema", text_of(path))
        home = path.parent == lake / "delta" and path.name in ("footers.py", "files.py", "parquet.py")
        assert home or not raw, f"{path.name} uses {raw}: take row_groups or contents_of of lake/delta"
        placed = path.parent == lake / "delta" and "get_field_index" in text_of(path)
        assert not placed, f"{path.name} finds a leaf by the place of a field"


def test_numbers_of_options_are_all_checked_in_one_place():
    """The number types of click take nan, inf and what no database can hold."""
    for path in (SOURCE / "cli").rglob("*.py"):
        raw = re.findall(r"IntRange|FloatRange|click\.(?:INT|FLOAT)\b|type=(?:int|float)\b", text_of(path))
        assert path.name == "numbers.py" or not raw, f"{path.name} uses {raw}: take a type of cli/options/numbers.py"


def test_every_error_is_raised_somewhere():
    code = "\n".join(text_of(path) for path in sources() if path.name != "errors.py")
    parents = {parent for kind in error_classes() for parent in kind.__mro__[1:]}
    unused = [kind.__name__ for kind in error_classes() if not re.search(rf"(?<!class )\b{kind.__name__}\(", code)]
    assert [name for name in unused if getattr(errors, name) not in parents] == []


SQL = sorted({file.parent for file in SOURCE.rglob("sql/*/*.sql")})
NAMED = [
    pytest.param(folder.parents[1], name, id=f"{folder.relative_to(SOURCE)}/{name}")
    for folder in SQL
    for name in statements(".".join(folder.parents[1].relative_to(SOURCE.parent).parts), folder.name)
]


@pytest.mark.parametrize(("package", "name"), NAMED)
def test_every_statement_is_used_by_its_package(package: Path, name: str):
    code = "\n".join(text_of(path) for path in package.rglob("*.py"))
    assert re.search(rf"\.{name}\b|[\"']{name}[\"']", code), f"nothing in {package.name} uses {name}"


def test_a_statement_is_in_the_same_file_on_every_database():
    places: dict[tuple[Path, str], set[str]] = {}
    for file in (file for folder in SQL for file in folder.glob("*.sql")):
        for name in re.findall(r"^-- name: (\w+)$", text_of(file), re.MULTILINE):
            places.setdefault((file.parents[2], name), set()).add(file.name)
    assert places.keys() == {one.values for one in NAMED}
    assert [f"{name} is in {found}" for (_, name), found in places.items() if len(found) > 1] == []


def test_there_is_no_sql_in_the_code():
    statement = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b", re.DOTALL)
    allowed = {
        "lake/read/queries.py",
        "cli/insight/sql.py",
        "cli/pipeline/demo.py",
    }  # views over the lake, and examples for people
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and statement.search(node.value):
                found.append(str(path.relative_to(SOURCE)))
    assert set(found) <= allowed


def test_functions_and_modules_stay_small():
    large = []
    for path in sources():
        text = text_of(path)
        if text.count("\n") > 450:
            large.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 60:
                large.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert [entry for entry in large if "/errors.py" not in entry] == []


def test_nothing_is_left_for_later():
    word = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + "X|NotImplemented" + "Error)\\b")
    assert [
        str(path.relative_to(ROOT)) for path in tracked() if path.suffix == ".py" and word.search(text_of(path))
    ] == []


def test_no_file_names_a_path_of_one_machine():
    path_of_machine = re.compile(r"(?<![\w.])/(work|root|farm)/[\w.]")
    assert [str(path.relative_to(ROOT)) for path in tracked() if path_of_machine.search(text_of(path))] == []


def test_the_package_has_no_module_without_a_noun():
    vague = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}
    assert [str(path) for path in sources() if path.stem in vague] == []


WATCHED = ("node", "services", "indexers", "topics", "consumer", "events", "coordination")
RECORDED_ELSEWHERE = {
    "node/supervisor.py:_schedule": "Service._fail records what the service died of",
}


def warnings_without_an_error(text: str) -> list[str]:
    """The functions that log a warning and record no error in the bounded history of a monitor."""
    silent = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            named = [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute)]
            warns = any(name.endswith((".warning", ".warn")) for name in named)
            if warns and not any(name.endswith(("errors.record",)) for name in named):
                silent.append(node.name)
    return silent


def test_every_warning_of_a_service_comes_with_a_recorded_error():
    found = {
        f"{path.relative_to(SOURCE)}:{name}"
        for package in WATCHED
        for path in sorted((SOURCE / package).rglob("*.py"))
        for name in warnings_without_an_error(text_of(path))
    }
    assert found == set(RECORDED_ELSEWHERE)


def test_the_rule_about_warnings_notices_one_without_an_error():
    assert warnings_without_an_error("def f(self):\n    log.warning('x')") == ["f"]
    assert warnings_without_an_error("def f(self):\n    m.errors.record('X', 'x')\n    log.warning('x')") == []
