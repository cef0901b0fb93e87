"""Reading several places: one that fails hides no other, and is asked once."""

from __future__ import annotations

import pytest

from ticklake.separate_reads import Attempts


def fail() -> int:
    raise OSError("the disk\nis gone")


def test_a_place_that_fails_is_named_once_and_not_asked_again() -> None:
    attempts, good, bad, asked = Attempts(), object(), object(), []
    assert attempts.read(bad, fail) is None
    assert attempts.read(bad, lambda: asked.append(1)) is None and not asked
    assert attempts.read(good, lambda: 7) == 7
    assert attempts.errors == ["the disk is gone"]
    with pytest.raises(OSError, match="gone"):
        attempts.raise_first()


def test_later_attempts_know_what_failed_before_and_keep_their_own() -> None:
    before, place, other = Attempts(), object(), object()
    before.read(place, fail)
    later = Attempts(before)
    assert later.read(place, lambda: 7) is None
    assert before.read(other, lambda: 7) == 7 and later.read(other, fail) is None
    assert before.read(other, lambda: 7) == 7


def test_without_a_failure_nothing_is_raised() -> None:
    attempts = Attempts()
    attempts.raise_first()
    assert attempts.errors == []


def test_an_error_of_the_program_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        Attempts().read(object(), lambda: 1 // 0)
