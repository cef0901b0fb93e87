"""An operator's story: nodes with what `ticklake init` writes are killed again and again, and started again.

Nobody types anything but the same command. In the end every run that ever had a file is complete.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from click.testing import CliRunner
from pipeline import database as some_database

from ticklake.cli import cli
from ticklake.storage import Storage

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
Eventually = Callable[..., None]
KEYS = {"environment_data": "(tick_number, cell_id)", "organism_data": "(tick_number, organism_id)"}
TICKS = 400


class Operator:
    """Starts nodes, kills them, and looks at what is there."""

    def __init__(self, root: Path, url: str, server: Any, nodes: int, seed: int) -> None:
        self.root, self.server, self.rng = root, server, random.Random(seed)
        self.storage = Storage(root / "data" / "storage")
        self.files = [self._configuration(f"node-{number}", url) for number in range(nodes)]
        self.processes: dict[Path, subprocess.Popen[bytes]] = {}
        self.logs: dict[Path, Path] = {}
        self.starts = 0
        self.told: list[str] = []

    def _configuration(self, name: str, url: str) -> Path:
        file = self.root / f"{name}.conf"
        if not (self.root / "ticklake.conf").exists():
            assert CliRunner().invoke(cli, ["init", str(self.root)]).exit_code == 0
        text = (self.root / "ticklake.conf").read_text()
        for old, new in (
            ("sqlite:///data/database", url),
            ("max_ticks = 2000, shape = [128, 128]", f"max_ticks = {TICKS}, shape = [16, 16]"),
            ("max_batch_size = 100", "max_batch_size = 20"),
            ("local[*]", "local[1]"),
            ("interval_ms = 10 s", "interval_ms = 1 s"),
            ("resources {\n  # For", f"node {{ name = {name}, directory = data }}\nresources {{\n  # For"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)
        return file

    def start(self, file: Path) -> None:
        command = [sys.executable, "-c", "from ticklake.cli import main; main()", "-v", "run", str(file)]
        self.starts += 1
        self.logs[file] = self.root / f"log-{self.starts}"
        with self.logs[file].open("wb") as log:
            self.processes[file] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end_all(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def act(self, eventually: Eventually) -> None:
        """Waits for a random moment of a random node, and harms it. If it dies of that, starts it again."""
        file = self.rng.choice(self.files)
        process, count, more = self.processes[file], self._count(), self.rng.randint(0, 12)
        eventually(lambda: self._count() >= count + more or self.is_idle(), 120)
        kinds = ["kill", "group", "jvm", "term", *(["server"] if self.server else [])]
        kind = self.rng.choice(kinds)
        if kind == "term":  # before this, no Python can hear it
            eventually(lambda: self._is_running(file), 120)
        self.told.append(kind)
        getattr(self, f"_{kind}")(process)
        if process.poll() is not None:
            self.start(file)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(60)

    def _group(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def _term(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        assert process.wait(180) == 0, self.text()

    def _jvm(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                if child.name() == "java":
                    child.kill()

    def _server(self, _: subprocess.Popen[bytes]) -> None:
        self.server.restart()

    def _count(self) -> int:
        """The number of batch files of all runs."""
        return sum(len(self.storage.batches(run_id).files) for run_id in self.storage.runs())

    def _is_running(self, file: Path) -> bool:
        return "Running " in self.logs[file].read_text()

    def is_idle(self) -> bool:
        """The runs of the nodes that are up have ended, and all others were closed: there will be no more files."""
        ended = all("is complete: its last tick" in self.logs[file].read_text() for file in self.files)
        return ended and all(self.storage.read_completion(run_id) is not None for run_id in self.storage.runs())

    def text(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in self.logs.values())

    def incomplete(self) -> dict[str, str]:
        """The runs that `verify` does not find complete, with what it says."""
        found = {}
        for run_id in self.storage.runs():
            places = ["--storage", self.storage.url, "--lake", str(self.root / "data" / "lake")]
            result = CliRunner().invoke(cli, ["verify", run_id, *places])
            if result.exit_code != 0:
                found[run_id] = result.output
        return found

    def doubled(self) -> list[str]:
        """Tables in which a key is there twice, counted by another program."""
        found = []
        for run_id in self.storage.runs():
            for table, key in KEYS.items():
                place = self.root / "data" / "lake" / run_id / table
                if not (place / "_delta_log").is_dir():
                    continue
                from deltalake import DeltaTable

                rows = DeltaTable(place).to_pyarrow_table()  # noqa: F841  DuckDB finds it by its name
                ((total, keys),) = duckdb.sql(f"SELECT count(*), count(DISTINCT {key}) FROM rows").fetchall()
                if total != keys:
                    found.append(f"{run_id}/{table}: {total} rows, {keys} keys")
        return found


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("kind", "nodes", "kills"),
    [
        pytest.param("sqlite", 1, 6, marks=pytest.mark.slow),
        pytest.param("sqlite", 1, 20, marks=pytest.mark.long),
        pytest.param("postgres", 2, 20, marks=pytest.mark.long),
    ],
)
def test_every_run_is_complete_although_nodes_are_killed_again_and_again(
    tmp_path: Path, eventually: Eventually, kind: str, nodes: int, kills: int
) -> None:
    with ExitStack() as stack:
        url, server = stack.enter_context(some_database(kind, tmp_path))
        operator = Operator(tmp_path, url, server, nodes, seed=kills)
        stack.callback(operator.end_all)
        for file in operator.files:
            operator.start(file)
        for _ in range(kills):
            operator.act(eventually)
        try:
            eventually(lambda: operator.is_idle() and not operator.incomplete(), 600)
        except AssertionError:
            raise AssertionError(f"after {operator.told}: {operator.incomplete()}\n{operator.text()}") from None
        for process in operator.processes.values():
            process.terminate()
        assert [process.wait(180) for process in operator.processes.values()] == [0] * nodes
        assert operator.incomplete() == {}
        assert operator.doubled() == []
        assert len(operator.storage.runs()) > 1
