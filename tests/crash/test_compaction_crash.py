"""Compaction that is killed, and compaction beside indexers: the same rows, each key once, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta import Location
from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.empty import EMPTY
from ticklake.lake.flush import task
from ticklake.lake.flush.task import Work
from ticklake.lake.ledger import Ledger
from ticklake.lake.slices import Piece, Slice
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.lake.verify.coverage import covered
from ticklake.lake.verify.fingerprint import fingerprints
from ticklake.ticks import TickRange
from ticklake.world import World

pytestmark = [pytest.mark.chaos]

CHILD = Path(__file__).with_name("compaction_child.py")

# Where the process dies, and whether its merged file is part of the table by then.
STEPS = {
    "while it writes": ("lake.compaction.writing", False),
    "file written but not synced": ("lake.parquet.unsynced", False),
    "before the commit": ("lake.compaction.written", False),
    "in the commit, before it is synced": ("storage.unsynced", False),
    "in the commit, before it has its name": ("storage.publish", False),
    "in the commit, when it has its name": ("storage.published", True),
    "after the commit": ("lake.commit.after", True),
    "after the files were swapped": ("lake.compaction.committed", True),
}
# One before there is a merged file, and one on each side of its commit.
QUICK = {"while it writes", "before the commit", "after the commit"}


def child(role: str, maker: Any, **environment: str) -> subprocess.Popen[bytes]:
    root = maker.lake_folder.parent
    command = [sys.executable, str(CHILD), role, str(root), maker.run_id]
    return subprocess.Popen(
        command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint.decode()


@contextmanager
def beside(role: str, maker: Any) -> Iterator[None]:
    """A process that compacts all the while, from the first moment on."""
    process = child(role, maker)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        finish(process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def table(maker: Any) -> Path:
    """A table of six flushes: their tasks run here, and so does their commit."""
    metadata = maker.metadata()
    ledger = maker.lake.ledger(maker.run_id, OrganismIndexer.table)
    for batch in maker.batches(6, ticks=7, cells=1):
        file = maker.storage.batch(batch.storage_key)
        work = Work(
            flush_id=uuid4().hex,
            storage=maker.storage,
            world=World.of(metadata),
            reads=OrganismIndexer.reads,
            table=OrganismIndexer.table,
            location=ledger.location,
            rows=OrganismIndexer.rows,
        )
        results = task.index(work, 0, [Piece(0, Slice(file, file.ticks))])
        ledger.commit([one for one in results if isinstance(one, ParquetFile)], {})
    ledger.commit([], {EMPTY: "[[42, 50, 1]]"})
    directory: Path = Path(str(ledger.location))
    return directory


def fingerprint(directory: Path) -> list[list[int]]:
    return [column.tolist() for column in fingerprints(DeltaTable(directory).to_pyarrow_table())]


def left_over(directory: Path) -> list[str]:
    """What lies there and is no part of the table, temporary files of the log included."""
    live = {Path(uri).name for uri in DeltaTable(directory).file_uris()}
    data = {path.name for path in directory.glob("*.parquet")} - live
    return sorted(data | {path.name for path in (directory / "_delta_log").glob(".*")})


def make_old(directory: Path) -> None:
    for path in directory.rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - 8 * 86_400))


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_a_kill_at_this_step_changes_no_row_and_leaves_only_what_vacuum_removes(
    maker: Any, table: Path, step: str
) -> None:
    before, there = fingerprint(table), covered(Location.of(table)).ticks.tolist()
    point, committed = STEPS[step]
    victim = child("once", maker, TICKLAKE_FAULT=f"{point}:kill")
    victim.communicate(timeout=120)
    assert victim.returncode == -signal.SIGKILL
    assert (len(DeltaTable(table).file_uris()) == 1) == committed
    assert fingerprint(table) == before
    assert covered(Location.of(table)).ticks.tolist() == there == list(range(51))

    assert OrganismIndexer.table is not None
    ledger = Ledger(Location.of(table), OrganismIndexer.table)
    assert ledger.present([TickRange(0, 99)]).tolist() == there
    list(Compaction(ledger, BY_HAND).steps())
    make_old(table)
    vacuum = Vacuum(Location.of(table), table.parent.name)
    assert [one.file.name for one in vacuum.remove(vacuum.find())]
    assert left_over(table) == []
    assert len(DeltaTable(table).file_uris()) == 1
    assert fingerprint(table) == before


@pytest.mark.slow  # in one process, and in any order of steps: `tests/unit/lake/test_interleavings.py`
@pytest.mark.parametrize("role", ["compact", "vacuum"])
def test_indexers_that_compete_beside_it_leave_each_key_once(maker: Any, tmp_path: Path, role: str) -> None:
    maker.metadata()
    maker.batches(30, ticks=7, cells=1)
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    with beside(role, maker):
        indexers = [child("index", maker), child("index", maker)]
        for indexer in indexers:
            finish(indexer)
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(210)]
    directory = maker.folder("organism_data")
    operations = [commit["operation"] for commit in DeltaTable(directory).history()]
    assert "OPTIMIZE" in operations
    assert len(DeltaTable(directory).file_uris()) < operations.count("WRITE")
    alone = type(maker)(tmp_path / "alone")
    (tmp_path / "alone").mkdir()
    (tmp_path / "storage").rename(tmp_path / "alone" / "storage")
    (tmp_path / "lake" / maker.run_id / "metadata").rename(made(alone, "metadata"))
    finish(child("index", alone))
    assert fingerprint(directory) == fingerprint(alone.folder("organism_data"))


def made(maker: Any, table: str) -> Path:
    """Where a table of this maker would be, all but the last folder there."""
    directory: Path = maker.folder(table)
    directory.parent.mkdir(parents=True)
    return directory
