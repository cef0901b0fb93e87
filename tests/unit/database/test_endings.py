"""Which statements end a transaction, and which only look like it."""

from __future__ import annotations

import pytest

from ticklake.database.endings import ending


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
