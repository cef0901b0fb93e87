"""`ticklake index` says how many rows it expects, and does not begin to write very many without a yes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.crash import original
from tests.unit.storage.test_eras import some_ticks

from ticklake.cli import cli
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin import OF_CELLS, OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.flush import decoded_slice
from ticklake.lake.lake import Lake
from ticklake.lake.slices import Slice
from ticklake.storage.files import Storage
from ticklake.world import World


def put(root: Path, era: str, files: int, chunk: int, last: int | None = None) -> None:
    """Writes a run with files of 20 ticks. `last`: the last tick, as the name of its only file claims."""
    raw = root / original.RUN / "raw"
    (raw / "000").mkdir(parents=True)
    (raw / "metadata.pb").write_bytes(original.metadata(era))
    ticks = some_ticks(3, count=20 * files + 20, era=era)[20:]  # evenly filled by then
    for first in range(0, 20 * files, 20):
        some = [
            original.Tick(first + n, tick.cells, tick.organisms) for n, tick in enumerate(ticks[first : first + 20])
        ]
        name = f"batch_{first:019d}_{first + 19 if last is None else last:019d}.pb"
        (raw / "000" / name).write_bytes(original.file_of(era, some, chunk))


@pytest.mark.parametrize("era", "AG")
@pytest.mark.parametrize("cells", ["all", "snapshots", "changes"])
def test_the_estimate_is_near_the_number_of_rows(tmp_path: Path, era: str, cells: str) -> None:
    put(tmp_path / "storage", era, files=5, chunk=10)
    storage, kinds = Storage(tmp_path / "storage"), [OF_CELLS[cells], OrganismIndexer]
    work = FinishedRun(IndexerResources(storage, Lake(tmp_path / "lake")), original.RUN, kinds).prepare()
    expected = work.expected_rows(work.ticks_left())
    world = World.of(storage.read_metadata(original.RUN))
    for kind in kinds:
        assert kind.table is not None
        parts = [
            decoded_slice(kind.work(storage, world, None), Slice(file, file.ticks))
            for file in storage.every_batch(original.RUN)
        ]
        rows = sum(one.rows.num_rows for part in parts for one in part if one.rows is not None)
        assert rows / 2 < expected[kind.table.name] < rows * 2


def test_a_long_chunk_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.lake.flush.estimate._SECONDS", 0.0)
    put(tmp_path / "storage", "G", files=1, chunk=20)
    resources = IndexerResources(Storage(tmp_path / "storage"), Lake(tmp_path / "lake"))
    counts = {}
    for cells in ("all", "snapshots"):
        work = FinishedRun(resources, original.RUN, [OF_CELLS[cells]]).prepare()
        counts[cells] = work.expected_rows(work.ticks_left())["environment_data"]
    assert counts["all"] / 40 < counts["snapshots"] < counts["all"] / 10


def index(root: Path, *options: str) -> list[str]:
    return ["index", original.RUN, "--storage", str(root / "storage"), "--lake", str(root / "lake"), *options]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_very_many_rows_need_a_yes(tmp_path: Path, options: list[str]) -> None:
    put(tmp_path / "storage", "G", files=1, chunk=20, last=10**10 - 1)
    done = CliRunner().invoke(cli, index(tmp_path, *options))
    assert done.exit_code == 2
    assert "rows would be written. Add --yes to write them, or write fewer with --cells snapshots." in done.output
    assert not (tmp_path / "lake" / original.RUN / "environment_data").exists()


def test_in_a_terminal_it_asks(tmp_path: Path) -> None:
    put(tmp_path / "storage", "G", files=1, chunk=20, last=10**10 - 1)
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"n\n")
    command = [sys.executable, "-m", "ticklake", *index(tmp_path)]
    done = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=60, check=False)
    os.close(keyboard)
    os.close(terminal)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Expected: about " in done.stderr and "Write them? " in done.stderr
    assert not (tmp_path / "lake" / original.RUN / "environment_data").exists()


@pytest.mark.parametrize("cells", ["changes", "none"])
def test_cells_that_a_table_cannot_have_are_refused(tmp_path: Path, cells: str) -> None:
    done = CliRunner().invoke(cli, index(tmp_path, "--cells", cells, "--table", "environment_data"))
    assert done.exit_code == 2
    assert f"--cells {cells} does not fill environment_data." in done.output
