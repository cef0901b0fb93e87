"""Where a statement has values, and where a colon only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.database.placeholders import placeholders


@pytest.mark.parametrize(
    ("text", "psycopg"),
    [
        ("SELECT :x", "SELECT %(x)s"),
        ("VALUES(:x,:y_2)", "VALUES(%(x)s,%(y_2)s)"),
        ("SELECT :x::int, a::text", "SELECT %(x)s::int, a::text"),
        ("SELECT (:x)::int[]", "SELECT (%(x)s)::int[]"),
        ("SELECT 1 LIMIT:x", "SELECT 1 LIMIT%(x)s"),
        ("SELECT ':x', ':''x', E'\\':x', \":x\", $$:x$$, $a$:x $$ $a$", None),
        ("SELECT 1 -- :x\n, 2 /* :x /* :x */ :x */", None),
        ("SELECT a[1:n], a[lo:hi], a[f(1):n], a[b[1]:n], a[: n]", None),
        ("SELECT a[:x], a[1 : :x], ARRAY[1, :x]", "SELECT a[%(x)s], a[1 : %(x)s], ARRAY[1, %(x)s]"),
        ("CALL f(a := 1, b := :x)", "CALL f(a := 1, b := %(x)s)"),
        ("SELECT 'a%', 5 % 2, :x", "SELECT 'a%%', 5 %% 2, %(x)s"),
        ("SELECT x$e'\\', :x --'", "SELECT x$e'\\', %(x)s --'"),
    ],
)
def test_only_values_are_translated(text: str, psycopg: str | None) -> None:
    assert placeholders(text).psycopg == (text if psycopg is None else psycopg)
    assert placeholders(text).names == (frozenset() if psycopg is None else {"x", "y_2"} & _names(psycopg))


def _names(psycopg: str) -> set[str]:
    return {name for name in ("x", "y_2") if f"%({name})s" in psycopg}


def test_the_style_of_psycopg_is_left_as_it_is() -> None:
    found = placeholders("SELECT %(x)s, 5 %% 2, '%(y)s'")
    assert (found.names, found.percents, found.psycopg) == (frozenset(), {"x"}, "SELECT %(x)s, 5 %% 2, '%(y)s'")


BODY = st.text(st.sampled_from("ab:x%$ '\"\n-/*[](){}\\;"), max_size=12)
QUIET = st.one_of(
    BODY.map(lambda text: "'" + text.replace("'", "''") + "'"),
    BODY.map(lambda text: '"' + text.replace('"', '""') + '"'),
    BODY.map(lambda text: f"$q${text.replace('$', '')}$q$"),
    BODY.map(lambda text: "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"),
    BODY.map(lambda text: "--" + text.replace("\n", " ") + "\n"),
    BODY.map(lambda text: "/*" + text.replace("*", "").replace("/", "") + "*/"),
    st.sampled_from(["a::text", "f(a := 1)", "a[1:n]", "a[lo:hi]", "5 % 2", "SELECT", ",", "(", ")", "5", "||"]),
)
VALUE = st.sampled_from(["x", "y", "long_name", "n1"])


@given(st.lists(st.tuples(st.booleans(), QUIET, VALUE), max_size=12))
def test_a_value_is_found_wherever_it_stands_and_nothing_else_changes(parts: list[tuple[bool, str, str]]) -> None:
    text = " ".join(f":{name}" if is_value else quiet for is_value, quiet, name in parts)
    wanted = " ".join(f"%({name})s" if is_value else quiet.replace("%", "%%") for is_value, quiet, name in parts)
    found = placeholders(text)
    assert found.psycopg == wanted
    assert found.names == {name for is_value, _, name in parts if is_value}
    assert not found.percents
