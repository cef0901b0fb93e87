"""A queue whose process is killed under load, again and again."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ticklake.events import Event, IndexerQueue

CHILD = Path(__file__).with_name("events_child.py")


def start(folder: Path, fault: str = "") -> subprocess.Popen[bytes]:
    files = [str(folder / name) for name in ("queue.db", "acked", "delivered")]
    return subprocess.Popen([sys.executable, str(CHILD), *files], env=os.environ | {"TICKLAKE_FAULT": fault})


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def kill_again_and_again(folder: Path, kills: int, eventually: Callable[..., None]) -> None:
    """Each time some random moment after the process has acknowledged something."""
    rng = random.Random(3)
    for _ in range(kills):
        before = size(folder / "acked")
        child = start(folder)
        try:
            eventually(lambda before=before: size(folder / "acked") > before)
            end = time.monotonic() + rng.uniform(0, 0.2)
            eventually(lambda end=end: time.monotonic() > end)
        finally:
            child.kill()
            child.wait()


def pull_the_rest(folder: Path) -> None:
    append = runpy.run_path(str(CHILD))["append"]
    with IndexerQueue(folder / "queue.db", max_attempts=1_000_000) as queue:
        while batch := queue.get_next_batch(0.6):
            ids = " ".join(event.event_id for event in batch.events)
            append(str(folder / "delivered"), f"{batch.sequence} {batch.batch_id} {ids}\n")
            assert queue.mark_batch_done(batch.batch_id)


def assert_nothing_lost_nothing_twice_order_kept(folder: Path) -> int:
    lines = [line.split() for line in (folder / "delivered").read_text().splitlines()]
    by_id = {batch_id: (int(sequence), ids) for sequence, batch_id, *ids in lines}
    for sequence, batch_id, *ids in lines:
        assert by_id[batch_id] == (int(sequence), ids), "a batch that is delivered again is the same"
    assert len({sequence for sequence, _ in by_id.values()}) == len(by_id)
    events = [event_id for _, ids in sorted(by_id.values()) for event_id in ids]
    assert len(set(events)) == len(events), "an event is in two batches"
    for thread, following in runpy.run_path(str(CHILD))["acknowledged"](folder / "acked").items():
        numbers = [int(event_id.split("-")[1]) for event_id in events if event_id.startswith(f"{thread}-")]
        assert numbers == list(range(len(numbers))), "an event is missing, or out of order"
        assert len(numbers) >= following, "an acknowledged event is missing"
    return len(events)


@pytest.mark.chaos
def test_ten_kills_under_load_lose_nothing_and_repeat_nothing(tmp_path: Path, eventually: Callable[..., None]) -> None:
    kill_again_and_again(tmp_path, 10, eventually)
    pull_the_rest(tmp_path)
    assert assert_nothing_lost_nothing_twice_order_kept(tmp_path) >= 10


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_hundred_kills_under_load_lose_nothing_and_repeat_nothing(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    kill_again_and_again(tmp_path, 100, eventually)
    pull_the_rest(tmp_path)
    assert assert_nothing_lost_nothing_twice_order_kept(tmp_path) >= 100


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["events.batch", "events.commit", "events.committed"])
def test_a_kill_within_a_flush_leaves_all_of_it_or_nothing(
    tmp_path: Path, eventually: Callable[..., None], point: str
) -> None:
    assert start(tmp_path, f"{point}:kill:3").wait(60) == -signal.SIGKILL
    kill_again_and_again(tmp_path, 1, eventually)
    pull_the_rest(tmp_path)
    assert assert_nothing_lost_nothing_twice_order_kept(tmp_path) > 0


def test_the_check_of_this_file_notices_a_loss_and_a_duplicate(tmp_path: Path) -> None:
    (tmp_path / "acked").write_text("0-1\n")
    good = "1 a 0-0\n2 b 0-1\n"
    for text, complaint in [
        ("1 a 0-0\n", "acknowledged"),
        ("2 b 0-1\n", "missing"),
        ("1 a 0-1\n2 b 0-0\n", "out of order"),
        (good + "3 c 0-1\n", "two batches"),
        (good + "2 b 0-2\n", "is the same"),
    ]:
        (tmp_path / "delivered").write_text(text)
        with pytest.raises(AssertionError, match=complaint):
            assert_nothing_lost_nothing_twice_order_kept(tmp_path)
    (tmp_path / "delivered").write_text(good + "2 b 0-1\n")
    assert assert_nothing_lost_nothing_twice_order_kept(tmp_path) == 2


def test_what_one_process_has_stored_another_cannot_open_meanwhile(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    child = start(tmp_path)
    try:
        eventually(lambda: size(tmp_path / "acked") > 0)
        with pytest.raises(Exception, match="is already open"):
            IndexerQueue(tmp_path / "queue.db").start()
    finally:
        child.kill()
        child.wait()
    with IndexerQueue(tmp_path / "queue.db") as queue:
        queue.offer([Event("after", "t")]).wait()
