"""A standalone cluster of real processes: each key exactly once, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

pytestmark = pytest.mark.chaos

# The quick compiler, and the classes that other JVMs have loaded before: an executor lives for seconds.
QUICK_JVM = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {os.environ['SPARK_SUBMIT_OPTS']}"
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", f"spark.executor.extraJavaOptions={QUICK_JVM}")


def kill(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def ended_well(child: subprocess.Popen[bytes], processes: Any) -> bool:
    assert child.wait(240) == 0, processes.log("index").read_text()[-2000:]
    return True


@pytest.mark.slow  # four JVMs
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


@pytest.mark.slow
def test_a_flush_whose_workers_are_all_killed_goes_on_when_another_one_comes(
    maker: Any, processes: Any, eventually: Callable[..., None], tmp_path: Path
) -> None:
    maker.metadata()
    maker.batches(2)
    master = processes.master()
    mark = tmp_path / "mark"
    only = processes.worker("only", master, TICKLAKE_FAULT="lake.task.written:hold", TICKLAKE_FAULT_MARK=str(mark))
    index = processes.index(maker, master, *SMALL, "--table", "environment_data")
    eventually(mark.exists)
    kill(only)
    processes.worker("newcomer", master)

    assert ended_well(index, processes)
    assert maker.keys() == sorted(maker.expected_keys(range(200)))


OWN_INDEXER = """
import os, time
from pathlib import Path
import pyarrow as pa
from ticklake import BatchIndexer, Table

class SlowOnce(BatchIndexer):
    table = Table("seen", key=("tick_number",), schema=pa.schema([("tick_number", pa.int64())]))

    @staticmethod
    def rows(ticks, world):
        here = Path({here!r})
        try:
            os.symlink(str(os.getpid()), here / "first")
        except FileExistsError:
            return ticks.select(["tick_number"])
        while not (here / "go on").exists():
            time.sleep(0.01)
        return ticks.select(["tick_number"])
"""

# A driver that notices within seconds that an executor does not answer.
IMPATIENT = (
    *("--conf", "spark.executor.heartbeatInterval=1s"),
    *("--conf", "spark.network.timeout=4s"),
    *("--conf", "spark.network.timeoutInterval=1s"),
)


@pytest.mark.slow
def test_what_a_task_writes_that_was_given_up_for_lost_is_never_in_the_table(
    maker: Any, processes: Any, eventually: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.metadata()
    maker.batches(2)
    master = processes.master()
    for name in ("one", "other"):
        processes.worker(name, master)
    # Only the driver can import it: it comes to the workers with the job.
    (tmp_path / "own" / "slow_once.py").parent.mkdir()
    (tmp_path / "own" / "slow_once.py").write_text(OWN_INDEXER.format(here=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'own'}:{os.environ.get('PYTHONPATH', '')}")
    index = processes.index(maker, master, *SMALL, *IMPATIENT, "--table", "slow_once:SlowOnce")
    eventually((tmp_path / "first").is_symlink)
    lost = psutil.Process(int((tmp_path / "first").readlink().name))
    executor = next(parent for parent in lost.parents() if "java" in parent.name())
    executor.suspend()
    directory = maker.folder("seen")
    eventually(lambda: DeltaTable(directory).to_pyarrow_table().num_rows > 0)

    before = {path.name for path in directory.glob("*.parquet")}
    (tmp_path / "go on").touch()
    eventually(lambda: {path.name for path in directory.glob("*.parquet")} > before)
    assert ended_well(index, processes)
    assert sorted(maker.rows("seen")["tick_number"].to_pylist()) == list(range(200))
    committed = {Path(uri).name for uri in DeltaTable(directory).file_uris()}
    assert committed < {path.name for path in directory.glob("*.parquet")}
