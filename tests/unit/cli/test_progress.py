"""What is shown while long work goes on."""

from __future__ import annotations

import pytest

from ticklake.cli.terminal import progress as _progress
from ticklake.cli.terminal.progress import Bars, Rate, time_left


def test_a_rate_is_that_of_the_last_half_minute() -> None:
    now = [0.0]
    rate = Rate(lambda: now[0])
    assert rate.update(0) == 0.0
    for second, amount in ((10, 100), (20, 200), (50, 260), (60, 280), (90, 340)):
        now[0] = second
        per_second = rate.update(amount)
    assert per_second == 2.0


def test_the_time_left_follows_from_the_rate() -> None:
    assert time_left(100, 1000, 10.0) == "0:01:30 left"
    assert time_left(1000, 1000, 10.0) == time_left(5, 10, 0.0) == ""


def test_without_a_terminal_a_line_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "LINE_SECONDS", 0.0)
    with Bars() as bars:
        bars.update("environment_data", 0, 1000, rows=0)
        bars.update("environment_data", 400, 1000, rows=8_000)
        bars.update("environment_data", 1000, 1000, rows=20_000)
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "environment_data: 0 of 1,000, 0 rows, 0 rows/s"
    assert second.startswith("environment_data: 400 of 1,000, 8,000 rows, ") and second.endswith(" left")
    assert last.startswith("environment_data: 1,000 of 1,000, 20,000 rows, ") and "left" not in last


def test_a_line_comes_only_every_so_often(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        for done in range(1, 100):
            bars.update("environment_data", done, 1000)
    assert capsys.readouterr().err.splitlines() == ["environment_data: 1 of 1,000"]
