"""Indexers in one consumer group share a run; whoever is killed, the others take over, and each key is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.topics import Database, Run

pytestmark = [pytest.mark.chaos]

CHILD = Path(__file__).with_name("competing_child.py")
NODE = "from ticklake.cli import main; main()"
CLAIM_TIMEOUT = 3.0
NEVER_MS = 3_600_000
BURST = 128
TICKS = 3
Process = subprocess.Popen[str]


class Group:
    """Processes that index the batches of one topic as one consumer group, and what its store says about each."""

    def __init__(self, maker: Any, run: Run, root: Path) -> None:
        self._maker, self._run, self._root = maker, run, root
        self._published = 0
        self.processes: list[Process] = []

    def start(self, flush_timeout_ms: int = 100, insert_batch_size: int = 4 * TICKS, fault: str = "") -> Process:
        sizes = (str(flush_timeout_ms), str(insert_batch_size))
        command = [str(CHILD), str(self._root), self._run.id, self._maker.database_url, *sizes]
        return self.launch(command, TICKLAKE_FAULT=fault)

    def launch(self, command: list[str], **environment: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def publish(self, count: int) -> None:
        first, last = self._published, self._published + count
        batches = [self._maker.batch(n * TICKS, (n + 1) * TICKS - 1, cells=1) for n in range(first, last)]
        self._published = last
        self._maker.publish(*batches)

    @property
    def lag(self) -> int:
        return self._published - sum(self.acknowledged().values())

    def acknowledged(self) -> Counter[int]:
        """How many messages each process has done."""
        return self._counted("acknowledged_at IS NOT NULL")

    def claimed(self) -> Counter[int]:
        """How many messages each process holds."""
        return self._counted("acknowledged_at IS NULL")

    def longest_lease(self) -> float:
        """The seconds until the last claim runs out."""
        return max(claim.expires_in_ms or 0 for claim in self._run.claims.list()) / 1000

    def taken_over(self) -> int:
        return sum(self._counted("claim_version > 1").values())

    def _counted(self, condition: str) -> Counter[int]:
        query = f"SELECT claimed_by FROM topic_consumer_group WHERE claimed_by IS NOT NULL AND {condition}"
        with self._run.reading() as view:
            return Counter(int(consumer.rsplit(":", 2)[1]) for (consumer,) in view.execute(query, {}))

    def keys_expected(self) -> list[tuple[int, int]]:
        return [(tick, 1) for tick in range(self._published * TICKS)]

    def kill_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def group(request: pytest.FixtureRequest, maker: Any, tmp_path: Path) -> Iterator[Group]:
    maker.run_id = f"20251014-143025-{uuid4().hex[:8]}"
    if request.param == "postgres":
        maker.database_url = request.getfixturevalue("postgres_url")
    maker.metadata()
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    with Database(maker.database_url) as database:
        run = database.run(maker.run_id)
        run.reader("batch-topic", group="organism-indexer").close()
        made = Group(maker, run, tmp_path)
        yield made
        made.kill_all()


def is_ready(process: Process) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]


def end(process: Process) -> int:
    """Ends it in good order; how many messages it has taken over from the dead."""
    process.send_signal(signal.SIGTERM)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    return int(said)


@pytest.mark.timeout(280)
def test_four_share_the_work_and_two_of_them_are_killed_and_each_key_is_there_once(
    maker: Any, group: Group, eventually: Callable[..., None]
) -> None:
    killed = [group.start(fault="lake.commit.before:kill:3"), group.start(fault="indexer.ack.before:kill:3")]
    living = [group.start(), group.start()]
    for process in group.processes:
        is_ready(process)

    def all_had_work() -> bool:
        done = group.acknowledged()
        return all(done[one.pid] for one in living) and all(one.poll() is not None for one in killed)

    def burst() -> bool:
        group.publish(BURST)
        eventually(lambda: all_had_work() or group.lag == 0)
        return all_had_work()

    eventually(burst)
    eventually(lambda: group.lag == 0)
    assert [one.wait() for one in killed] == [-signal.SIGKILL] * 2
    assert sum(end(one) for one in living) == group.taken_over() > 0
    assert maker.keys("organism_data", "organism_id") == group.keys_expected()


@pytest.mark.timeout(280)
def test_a_standby_takes_over_when_the_claims_of_the_one_that_was_killed_run_out(
    maker: Any, group: Group, eventually: Callable[..., None]
) -> None:
    batches = 20
    holder = group.start(flush_timeout_ms=NEVER_MS, insert_batch_size=NEVER_MS)
    is_ready(holder)
    group.publish(batches)
    eventually(lambda: group.claimed()[holder.pid] == batches)
    standby = group.start()
    is_ready(standby)
    assert group.claimed() == {holder.pid: batches}
    assert group.taken_over() == 0

    holder.kill()
    holder.wait()
    assert group.longest_lease() <= CLAIM_TIMEOUT
    eventually(lambda: group.claimed()[holder.pid] == 0, 5 * CLAIM_TIMEOUT)
    eventually(lambda: group.lag == 0)
    assert group.acknowledged() == {standby.pid: batches}
    assert end(standby) == group.taken_over() == batches
    assert maker.keys("organism_data", "organism_id") == group.keys_expected()


CONFIGURATION = """
node {{ name = "{name}", directory = "{root}" }}
resources {{
  index-database {{ class = Database, url = "{url}" }}
  batch-topic {{ class = Topic, database = index-database, claim_timeout = 5 }}
  tick-storage {{ class = Storage, path = "{root}/storage" }}
  lake {{ class = Lake, path = "{root}/lake", spark {{ master = "local[1]", "spark.driver.memory" = "512m" }} }}
}}
services {{
  organism-indexer {{
    resources {{
      topic = "topic-read:batch-topic?consumerGroup=organism-indexer"
      storage = "storage-read:tick-storage"
      lake = "lake-write:lake"
    }}
    options {{ run_id = "{run_id}", insert_batch_size = 12, flush_timeout_ms = 200 }}
  }}
}}
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_four_nodes_with_spark_share_the_work_and_two_of_them_are_killed(
    maker: Any, group: Group, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    for number in range(4):
        file = tmp_path / f"node-{number}.conf"
        places = {"root": tmp_path, "url": maker.database_url, "run_id": maker.run_id}
        file.write_text(CONFIGURATION.format(name=f"node-{number}", **places))
        group.launch(["-c", NODE, "run", str(file)])

    def burst(*workers: Process) -> bool:
        group.publish(BURST)
        eventually(lambda: all_had_work(*workers) or group.lag == 0, 240)
        return all_had_work(*workers)

    def all_had_work(*workers: Process) -> bool:
        done = group.acknowledged()
        assert all(one.poll() is None for one in workers)
        return all(done[one.pid] for one in workers)

    eventually(lambda: burst(*group.processes), 300)
    killed, living = group.processes[:2], group.processes[2:]
    for victim in killed:
        group.publish(BURST)
        eventually(lambda victim=victim: group.claimed()[victim.pid] > 0)
        os.killpg(victim.pid, signal.SIGKILL)
    eventually(lambda: group.lag == 0, 240)
    assert group.taken_over() > 0
    for one in living:
        one.send_signal(signal.SIGTERM)
    for one in living:
        _, complaint = one.communicate(timeout=120)
        assert one.returncode == 0, complaint
    assert maker.keys("organism_data", "organism_id") == group.keys_expected()
