"""What a producer leaves behind when it is killed: docs/simulation.md says what is promised."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.protobuf import proto

from ticklake import Database
from ticklake.contracts import BatchInfo, TickData
from ticklake.defaults import BATCH_TOPIC, METADATA_TOPIC, RUN_TOPIC
from ticklake.storage.files import Storage

PRODUCING = Path(__file__).with_name("producing.py")
SERVICES = 2
FOR_EVER = 10**9


def start(directory: Path, run_id: str, ticks: int, fault: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, str(PRODUCING), str(directory), run_id, str(ticks)]
    return subprocess.Popen(command, env={**os.environ, "TICKLAKE_FAULT": fault})


def payloads(directory: Path, run_id: str, topic: str) -> list[object]:
    with (
        Database(f"sqlite:///{directory / 'db'}") as database,
        database.run(run_id).reader(topic, group="check") as reader,
    ):
        return [message.payload for message in reader.poll_many(100_000, timeout=0)]


def ticks_in(storage: Storage, key: str) -> list[int]:
    with storage.open(key) as file:
        stream = io.BytesIO(file.read())
    numbers = []
    while tick := proto.parse_length_prefixed(TickData, stream):
        numbers.append(tick.tick_number)
    return numbers


def files_by_key(storage: Storage, run_id: str) -> dict[str, list[int]]:
    """The ticks in every file that storage lists, each checked against the file's name."""
    found = {}
    page = storage.batches(run_id, limit=100_000)
    for file in page.files:
        numbers = ticks_in(storage, file.key)
        assert numbers == list(range(file.ticks.start, file.ticks.end + 1))
        found[file.key] = numbers
    return found


def check_what_is_left(directory: Path, run_id: str) -> int:
    """Every promise about a killed run. Returns how many files nobody heard of."""
    files = files_by_key(Storage(str(directory / "storage")), run_id)
    announced: list[BatchInfo] = payloads(directory, run_id, BATCH_TOPIC)  # type: ignore[assignment]
    for info in announced:
        assert files[info.storage_key] == list(range(info.tick_start, info.tick_end + 1))
    assert len({info.storage_key for info in announced}) == len(announced)
    assert not any(key.rpartition("/")[2].startswith(".") or "tmp" in key for key in files)
    numbers = [number for ticks in files.values() for number in ticks]
    assert len(set(numbers)) == len(numbers)
    unheard_of = len(files) - len(announced)
    assert 0 <= unheard_of <= SERVICES
    return unheard_of


def wait_for_files(directory: Path, run_id: str, count: int, process: subprocess.Popen[bytes]) -> None:
    storage, deadline = Storage(str(directory / "storage")), time.monotonic() + 60
    while len(storage.batches(run_id, limit=count).files) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_producer_killed_at_any_moment_leaves_only_whole_files_and_true_messages(tmp_path: Path, seed: int) -> None:
    run_id, rng = f"20251014-143025-0000000{seed}", random.Random(seed)
    process = start(tmp_path, run_id, FOR_EVER)
    try:
        wait_for_files(tmp_path, run_id, rng.randint(1, 40), process)
    finally:
        process.kill()
    assert process.wait(30) == -signal.SIGKILL
    check_what_is_left(tmp_path, run_id)
    assert payloads(tmp_path, run_id, RUN_TOPIC) == []
    assert Storage(str(tmp_path / "storage")).read_completion(run_id) is None


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("fault", "unheard_of"),
    [
        ("persistence.write:kill:5", range(SERVICES)),
        ("persistence.publish:kill:5", range(1, SERVICES + 1)),
        ("persistence.published:kill:5", range(SERVICES)),
    ],
)
def test_a_producer_killed_at_each_step_of_a_batch_keeps_its_promises(
    tmp_path: Path, fault: str, unheard_of: range
) -> None:
    run_id = "20251014-143025-550e8400"
    assert start(tmp_path, run_id, FOR_EVER, fault).wait(60) == -signal.SIGKILL
    assert check_what_is_left(tmp_path, run_id) in unheard_of


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["metadata.publish:kill", "completion.publish:kill"])
def test_a_producer_killed_before_its_first_or_last_message_leaves_a_run_that_is_not_closed(
    tmp_path: Path, fault: str
) -> None:
    run_id = "20251014-143025-550e8400"
    assert start(tmp_path, run_id, 50, fault).wait(60) == -signal.SIGKILL
    check_what_is_left(tmp_path, run_id)
    assert payloads(tmp_path, run_id, RUN_TOPIC) == []


@pytest.mark.chaos
def test_after_a_kill_the_next_run_in_the_same_place_is_complete(tmp_path: Path) -> None:
    killed, complete = "20251014-143025-00000001", "20251014-143026-00000002"
    assert start(tmp_path, killed, FOR_EVER, "persistence.publish:kill:3").wait(60) == -signal.SIGKILL
    assert start(tmp_path, complete, 200).wait(60) == 0
    assert check_what_is_left(tmp_path, complete) == 0
    files = files_by_key(Storage(str(tmp_path / "storage")), complete)
    assert sorted(number for ticks in files.values() for number in ticks) == list(range(200))
    assert [end.last_tick for end in payloads(tmp_path, complete, RUN_TOPIC)] == [199]
    assert len(payloads(tmp_path, complete, METADATA_TOPIC)) == 1


@pytest.mark.chaos
def test_a_disk_that_is_full_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    run_id = "20251014-143025-550e8400"
    assert start(tmp_path, run_id, 200, "persistence.write:full:3").wait(60) == 0
    assert check_what_is_left(tmp_path, run_id) == 0
    assert [end.last_tick for end in payloads(tmp_path, run_id, RUN_TOPIC)] == [199]
