"""Texts of errors, whatever is in them."""

from __future__ import annotations

import pytest

from ticklake.monitoring import ErrorLog
from ticklake.text import MAX_LENGTH, error_text, message_text, storable, traceback_text


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_an_error_has_a_text_even_if_making_it_fails() -> None:
    assert error_text(Unspeakable()) == "Unspeakable: its text cannot be formatted (RuntimeError)"
    assert "Unspeakable" in traceback_text(raised(Unspeakable()))
    log = ErrorLog()
    log.record("CODE", Unspeakable())
    assert [error.message for error in log] == ["its text cannot be formatted (RuntimeError)"]


def test_an_error_without_a_text_has_its_type() -> None:
    assert message_text(ValueError()) == "ValueError()"
    assert error_text(ValueError("no")) == "ValueError: no"
    assert error_text("already written") == "already written"


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = storable("a" * MAX_LENGTH + "b" * MAX_LENGTH)
    assert len(text) < MAX_LENGTH + 100
    assert text.startswith("aaa") and text.endswith("bbb")
    assert "131,072 characters" in text
    assert storable("a" * MAX_LENGTH) == "a" * MAX_LENGTH
