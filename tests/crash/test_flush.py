"""SIGKILL at every step of a flush: after a restart every key is there exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ticklake.cli import cli
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.topics import Database

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")]

Start = Callable[..., subprocess.Popen[bytes]]

CHILD = Path(__file__).with_name("index_child.py")

# Where the process dies, and whether what it wrote is in the table by then.
STEPS = {
    "before the job": ("lake.flush.before_job", False),
    "during the job": ("lake.parquet.write", False),
    "in the job, file written but not synced": ("lake.parquet.unsynced", False),
    "after the files, before the commit": ("lake.commit.before", False),
    "after the commit, before it is synced": ("lake.commit.after", True),
    "after the commit, before the ack": ("indexer.ack.before", True),
    "after the ack": ("indexer.ack.after", True),
}
# What only Spark has; `test_fault_points` crashes at the rest without it.
QUICK = {"during the job"}


@pytest.fixture
def start(maker: Any, tmp_path: Path) -> Iterator[Start]:
    """Starts indexer processes, each in a group of its own, and leaves none behind."""
    children: list[subprocess.Popen[bytes]] = []

    def start(table: str = "environment_data", insert: int = 150, **environment: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(tmp_path), maker.run_id, table, str(insert)],
            env=os.environ | environment,
            start_new_session=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        kill(child)


@pytest.fixture
def restart(maker: Any, spark: Any) -> Callable[[type[BatchIndexer]], None]:
    """Another indexer of the same group takes over, until nothing is left."""

    def restart(kind: type[BatchIndexer]) -> None:
        with Database(maker.database_url) as database:
            resources = IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)
            options = IndexerOptions(maker.run_id, until_caught_up=True, claim_timeout=5, max_delivery_attempts=99)
            assert kind.table is not None
            kind(kind.table.name, resources, options).run()

    return restart


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process, its JVM and its Python workers."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def prepare(maker: Any) -> None:
    maker.metadata()
    maker.publish(*maker.batches(3))
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_a_kill_at_this_step_loses_nothing_and_doubles_nothing(
    maker: Any,
    start: Start,
    restart: Callable[[type[BatchIndexer]], None],
    eventually: Callable[..., None],
    tmp_path: Path,
    step: str,
) -> None:
    prepare(maker)
    point, committed = STEPS[step]
    mark = tmp_path / "mark"
    # Two flushes where one is committed by then; else a single one, so that none beside it can be.
    insert = 150 if committed else 300
    victim = start(insert=insert, TICKLAKE_FAULT=f"{point}:hold", TICKLAKE_FAULT_MARK=str(mark))
    eventually(lambda: mark.exists() or victim.poll() is not None)
    assert mark.exists(), "it ended before it came to this step"
    kill(victim)
    assert bool(maker.rows().num_rows) == committed

    restart(EnvironmentIndexer)
    assert maker.keys() == sorted(maker.expected_keys(range(300)))


@pytest.mark.slow  # without Spark: `test_competing`
def test_two_processes_at_once_share_the_work_and_leave_each_key_once(maker: Any, start: Start) -> None:
    prepare(maker)
    batch = maker.batch(0, 99)
    maker.publish(batch, batch, *maker.batches(4), maker.batch(30, 270, step=3))
    both = [start(insert=60), start(insert=60)]
    assert [child.wait(120) for child in both] == [0, 0]
    assert maker.keys() == sorted(maker.expected_keys(range(400)))


@pytest.mark.slow
def test_the_organism_table_survives_a_kill_before_the_ack_too(
    maker: Any, start: Start, restart: Callable[[type[BatchIndexer]], None]
) -> None:
    prepare(maker)
    victim = start("organism_data", TICKLAKE_FAULT="indexer.ack.before:kill")
    assert victim.wait(120) == -signal.SIGKILL
    restart(OrganismIndexer)
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(300)]


TABLES = ("environment_data", "organism_data")
INDEX = "from ticklake.cli import main; main()"


def test_a_kill_between_the_commits_of_two_tables_that_share_a_job_loses_nothing_and_doubles_nothing(
    maker: Any, spark: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    maker.metadata()
    maker.batches(3)
    index = ["index", maker.run_id, "--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake")]
    command = [sys.executable, "-c", INDEX, *index, "--master", "local[1]"]
    # The first commit is that of the metadata. One table has its own, the other is held just before.
    mark = tmp_path / "mark"
    fault = {"TICKLAKE_FAULT": "lake.commit.before:hold:3", "TICKLAKE_FAULT_MARK": str(mark)}
    victim = subprocess.Popen(
        command, env=os.environ | fault, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        eventually(lambda: mark.exists() or victim.poll() is not None)
        eventually(lambda: sum(bool(maker.rows(table).num_rows) for table in TABLES) == 1)
    finally:
        kill(victim)
        victim.communicate()

    again = CliRunner().invoke(cli, [*index, "--master", "local[2]"])
    assert again.exit_code == 0, again.output
    assert maker.keys() == sorted(maker.expected_keys(range(300)))
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(300)]
