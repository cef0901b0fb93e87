"""One style of values in the statements of callers: `:name`, on every database."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticklake.database.errors import StatementFailed, WrongPlaceholder
from ticklake.topics import Run


def test_one_statement_works_on_every_database(run: Run) -> None:
    query = "SELECT :x + CAST(:y AS integer), ':x %', 7 % 4 -- :z\n"
    with run.transaction() as transaction:
        assert transaction.execute(query, {"x": 1, "y": 2}) == [(3, ":x %", 3)]
        transaction.execute_script("CREATE TABLE kept (number integer)")
        transaction.execute_many("INSERT INTO kept VALUES (:n)", ({"n": number} for number in range(3)))
        assert transaction.execute("SELECT sum(number) FROM kept WHERE number > :least", {"least": 1}) == [(2,)]


def test_named_statements_of_callers_have_the_same_style(run: Run, tmp_path: Path, monkeypatch) -> None:
    for dialect in ("sqlite", "postgres"):
        folder = tmp_path / "mypackage" / "sql" / dialect
        folder.mkdir(parents=True)
        (folder / "sums.sql").write_text("-- name: add\nSELECT :x + CAST(:y AS integer), '5%'\n")
    (tmp_path / "mypackage" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with run.transaction() as transaction:
        sql = transaction.sql("mypackage")
        assert sql.add(x=1, y=2) == [(3, "5%")]
        assert sql.add.many([{"x": 1, "y": 1}, {"x": 2, "y": 2}]) == [(2, "5%"), (4, "5%")]
        with pytest.raises(WrongPlaceholder, match="no value for :y"):
            sql.add(x=1)
    sys.modules.pop("mypackage", None)


def test_a_value_that_is_missing_is_named(run: Run) -> None:
    with run.transaction() as transaction:
        with pytest.raises(WrongPlaceholder, match=r"it has no value for :y\. Write each value as :name"):
            transaction.execute("SELECT :x, :y", {"x": 1})
        with pytest.raises(WrongPlaceholder, match="it has no value for :x"):
            transaction.execute_many("SELECT :x", [{"x": 1}, {}])
        assert transaction.execute("SELECT 1", {}) == [(1,)], "nothing was executed, so the transaction goes on"


def test_the_style_of_psycopg_works_on_postgres_and_is_never_mixed(run: Run) -> None:
    with run.transaction() as transaction:
        with pytest.raises(WrongPlaceholder, match=r"it names a value %\(x\)s. Write each value as :name"):
            transaction.execute("SELECT :y, %(x)s", {"x": 1, "y": 1})
        if transaction.dialect == "postgres":
            assert transaction.execute("SELECT %(x)s::int, 7 %% 4", {"x": 1}) == [(1, 3)]
        else:
            with pytest.raises(WrongPlaceholder, match=r"it names a value %\(x\)s"):
                transaction.execute("SELECT %(x)s", {"x": 1})


def test_a_wrong_statement_is_not_called_a_wrong_database(run: Run) -> None:
    with pytest.raises(StatementFailed, match=r"A statement failed in .* Check the statement"), run.transaction() as tx:
        tx.execute("SELECT nothing FROM nowhere", {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings().max_examples // 2)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20), st.integers(-(2**31), 2**31 - 1))
def test_text_and_values_come_back_as_they_were(run: Run, text: str, number: int) -> None:
    literal = "'" + text.replace("'", "''") + "'"
    with run.transaction() as transaction:
        query = f"SELECT {literal}, CAST(:n AS integer), CAST(:t AS text) /* :{number} */"
        assert transaction.execute(query, {"n": number, "t": text}) == [(text, number, text)]
