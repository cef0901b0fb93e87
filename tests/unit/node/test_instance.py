"""A second instance, in real processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticklake.errors import InstanceRunning
from ticklake.node.instance import Instance, read_holder

HOLD = """
import sys
from ticklake.node.instance import Instance
Instance(*sys.argv[1:]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path: Path) -> Iterator:
    processes: list[subprocess.Popen[str]] = []

    def start(instances: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(tmp_path / "data"), "lake", instances]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout and process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_refusal_names_the_process_and_the_host(hold, tmp_path: Path) -> None:
    holder = hold("refuse")
    with pytest.raises(InstanceRunning, match=f"process {holder.pid} on {socket.gethostname()}"):
        Instance(tmp_path / "data", "lake").acquire()
    with pytest.raises(InstanceRunning):
        Instance(tmp_path / "data", "lake", "compete").acquire()


def test_a_killed_process_holds_nothing(hold, tmp_path: Path) -> None:
    holder = hold("refuse")
    holder.kill()
    holder.wait()
    instance = Instance(tmp_path / "data", "lake")
    instance.acquire()
    assert read_holder(tmp_path / "data" / "lake.lock")["pid"] == os.getpid()
    instance.release()
    assert read_holder(tmp_path / "data" / "lake.lock") == {}


def test_a_paused_process_keeps_its_lock(hold, tmp_path: Path) -> None:
    holder = hold("refuse")
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(InstanceRunning):
        Instance(tmp_path / "data", "lake").acquire()


def test_those_that_compete_bear_each_other_but_nobody_who_wants_to_be_alone(hold, tmp_path: Path) -> None:
    hold("compete")
    second = Instance(tmp_path / "data", "lake", "compete")
    second.acquire()
    with pytest.raises(InstanceRunning):
        Instance(tmp_path / "data", "lake", "refuse").acquire()
    second.release()


def test_another_name_or_directory_is_another_node(hold, tmp_path: Path) -> None:
    hold("refuse")
    for other in (Instance(tmp_path / "data", "other"), Instance(tmp_path / "elsewhere", "lake")):
        other.acquire()
        other.release()


def node_of(instance: Instance) -> str:
    return instance.consumer().partition("/")[0]


def test_the_next_life_of_a_node_knows_the_earlier_ones(tmp_path: Path) -> None:
    lives = []
    for _ in range(2):
        instance = Instance(tmp_path / "data", "lake")
        assert instance.consumer() == ""
        instance.acquire()
        lives.append(instance.consumer())
        node = node_of(instance)
        instance.release()
    assert lives[0] != lives[1]
    assert all(life.startswith(f"{node}/") for life in lives)


def test_a_copied_directory_is_another_node(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data", "lake")
    first.acquire()
    assert first.consumer()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    second = Instance(tmp_path / "copy", "lake")
    second.acquire()
    assert node_of(first) != node_of(second)
    for instance in (first, second):
        instance.release()


def test_a_removed_lock_file_makes_another_node_because_the_first_may_be_alive(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data", "lake")
    first.acquire()
    (tmp_path / "data" / "lake.lock").unlink()
    second = Instance(tmp_path / "data", "lake")
    second.acquire()
    assert node_of(first) != node_of(second)
    for instance in (first, second):
        instance.release()


def life_of(instance: Instance) -> str:
    return instance.consumer().partition("/")[2]


def test_those_that_compete_know_which_of_them_were_killed(hold, tmp_path: Path) -> None:
    process = hold("compete")
    (killed,) = (path.name.split(".")[1] for path in (tmp_path / "data").glob("lake.*.life"))
    alive, stopped, curious = (Instance(tmp_path / "data", "lake", "compete") for _ in range(3))
    for instance in (alive, stopped, curious):
        instance.acquire()
    assert node_of(alive) == node_of(curious)
    over = life_of(stopped)
    stopped.release()
    assert [curious.is_over(one) for one in (killed, life_of(alive), over)] == [False, False, False]
    process.kill()
    process.wait()
    # A life that has stopped holds nothing: nobody has to know.
    assert [curious.is_over(one) for one in (killed, life_of(alive), over)] == [True, False, False]
    for instance in (alive, curious):
        instance.release()
    assert [path.name for path in (tmp_path / "data").glob("*.life")] == [f"lake.{killed}.life"]


def test_files_of_lives_that_were_killed_long_ago_are_removed(tmp_path: Path) -> None:
    alive = Instance(tmp_path / "data", "lake", "compete")
    alive.acquire()
    old = tmp_path / "data" / "lake.00000001.life"
    old.touch()
    for file in (tmp_path / "data").glob("*.life"):
        os.utime(file, (0, 0))
    young = tmp_path / "data" / "lake.00000002.life"
    young.touch()
    other = Instance(tmp_path / "data", "lake", "compete")
    other.acquire()
    assert not old.exists() and young.exists()
    assert (tmp_path / "data" / f"lake.{life_of(alive)}.life").exists()
    for instance in (alive, other):
        instance.release()


@pytest.mark.parametrize("text", ["", "x", "[1]", "[" * 100_000])
def test_a_lock_with_nonsense_in_it_names_no_holder(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    assert read_holder(tmp_path / "lock") == {}
