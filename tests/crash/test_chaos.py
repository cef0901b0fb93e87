"""A whole pipeline under random faults, in the length that a normal run has time for, and the harness itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).with_name("chaos.py")
sys.path.insert(0, str(CHAOS.parent))

import chaos  # noqa: E402
import small_disk  # noqa: E402
import torment  # noqa: E402

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.warns(".*")]
SEED = 13  # with every kind of fault in it


@pytest.mark.parametrize(("faults", "kinds"), [(8, 5), pytest.param(25, 11, marks=pytest.mark.slow)])
def test_random_faults_lose_nothing_and_repeat_nothing(tmp_path: Path, faults: int, kinds: int) -> None:
    report = chaos.play(tmp_path, f"sqlite:///{tmp_path / 'db'}", SEED, faults)
    assert report.complaints == []
    assert (report.lost, report.duplicated, report.dead_letters) == (0, 0, 0)
    assert report.faults.total() == faults
    assert len(report.faults) >= kinds and not any("missed" in kind for kind in report.faults), report.text()
    assert report.ticks >= faults * chaos.TICKS_A_FAULT


@pytest.mark.skipif(not small_disk.allowed(), reason="a disk that can be full is a mount, and this user may not mount")
@pytest.mark.parametrize("faults", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_full_disk_loses_nothing_and_repeats_nothing(faults: int) -> None:
    options = f"--faults {faults} --seed {SEED} --database sqlite --only fill --acts 0".split()
    done = subprocess.run([sys.executable, CHAOS, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"faults      {faults}: fill {faults}\n" in done.stdout
    assert "lost        0" in done.stdout


@pytest.mark.slow
def test_a_fault_that_cannot_happen_is_refused() -> None:
    options = ["--faults", "1", "--database", "sqlite", "--only", "restart", "--acts", "0"]
    done = subprocess.run([sys.executable, CHAOS, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("chaos: restart cannot happen to this pipeline; it knows away, clock")


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_hundred_faults_lose_nothing_and_repeat_nothing(database: str) -> None:
    options = f"--faults 100 --seed {SEED} --database {database} --acts 0".split()
    done = subprocess.run([sys.executable, CHAOS, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost        0" in done.stdout
    assert "duplicated  0" in done.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_whose_workers_are_killed_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    report = chaos.play(tmp_path, f"sqlite:///{tmp_path / 'db'}", SEED, 6, spark=True, only=["worker"])
    assert report.complaints == []
    assert report.faults["worker"] > 0, report.text()
    assert (report.lost, report.duplicated, report.dead_letters) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "point", "lost", "duplicated"),
    [
        ("ack before commit", "lake.commit.before", True, False),
        ("commit twice", "lake.commit.after", False, True),
    ],
)
def test_a_bug_that_is_planted_is_caught(
    tmp_path: Path, bug: str, point: str, lost: bool, duplicated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only kills where such a bug fails: what an indexer had in hand is lost, or there twice."""
    monkeypatch.setattr(torment, "DEADLY", {"indexer": [point], "produce": ["persistence.publish"]})
    report = chaos.play(tmp_path, f"sqlite:///{tmp_path / 'db'}", SEED, 4, bug=bug, only=["kill_at_point"])
    assert report.hits
    assert (report.lost > 0) == lost, report.text()
    assert (report.duplicated > 0) == duplicated, report.text()
    assert report.complaints
