"""Which errors of a database are an outage, and which are the fault of the work: one case a state."""

from __future__ import annotations

import apsw
import psycopg.errors
import pytest

from ticklake.database.error_kinds import Fault, postgres_fault, sqlite_fault

POSTGRES = {
    "08000": Fault.UNAVAILABLE,
    "08001": Fault.UNAVAILABLE,
    "08003": Fault.UNAVAILABLE,
    "08004": Fault.UNAVAILABLE,
    "08006": Fault.UNAVAILABLE,
    "08P01": Fault.UNAVAILABLE,
    "22P02": Fault.WRONG,
    "23503": Fault.WRONG,
    "23505": Fault.UNIQUE,
    "25001": Fault.WRONG,
    "25006": Fault.UNAVAILABLE,
    "25P02": Fault.WRONG,
    "25P03": Fault.ABORTED,
    "25P04": Fault.ABORTED,
    "28000": Fault.WRONG,
    "40000": Fault.ABORTED,
    "40001": Fault.ABORTED,
    "40002": Fault.WRONG,
    "40003": Fault.ABORTED,
    "40P01": Fault.ABORTED,
    "42601": Fault.WRONG,
    "42P01": Fault.WRONG,
    "53000": Fault.ABORTED,
    "53100": Fault.FULL,
    "53200": Fault.ABORTED,
    "53300": Fault.UNAVAILABLE,
    "53400": Fault.ABORTED,
    "55000": Fault.WRONG,
    "55006": Fault.WRONG,
    "55P02": Fault.WRONG,
    "55P03": Fault.LOCK,
    "57000": Fault.WRONG,
    "57014": Fault.ABORTED,
    "57P01": Fault.UNAVAILABLE,
    "57P02": Fault.UNAVAILABLE,
    "57P03": Fault.UNAVAILABLE,
    "57P04": Fault.UNAVAILABLE,
    "57P05": Fault.UNAVAILABLE,
    "58000": Fault.WRONG,
    "58030": Fault.WRONG,
    "58P01": Fault.WRONG,
    "58P02": Fault.WRONG,
    "XX000": Fault.WRONG,
    "XX001": Fault.WRONG,
    "XX002": Fault.WRONG,
}

NO_CONNECTION = {"25006", "53300", "57P01", "57P02", "57P03", "57P04", "57P05"}


@pytest.mark.parametrize(("state", "fault"), POSTGRES.items())
def test_every_state_of_postgres_has_its_meaning(state: str, fault: Fault) -> None:
    assert postgres_fault(state, lost=False) is fault


@pytest.mark.parametrize(("state", "fault"), POSTGRES.items())
def test_a_connection_lost_with_a_state_that_says_nothing_of_it_is_an_outage(state: str, fault: Fault) -> None:
    unknown = fault is Fault.WRONG and state != "40002"
    assert postgres_fault(state, lost=True) is (Fault.UNAVAILABLE if unknown else fault)


def test_without_a_state_only_a_lost_connection_is_an_outage() -> None:
    assert postgres_fault(None, lost=True) is Fault.UNAVAILABLE
    assert postgres_fault(None, lost=False) is Fault.WRONG


def test_no_other_state_that_the_driver_knows_is_an_outage() -> None:
    states = set(psycopg.errors._sqlcodes)
    assert len(states) > 200
    outages = {state for state in states if postgres_fault(state, lost=False) is Fault.UNAVAILABLE}
    assert outages == {state for state in states if state.startswith("08") or state in NO_CONNECTION}


SQLITE = {
    "BUSY": Fault.LOCKED,
    "PROTOCOL": Fault.LOCKED,
    "LOCKED": Fault.ABORTED,
    "INTERRUPT": Fault.ABORTED,
    "ABORT": Fault.ABORTED,
    "NOMEM": Fault.ABORTED,
    "FULL": Fault.FULL,
    "IOERR": Fault.FILE,
    "READONLY": Fault.FILE,
    "CANTOPEN": Fault.FILE,
    "PERM": Fault.FILE,
    "CORRUPT": Fault.DAMAGED,
    "NOTADB": Fault.DAMAGED,
    "CONSTRAINT": Fault.UNIQUE,
}


@pytest.mark.parametrize("name", [name for name in apsw.mapping_result_codes if isinstance(name, str)])
def test_every_result_of_sqlite_has_its_meaning(name: str) -> None:
    short = name.removeprefix("SQLITE_")
    assert sqlite_fault(getattr(apsw, name)) is SQLITE.get(short, Fault.WRONG)


@pytest.mark.parametrize("name", [name for name in apsw.mapping_extended_result_codes if isinstance(name, str)])
def test_the_extended_part_of_a_result_changes_nothing(name: str) -> None:
    code = getattr(apsw, name)
    assert sqlite_fault(code) is sqlite_fault(code & 0xFF)
