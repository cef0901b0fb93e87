"""Every write passes a named fault point, and a process that dies before or after any of them does no harm."""

from __future__ import annotations

import ast
import re
import runpy
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ticklake.database.statements import statements

CRASH = Path(__file__).parent
SOURCE = CRASH.parents[1] / "src" / "ticklake"
NURSERY = runpy.run_path(str(CRASH / "nursery.py"))
Story = NURSERY["Story"]

PACKAGES = ("topics", "consumer", "coordination", "storage", "lake", "removal")
WALKS = {"topics": "topics", "consumer": "consumer", "coordinator": "coordination"}
MOST_VISITS = 3
"""So many of a point's visits are chosen, evenly: a commit is passed by every write."""

# What changes a file or a folder. `open` for reading, syncing and locking change none.
WRITING = {
    *("link", "symlink", "replace", "rename", "unlink", "rmdir", "rmtree", "mkdir", "makedirs", "truncate", "touch"),
    *("write", "write_text", "write_bytes", "write_table", "pipe_file", "create_checkpoint", "write_deltalake"),
    *("copy", "copy2", "copyfile", "copytree", "move", "mv", "put", "put_file", "cp_file", "rm", "rm_file"),
}
OF_FILES = {"os", "shutil"}
DELTA = {"create", "delete", "optimize", "compact", "z_order", "vacuum"}
"""Of a `DeltaTable`, these write too."""
HARMLESS = {
    ("lake/delta/folder.py", "_locked"): "an empty file to lock",
    ("lake/session/session.py", "_pass_on"): "standard error",
    ("lake/upkeep/compaction.py", "_swap"): "replaces files in the log, which passes its own points",
}


@pytest.fixture
def nursery() -> Iterator[Any]:
    with NURSERY["opened"]() as found:
        yield found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def place_of(walk: str, url: str, folder: Path) -> tuple[str, str]:
    """Where a walk may do what it likes: a run of its own, and for the lake a folder."""
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    return (str(folder / "root"), "20251014-143025-550e8400") if walk == "lake" else (url, run_id)


def visits(walk: str, url: str, folder: Path, nursery: Any) -> tuple[Counter[str], str]:
    """How often each point is passed on an undisturbed walk, and how that ends."""
    (end,) = nursery.tell([Story(walk, place_of(walk, url, folder), str(folder), "*:trace")])
    assert (end.first, end.second) == (0, 0)
    return Counter((folder / "mark").read_text().split()), end.state


