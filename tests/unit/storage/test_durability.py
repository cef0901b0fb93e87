"""A write that returned is on disk; one that did not return left nothing that a reader sees."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ticklake.errors import StoredFileConflict
from ticklake.storage.files import Storage

RUN = "20251014-143025-550e8400"


class Spy:
    """Lets every call through and remembers what happened to which path, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        fsync, link, mkdir = os.fsync, os.link, os.mkdir

        def seen_fsync(descriptor: int) -> None:
            self.calls.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
            fsync(descriptor)

        def seen_link(source: Any, target: Any) -> None:
            self.calls.append(("link", Path(target).name))
            link(source, target)

        def seen_mkdir(path: Any, *arguments: Any) -> None:
            mkdir(path, *arguments)
            self.calls.append(("mkdir", Path(path).name))

        monkeypatch.setattr(os, "fsync", seen_fsync)
        monkeypatch.setattr(os, "link", seen_link)
        monkeypatch.setattr(os, "mkdir", seen_mkdir)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to tell which file was synced")
def test_files_folders_and_names_are_synced_in_this_order(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "batch_0000000001_0000000001.pb.zst"
    spy = Spy(monkeypatch)
    bench.storage.write_batch(RUN, bench.encoded(1))
    steps = [(step, "temporary" if path.endswith(".tmp") else path) for step, path in spy.calls]
    above = Path(bench.storage.url).parent.name
    assert steps == [
        ("mkdir", "storage"), ("fsync", above),
        ("mkdir", RUN), ("fsync", "storage"),
        ("fsync", "temporary"), ("link", name), ("fsync", RUN),
    ]  # fmt: skip
    spy.calls.clear()
    bench.storage.write_batch(RUN, bench.encoded(2))
    assert [step for step, _ in spy.calls] == ["fsync", "link", "fsync"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to tell which file was synced")
def test_a_file_that_another_writer_left_is_synced_before_it_counts(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Storage(bench.storage.url).write_batch(RUN, bench.encoded(1))
    spy = Spy(monkeypatch)
    bench.storage.write_batch(RUN, bench.encoded(1))
    assert [path for step, path in spy.calls if step == "fsync"][-2:] == [Path(file.key).name, RUN]


def test_where_links_are_not_allowed_a_rename_does_it(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    file = bench.storage.write_batch(RUN, bench.encoded(1, 2, 4))
    assert bench.storage.write_batch(RUN, bench.encoded(1, 2, 4)) == file
    with pytest.raises(StoredFileConflict):
        bench.storage.write_batch(RUN, bench.encoded(1, 3, 4))
    assert bench.numbers(file) == [1, 2, 4]
    assert len(list(Path(bench.storage.url, RUN).iterdir())) == 1


WRITER = """
    import sys
    from ticklake.contracts import TickData
    from ticklake.storage.codec import EncodedTick
    from ticklake.storage.files import Storage

    storage = Storage(sys.argv[1])
    for start in range(0, 30, 10):
        ticks = [TickData(simulation_run_id=sys.argv[2], tick_number=start + number) for number in range(10)]
        storage.write_batch(sys.argv[2], [EncodedTick(tick.tick_number, tick.SerializeToString()) for tick in ticks])
"""


def run_writer(root: str, fault: str) -> int:
    environment = os.environ | {"TICKLAKE_FAULT": fault}
    command = [sys.executable, "-c", textwrap.dedent(WRITER), root, RUN]
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "whole"), [("storage.unsynced", [0]), ("storage.publish", [0]), ("storage.published", [0, 10])]
)
def test_a_writer_killed_at_any_step_leaves_only_whole_files_and_can_start_again(
    bench: Any, point: str, whole: list[int]
) -> None:
    assert run_writer(bench.storage.url, f"{point}:kill:2") == -signal.SIGKILL
    files = bench.storage.batches(RUN).files
    assert [file.ticks.start for file in files] == whole
    assert run_writer(bench.storage.url, "") == 0
    files = bench.storage.batches(RUN).files
    assert [number for file in files for number in bench.numbers(file)] == list(range(30))


def test_a_full_disk_leaves_nothing_behind(bench: Any) -> None:
    assert run_writer(bench.storage.url, "storage.unsynced:full:2") == 1
    assert [path.name for path in Path(bench.storage.url, RUN).iterdir()] == ["batch_0000000000_0000000009.pb.zst"]
