"""A node that is killed and started again with the same command finishes and closes the runs that it began."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from ticklake import Database
from ticklake.cli import cli
from ticklake.storage import Storage

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
Eventually = Callable[..., None]
GROUPS = {"environment-indexer", "organism-indexer"}


@contextmanager
def node(file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", "from ticklake.cli import main; main()", "run", str(file)]
    with (file.parent / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def lags(database: Database, run_id: str) -> dict[str, int]:
    run = database.run(run_id, create=False)
    return {one.group: one.lag for one in run.groups.list("batch-topic") if one.group in GROUPS}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What `ticklake init` writes, but with a run that never ends by itself."""
    file = tmp_path / "ticklake.conf"
    assert CliRunner().invoke(cli, ["init", str(tmp_path)]).exit_code == 0
    text = file.read_text()
    changed = text.replace("max_ticks = 2000, shape = [128, 128]", "max_ticks = 100000000, shape = [16, 16]")
    changed = changed.replace("max_batch_size = 100", "max_batch_size = 20").replace("local[*]", "local[1]")
    assert changed != text
    file.write_text(changed)
    return file


@pytest.mark.slow  # three JVMs; without any: `tests/crash/test_abandoned_runs.py`
def test_a_killed_node_finishes_its_old_runs_at_the_next_start(file: Path, eventually: Eventually) -> None:
    storage = Storage(file.parent / "data" / "storage")

    def begins(before: int) -> bool:
        """A further run has files, and both indexers know it."""
        found = storage.runs()
        if len(found) <= before or len(storage.batches(found[-1]).files) < 4:
            return False
        return set(lags(database, found[-1])) == GROUPS

    with Database(f"sqlite:///{file.parent / 'data' / 'database'}") as database:
        for number in range(2):
            with node(file) as process:
                eventually(partial(begins, number))
                os.killpg(process.pid, signal.SIGKILL)
        runs = storage.runs()
        with node(file) as process:
            eventually(lambda: all(storage.read_completion(one) is not None for one in runs))
            eventually(lambda: all(set(lags(database, one).values()) == {0} for one in runs), 300)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
    for run_id in runs:
        places = ["--storage", storage.url, "--lake", str(file.parent / "data" / "lake")]
        assert f"Continuing with run {run_id}" in (file.parent / "log").read_text()
        result = CliRunner().invoke(cli, ["verify", run_id, *places])
        assert (result.exit_code, "abandoned at tick" in result.output) == (0, True), result.output