def chosen(passed: Counter[str], writes: set[str], most_visits: int) -> list[str]:
    """`point:kill:nth` for every point of a write: its first visit, or some where many writes pass it."""
    faults = []
    for point, count in sorted(passed.items()):
        statement = point.removeprefix("sql.").removesuffix(".before").removesuffix(".after")
        if point.startswith("sql.") and statement not in writes:
            continue
        shared = point.startswith(("database.", "lake.commit", "storage."))
        step = max(1, count // most_visits) if shared else count
        faults += [f"{point}:kill:{nth}" for nth in range(1, count + 1, step)]
    return faults


def writing_statements(package: str, dialect: str) -> set[str]:
    """Those that change a table, or call a function of ours that does."""
    made = "\n".join(file.read_text() for file in SOURCE.rglob(f"sql/{dialect}/schema/*.sql"))
    functions = re.findall(r"CREATE (?:OR REPLACE )?FUNCTION (\w+)\((.*?)\$\$", made, re.DOTALL)
    ours = {name for name, head in functions if not re.search(r"\b(STABLE|IMMUTABLE)\b", head)}
    writing = re.compile("|".join([r"\b(INSERT|UPDATE|DELETE)\b", *(rf"\b{name}\(" for name in ours)]))
    found = set()
    for name, text in statements(f"ticklake.{package}", dialect).items():
        if writing.search(re.sub(r"--.*|FOR (NO KEY )?UPDATE", "", text)):
            found.add(f"{package}.{name}")
    return found


def assert_no_crash_is_seen(
    walk: str, url: str, folder: Path, nursery: Any, writes: set[str], most_visits: int
) -> Counter[str]:
    passed, undisturbed = visits(walk, url, folder / "undisturbed", nursery)
    faults = chosen(passed, writes, most_visits)
    died = dead_at(faults, walk, url, folder / "faults", nursery, undisturbed)
    # A walk that waits for others passes some points more often when it is slow. It passes each at least once.
    missed, attempt = set(faults) - died, 0
    while missed:
        assert not (never := {fault for fault in missed if fault.endswith(":1")}), f"no process died at {never}"
        again, attempt = sorted(set(map(sooner, missed))), attempt + 1
        missed = set(again) - dead_at(again, walk, url, folder / f"again-{attempt}", nursery, undisturbed)
    return passed


def dead_at(faults: list[str], walk: str, url: str, folder: Path, nursery: Any, undisturbed: str) -> set[str]:
    """The faults that did kill their process, wherever all ends as if there had been none."""
    stories = [
        Story(walk, place_of(walk, url, folder / str(number)), str(folder / str(number)), fault)
        for number, fault in enumerate(faults)
    ]
    ends = nursery.tell(stories)
    for story, end in zip(stories, ends, strict=True):
        assert end.first in (-signal.SIGKILL, 0), story.fault
        assert end.second == 0, story.fault
        assert end.state == undisturbed, story.fault
    return {story.fault for story, end in zip(stories, ends, strict=True) if end.first}


def sooner(fault: str) -> str:
    point, kill, nth = fault.split(":")
    return f"{point}:{kill}:{max(1, int(nth) // 2)}"


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("most_visits", [1, pytest.param(MOST_VISITS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("walk", WALKS)
def test_a_crash_before_or_after_any_statement_or_commit_is_not_seen_in_the_end(
    tmp_path: Path, url: str, nursery: Any, walk: str, most_visits: int
) -> None:
    dialect = "sqlite" if url.startswith("sqlite") else "postgres"
    writes = writing_statements(WALKS[walk], dialect)
    passed = assert_no_crash_is_seen(walk, url, tmp_path, nursery, writes, most_visits)
    missed = {one for one in writes if not {f"sql.{one}.before", f"sql.{one}.after"} <= passed.keys()}
    assert not missed, f"no walk comes past {missed} on {dialect}: add a step to walks.py"


@pytest.mark.chaos
@pytest.mark.parametrize("most_visits", [1, pytest.param(MOST_VISITS, marks=pytest.mark.slow)])
def test_a_crash_before_or_after_any_file_operation_is_not_seen_in_the_end(
    tmp_path: Path, nursery: Any, most_visits: int
) -> None:
    passed = assert_no_crash_is_seen("lake", "", tmp_path, nursery, set(), most_visits)
    tested = "\n".join(path.read_text() for path in CRASH.glob("*.py") if path.name != Path(__file__).name)
    points = {point for point in named_points() if point.startswith(("storage.", "lake."))}
    missed = {point for point in points - passed.keys() if f'"{point}' not in tested}
    assert not missed, f"no walk comes past {missed}: add a step to walks.py"


def test_every_point_is_crashed_at_by_a_test() -> None:
    """Those of services, indexers and queues have tests of their own, which name them."""
    tested = "\n".join(path.read_text() for path in CRASH.glob("*.py") if path.name != Path(__file__).name)
    elsewhere = {point for point in named_points() if not point.startswith(("storage.", "lake.", "database."))}
    assert {point for point in elsewhere if f'"{point}' not in tested} == set()


def test_a_file_is_written_only_where_a_fault_point_is_passed() -> None:
    """A function that writes, links, renames or removes a file reaches a point itself."""
    assert [where for package in PACKAGES for where in unguarded(SOURCE / package)] == []


def test_a_database_is_written_to_only_by_named_statements_in_transactions() -> None:
    """`Statements` and `transaction` put a point around each: so nothing may go past them."""
    passing_by = re.compile(r"\.execute(_many|_script|_composed)?\(")
    found = [
        path.name
        for package in PACKAGES
        for path in (SOURCE / package).rglob("*.py")
        if passing_by.search(path.read_text()) and package != "lake"
    ]
    assert found == []


@pytest.mark.parametrize(
    "write",
    [
        *("path.unlink()", "path.replace(other)", "os.replace(path, other)", "shutil.move(path, other)"),
        *("replace(path, other)", "unlink(path)", "open(path, 'w')", "path.open('xb')", "delta.delete()"),
        *("self._delta.optimize.compact()", "files.mv(path, other)"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_check_for_unguarded_writes_notices_one(tmp_path: Path, write: str, kind: str) -> None:
    imports = "from os import replace, unlink\n"
    good = f"{imports}{kind} f(path):\n    faults.reach('x')\n    {write}\n"
    (tmp_path / "a.py").write_text(good)
    assert unguarded(tmp_path) == []
    (tmp_path / "b.py").write_text(good.replace("    faults.reach('x')\n", ""))
    assert unguarded(tmp_path) == ["b.py: f"]


@pytest.mark.parametrize("harmless", ["text.replace('a', 'b')", "open(path)", "replace(self, tasks=1)", "words.copy()"])
def test_the_check_for_unguarded_writes_leaves_what_writes_nothing(tmp_path: Path, harmless: str) -> None:
    (tmp_path / "a.py").write_text(f"from dataclasses import replace\ndef f(path):\n    {harmless}\n")
    assert unguarded(tmp_path) == []


def named_points() -> set[str]:
    """Every point that the source names, from the calls themselves."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_faults(node.func.value):
                if node.func.attr == "reach" and isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
                elif node.func.attr == "around" and isinstance(node.args[0], ast.Constant):
                    found |= {f"{node.args[0].value}.before", f"{node.args[0].value}.after"}
    return found


def unguarded(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in OF_FILES
            for alias in node.names
        }
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            where = (str(path.relative_to(folder.parent)), function.name)
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            guarded = any(isinstance(call.func, ast.Attribute) and _is_faults(call.func.value) for call in calls)
            if not guarded and where not in HARMLESS and any(_writes(call, imported) for call in calls):
                found.append(f"{path.name}: {function.name}")
    return found


def _is_faults(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "faults"


def _writes(call: ast.Call, imported: set[str]) -> bool:
    """`imported`: what the module calls by its bare name and has from `os` or `shutil`."""
    of, _, name = ast.unparse(call.func).rpartition(".")
    if not of and name not in {*imported, "open", "write_deltalake"}:
        return False
    if of in OF_FILES or name in imported:
        return name in WRITING
    if name == "copy" or (name == "replace" and (len(call.args) != 1 or call.keywords)):
        return False  # of a list, a text or a time: a file's new name is one place
    if name == "open":
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        return any(set(mode) & set("wxa+") and len(mode) < 4 for mode in modes)
    return name in WRITING or (name in DELTA and of.endswith(("DeltaTable", "delta", "delta.optimize")))
