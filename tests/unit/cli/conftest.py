from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake
from printed import read_json

from ticklake.cli import cli

Run = Callable[..., Result]
OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"


@pytest.fixture
def ticklake() -> Run:
    """Calls a command in this process; errors come through as they are raised."""

    def run(*arguments: str | Path) -> Result:
        environment = {"TICKLAKE_STORAGE": None, "TICKLAKE_LAKE": None, "TICKLAKE_DATABASE": None, "COLUMNS": "200"}
        return CliRunner().invoke(cli, [str(part) for part in arguments], env=environment, catch_exceptions=False)

    return run


@pytest.fixture
def report(ticklake: Run) -> Callable[..., Any]:
    """What a command prints with --json."""
    return lambda *arguments: read_json(ticklake(*arguments, "--json").stdout)


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls the real command, as a shell would."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from ticklake.cli import main; main()", *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TICKLAKE_")}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two runs; the older has two commits of ten ticks, and one of its tables has no ticks at all."""
    root = tmp_path / "lake"
    for start in (0, 10):
        add_ticks(root / OLD / "organism_data", range(start, start + 10))
    add_ticks(root / NEW / "organism_data", range(5))
    write_deltalake(root / OLD / "metadata", pa.table({"key": ["shape"], "value": ["[1]"]}))
    return root


def add_ticks(table: Path, ticks: range) -> None:
    rows = pa.table({"tick_number": pa.array(ticks, pa.int64()), "energy": pa.array(ticks, pa.int64())})
    write_deltalake(table, rows, mode="append")
