"""Which statements end a transaction, and which only look like it."""

from __future__ import annotations

import pytest

from ticklake.database.endings import ending, savepoint, split


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("COMMIT", "COMMIT"),
        ("\n commit and chain", "COMMIT"),
        ("SELECT 1; END", "END"),
        ("Abort", "ABORT"),
        ("rollback work", "ROLLBACK"),
        ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("-- first\nCOMMIT", "COMMIT"),
        ("/* /* */ */ COMMIT", "COMMIT"),
        ("SELECT E'\\''; COMMIT; SELECT ''", "COMMIT"),
        ("SELECT $a$ ; $a$; ROLLBACK", "ROLLBACK"),
        ("CREATE TRIGGER t AFTER INSERT ON x BEGIN DELETE FROM y; END; COMMIT", "COMMIT"),
        ("CREATE TABLE x (begin integer, finish integer); COMMIT", "COMMIT"),
        ("CREATE FUNCTION f(begin atomic) RETURNS int LANGUAGE sql AS 'SELECT 1'; COMMIT", "COMMIT"),
        ("CREATE FUNCTION f() RETURNS void BEGIN ATOMIC END; COMMIT", "COMMIT"),
        ("SELECT 1; -- note\rCOMMIT", "COMMIT"),
        ("SELECT 1 AS x$y$; COMMIT; SELECT 2 AS z$y$", "COMMIT"),
        ("SELECT x$e'\\'; COMMIT; --'", "COMMIT"),
        ("/* /* */ ' */ COMMIT; --'", "COMMIT"),
        ("; ; COMMIT", "COMMIT"),
    ],
)
def test_a_statement_that_ends_the_transaction_is_found(text: str, words: str) -> None:
    assert ending(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO orders VALUES ('; COMMIT; ')",
        'SELECT "; END" FROM x',
        "SELECT 1 -- ; COMMIT",
        "SELECT 1 /* ; COMMIT */",
        "ROLLBACK TO SAVEPOINT mine",
        "ROLLBACK TRANSACTION TO mine; RELEASE mine",
        "SELECT CASE WHEN a THEN 1 END FROM x",
        "PREPARE plan AS SELECT 1",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END",
        "CREATE TRIGGER t AFTER INSERT ON x BEGIN DELETE FROM y; END;",
        "DO $$ BEGIN PERFORM 1; END $$",
        "SELECT E'it\\'s; COMMIT'",
        "UPDATE commits SET ended = 1; DELETE FROM rollback",
    ],
)
def test_other_statements_are_not_taken_for_one(text: str) -> None:
    assert ending(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SAVEPOINT a", "SAVEPOINT"),
        ("SELECT 1; /* x */ release savepoint a", "RELEASE"),
        ("RELEASE a", "RELEASE"),
        ("ROLLBACK TO a", "ROLLBACK TO"),
        ("rollback work to savepoint a", "ROLLBACK TO"),
        ("ROLLBACK TRANSACTION TO SAVEPOINT a", "ROLLBACK TO"),
        ("ROLLBACK", None),
        ("SELECT 'SAVEPOINT a'; UPDATE release SET savepoint = 1", None),
        ("DO $$ BEGIN PERFORM 1; EXCEPTION WHEN others THEN NULL; END $$", None),
    ],
)
def test_a_statement_about_savepoints_is_found(text: str, words: str | None) -> None:
    assert savepoint(text) == words


@pytest.mark.parametrize(
    "statements",
    [
        ["SELECT 1;", " SELECT ';'"],
        ["CREATE RULE r AS ON INSERT TO x DO ALSO (DELETE FROM y; DELETE FROM z);", " SELECT 1;", ""],
        ["CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE 1 WHEN 1 THEN 2 END; END;", " SELECT f()"],
        ["CREATE TRIGGER t AFTER INSERT ON x EXECUTE FUNCTION f();", " SELECT 1"],
        ["CREATE TEMP TRIGGER t AFTER INSERT ON x BEGIN DELETE FROM y; DELETE FROM z; END;", " SELECT 1"],
        ["DO $a$ BEGIN PERFORM 1; END $a$;", "/* ; /* ; */ ; */ SELECT 1"],
    ],
)
def test_a_text_is_split_into_its_statements(statements: list[str]) -> None:
    assert [statement.text for statement in split("".join(statements))] == statements
