"""A standalone cluster of real processes: each key exactly once, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.chaos

SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")


def kill(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def ended_well(child: subprocess.Popen[bytes], processes: Any) -> bool:
    assert child.wait(240) == 0, processes.log("index").read_text()[-2000:]
    return True


def test_a_worker_that_is_killed_in_the_middle_of_a_flush_costs_no_key_and_doubles_none(
    maker: Any, processes: Any, eventually: Callable[..., None], tmp_path: Path
) -> None:
    maker.metadata()
    maker.batches(4)
    master = processes.master()
    mark = tmp_path / "mark"
    processes.worker("survivor", master)
    victim = processes.worker("victim", master, TICKLAKE_FAULT="lake.parquet.write:hold", TICKLAKE_FAULT_MARK=str(mark))
    index = processes.index(maker, master, *SMALL, "--conf", "spark.app.name=seen by the master")
    eventually(lambda: mark.exists() or index.poll() is not None)
    assert mark.exists(), processes.log("index").read_text()[-2000:]
    kill(victim)

    assert ended_well(index, processes)
    assert maker.keys() == sorted(maker.expected_keys(range(400)))
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(400)]
    assert "Registered app seen by the master" in processes.log("master").read_text()
