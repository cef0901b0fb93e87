"""SQL files are read into named statements. One that nobody could call, or that hides another one, is refused."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake.database.statements import statements
from ticklake.errors import BadStatement

Load = Callable[..., Mapping[str, str]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads the statements of a package of somebody's own that has these files."""
    package = tmp_path / f"shop_{uuid4().hex[:8]}"
    monkeypatch.syspath_prepend(tmp_path)

    def written(dialect: str = "sqlite", **files: str) -> Mapping[str, str]:
        folder = package / "sql" / dialect
        folder.mkdir(parents=True)
        (package / "__init__.py").touch()
        for name, text in files.items():
            (folder / f"{name}.sql").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return statements(package.name, dialect)

    return written


def test_a_file_holds_many_statements_by_their_names(load: Load) -> None:
    orders = "-- Orders.\n\n-- name: add\nINSERT INTO o\nVALUES (1)\n\n-- name: all_of_them\nSELECT * FROM o\n"
    prices = "-- name: price\nSELECT 7;\n"
    assert load(orders=orders, prices=prices) == {
        "add": "INSERT INTO o\nVALUES (1)",
        "all_of_them": "SELECT * FROM o",
        "price": "SELECT 7;",
    }


def test_a_statement_keeps_its_comments(load: Load) -> None:
    text = "-- name: price\n-- One probe: the name: of an order is its key.\nSELECT 7  -- cents\n"
    assert load(prices=text) == {"price": "-- One probe: the name: of an order is its key.\nSELECT 7  -- cents"}


@pytest.mark.parametrize("marker", ["--name: a", "-- Name: a", "  -- name : a  ", "--\tNAME:a"])
def test_a_name_is_seen_however_it_is_written(load: Load, marker: str) -> None:
    assert load(x=f"-- name: b\nSELECT 2\n{marker}\nSELECT 1") == {"b": "SELECT 2", "a": "SELECT 1"}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TRIGGER t AFTER INSERT ON o BEGIN UPDATE o SET a = 1; DELETE FROM p; END",
        "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$",
        "SELECT '; -- no comment', \"a;b\" /* ; -- name: c */ FROM o;",
        "(SELECT 1);",
    ],
)
def test_a_semicolon_inside_a_statement_does_not_end_it(load: Load, text: str) -> None:
    assert load(x=f"-- name: a\n{text}\n") == {"a": text}


def test_each_database_has_its_own(load: Load) -> None:
    load("sqlite", x="-- name: a\nSELECT 1")
    assert load("postgres", y="-- name: a\nSELECT 2") == {"a": "SELECT 2"}


def test_tables_are_no_statements(load: Load, tmp_path: Path) -> None:
    load(x="-- name: a\nSELECT 1")
    (folder,) = tmp_path.glob("shop_*/sql/sqlite")
    (folder / "schema").mkdir()
    (folder / "schema" / "001_tables.sql").write_text("CREATE TABLE o (a); CREATE TABLE p (b);")
    statements.cache_clear()
    assert statements(folder.parents[1].name, "sqlite") == {"a": "SELECT 1"}


def test_a_file_of_comments_only_is_no_statement(load: Load) -> None:
    assert load(x="-- Nothing yet.\n", y="") == {}


@pytest.mark.parametrize(
    "files",
    [
        {"x": "-- name: a\nSELECT 1\n-- name: a\nSELECT 2"},
        {"x": "-- name: a\nSELECT 1\n", "y": "-- name: a\nSELECT 1\n"},
    ],
    ids=["one file", "two files"],
)
def test_a_name_that_is_given_twice_is_refused(load: Load, files: dict[str, str]) -> None:
    with pytest.raises(BadStatement, match="the name a is used twice in this folder"):
        load(**files)


@pytest.mark.parametrize(
    "text",
    ["SELECT 1", "-- Old style.\nSELECT 1\n", "/* x */ SELECT 1;\n-- name: a\nSELECT 2"],
)
def test_sql_before_the_first_name_is_refused(load: Load, text: str) -> None:
    with pytest.raises(BadStatement, match=r"sql/sqlite/x\.sql: there is SQL before the first name"):
        load(x=text)


@pytest.mark.parametrize(
    "text", ["-- name: a\nSELECT 1;\nSELECT 2", "-- name: a\nSELECT 1;\n\n-- Another one.\nDELETE FROM o;\n"]
)
def test_a_second_statement_without_a_name_is_refused(load: Load, text: str) -> None:
    with pytest.raises(BadStatement, match="there are 2 statements below the name a"):
        load(x=text)


@pytest.mark.parametrize(
    "text", ["-- name: a", "-- name: a\n\n", "-- name: a\n-- Why.\n/* and how; */ ;\n-- name: b\nSELECT 1"]
)
def test_an_empty_statement_is_refused(load: Load, text: str) -> None:
    with pytest.raises(BadStatement, match="there is no statement below the name a"):
        load(x=text)


@pytest.mark.parametrize("name", ["", "two words", "mark-done", "1st", "a;"])
def test_a_name_that_cannot_be_called_is_refused(load: Load, name: str) -> None:
    with pytest.raises(BadStatement, match=f"'{name}' is not a name"):
        load(x=f"-- name: {name}\nSELECT 1")


def test_the_error_names_the_file_and_says_what_to_do(load: Load) -> None:
    with pytest.raises(BadStatement) as caught:
        load(x="SELECT 1")
    assert "/sql/sqlite/x.sql: " in str(caught.value)
    assert "`-- name: …`" in str(caught.value)
