"""A write that returned is on disk; one that did not return left nothing that a reader sees."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ticklake.storage.files import Storage
from ticklake.storage.local import LocalFolder

RUN = "20251014-143025-550e8400"


class Spy:
    """Lets every call through and remembers what happened to which path, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        fsync, link, mkdir = os.fsync, os.link, os.mkdir

        def seen_fsync(descriptor: int) -> None:
            self.calls.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
            fsync(descriptor)

        def seen_link(source: Any, target: Any, **folders: int) -> None:
            self.calls.append(("link", Path(target).name))
            link(source, target, **folders)

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


def with_faults(*faults: str) -> list[str]:
    """How to run a program some of whose system calls fail, as on a file system that does not know them."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace processes here")
    options = ["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=link,linkat,rename,renameat,renameat2"]
    return ["strace", *options, *(text for fault in faults for text in ("-e", f"inject={fault}"))]


NO_LINKS = "link,linkat:error=EPERM"


CREATOR = """
    import sys
    from pathlib import Path
    from ticklake.storage.local import LocalFolder

    folder = LocalFolder(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            folder.create(f"{line.strip()}.json", sys.argv[2].encode())
            print("won", flush=True)
        except FileExistsError:
            print("lost", flush=True)
"""


def test_without_hard_links_one_of_many_processes_wins_and_what_it_wrote_stays(tmp_path: Path) -> None:
    # The pause makes processes that look first and rename then collide every time.
    faults = with_faults(NO_LINKS, "rename,renameat,renameat2:delay_enter=20000")
    command = [*faults, sys.executable, "-c", textwrap.dedent(CREATOR), str(tmp_path)]
    names = ["a", "b", "c"]
    racing = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in names
    ]
    try:
        assert [said(one) for one in racing] == ["ready"] * 3
        for number in range(5):
            for one in racing:
                assert one.stdin is not None
                one.stdin.write(f"{number}\n")
                one.stdin.flush()
            answers = [said(one) for one in racing]
            assert sorted(answers) == ["lost", "lost", "won"], number
            assert (tmp_path / f"{number}.json").read_text() == names[answers.index("won")]
    finally:
        for one in racing:
            one.communicate()
    assert len(list(tmp_path.iterdir())) == 5


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_file_system_without_links_and_without_a_rename_that_replaces_nothing_is_refused(tmp_path: Path) -> None:
    program = f"""
        from pathlib import Path
        from ticklake.storage.local import LocalFolder

        LocalFolder(Path({str(tmp_path)!r})).create("a.json", b"a")
    """
    faults = with_faults(NO_LINKS, "renameat2:error=EINVAL")
    command = [*faults, sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "neither hard links nor renameat2" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_succeeded_and_is_reported_as_a_conflict_has_succeeded(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system repeats a call whose answer was lost."""
    link = os.link

    def twice(*names: Any, **folders: int) -> None:
        link(*names, **folders)
        link(*names, **folders)

    monkeypatch.setattr(os, "link", twice)
    folder = LocalFolder(Path(bench.storage.url))
    folder.create("a.json", b"mine")
    monkeypatch.undo()
    with pytest.raises(FileExistsError):
        folder.create("a.json", b"mine")


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
