"""A whole pipeline under random faults, in the length that a normal run has time for, and the harness itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).with_name("chaos.py")
sys.path.insert(0, str(CHAOS.parent))

import chaos  # noqa: E402

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.warns(".*")]
SEED = 7


def test_twenty_five_faults_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    report = chaos.play(tmp_path, f"sqlite:///{tmp_path / 'db'}", SEED, 25)
    assert report.complaints == []
    assert (report.lost, report.duplicated, report.dead_letters) == (0, 0, 0)
    assert report.faults.total() == 25
    assert report.ticks == 25 * chaos.TICKS_A_FAULT


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_hundred_faults_lose_nothing_and_repeat_nothing(database: str) -> None:
    command = [
        sys.executable,
        str(CHAOS),
        "--faults",
        "100",
        "--seed",
        str(SEED),
        "--database",
        database,
        "--acts",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost        0" in done.stdout
    assert "duplicated  0" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "lost", "duplicated"), [("ack before commit", True, False), ("commit twice", False, True)]
)
def test_a_bug_that_is_planted_is_caught(
    tmp_path: Path, bug: str, lost: bool, duplicated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only kills: they are what such a bug fails at."""
    monkeypatch.setattr(chaos.Torment, "one", lambda self: self._kill_at_point() or "kill_at_point")
    monkeypatch.setattr(chaos, "DEADLY", ("lake.commit.before",) if lost else ("lake.commit.after",))
    monkeypatch.setattr(chaos, "DEADLY_SQL", ())
    monkeypatch.setattr(chaos, "PATIENCE", 200.0)
    report = chaos.play(tmp_path, f"sqlite:///{tmp_path / 'db'}", SEED, 2, bug=bug)
    assert (report.lost > 0) == lost, report.text()
    assert (report.duplicated > 0) == duplicated, report.text()
    assert report.complaints
