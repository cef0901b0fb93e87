"""What comes from outside reaches neither SQL nor a shell: read off the code itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "ticklake"
FILES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))
VERBS = "SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|TRUNCATE|LISTEN|NOTIFY|SET|PRAGMA|ATTACH|COPY|GRANT|WITH|CALL"
STATEMENT = re.compile(rf"\s*({VERBS})\s")
RUNS_TEXT = {"execute", "execute_script", "executemany", "executescript"}
QUOTES = {"_identifier", "_literal", "_list"}
KNOWN = {"schema.name", "source", "select", "self._columns()", "RUN_ID"}
# See test_names.py for the first; the others are constant or put together of quoted names in lake/read/queries.py.
FORBIDDEN = re.compile(
    r"os\.(system|popen|exec\w+|spawn\w+)|subprocess\.(getoutput|getstatusoutput)|\w+\.create_subprocess_shell"
    r"|eval|exec|yaml\.(load|unsafe_load)"
)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def pieces(node: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """The first words of a text that is put together, and what is put into it; None if it is not."""
    if isinstance(node, ast.JoinedStr):
        inserted = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return _text(node.values[0]) if node.values else "", inserted
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        left = pieces(node.left) or (_text(node.left), [])
        return left[0], [*left[1], node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join"):
        return _text(node.func.value), [*node.args, *(word.value for word in node.keywords)]
    return None


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_quoted(node: ast.expr) -> bool:
    """Through a function that quotes it, or known to be made of such parts, or of letters, digits and _ alone."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in QUOTES
    return ast.unparse(node) in KNOWN


def unsafe(tree: ast.AST) -> Iterator[int]:
    """The lines in which SQL is put together from parts that are not quoted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (found := pieces(node)):
            start, inserted = found
            if STATEMENT.match(start) and inserted and not all(map(is_quoted, inserted)):
                yield node.lineno
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in RUNS_TEXT and call.args:
            found = pieces(call.args[0])
            # psycopg's own composition is a call on `compose.SQL(…)`, not on a text.
            if found and found[0] and not all(map(is_quoted, found[1])):
                yield call.lineno


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_sql_is_put_together_and_nothing_is_run_by_a_shell(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert sorted(set(unsafe(tree))) == []
    assert [line for line, name in shells(tree)] == []


def shells(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for call in calls(tree):
        name = ast.unparse(call.func)
        if FORBIDDEN.fullmatch(name) or any(word.arg == "shell" for word in call.keywords):
            yield call.lineno, name


@pytest.mark.parametrize(
    "text",
    [
        'c.execute(f"DELETE FROM {table}")',
        'c.execute("SELECT * FROM %s" % table)',
        'c.execute("DROP TABLE " + table)',
        'c.execute("SELECT {} FROM x".format(column))',
        'text = f"CREATE VIEW {name} AS SELECT 1"',
        'c.execute_script("VACUUM " + table)',
    ],
)
def test_sql_that_is_put_together_would_be_seen(text: str) -> None:
    assert list(unsafe(ast.parse(text)))


def test_sql_with_its_values_bound_is_fine() -> None:
    assert list(unsafe(ast.parse('c.execute("SELECT 1", {"a": a})\nc.execute(statements["x"])'))) == []


@pytest.mark.parametrize("text", ["os.system(x)", "subprocess.run(x, shell=True)", "eval(x)", "os.popen(x)"])
def test_a_shell_would_be_seen(text: str) -> None:
    assert list(shells(ast.parse(text)))
