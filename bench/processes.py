"""What a process and all that it has started hold of the memory, and have had of the processor."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path


class Peak:
    """Looks at a process tree every so often, and remembers the most it has held, in MiB."""

    def __init__(self, pid: int, seconds: float = 0.2) -> None:
        self._pid, self._seconds = pid, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.mebibytes = 0.0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            self.mebibytes = max(self.mebibytes, sum(map(proportional, tree(self._pid))) / 1024)


def own_peak() -> int:
    """Returns the most memory that this process has held, in bytes.

    `getrusage` also counts what the process that started it held.
    """
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) << 10


def tree(root: int) -> list[int]:
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        children[int(rest.split()[1])].append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found.extend(children[pid])
    return found


def proportional(pid: int) -> int:
    """KiB that the process holds; a page that several share is divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def processor_seconds(root: int) -> float:
    """Of all that are alive, and of those that they have waited for."""
    return sum(map(_processor_ticks, tree(root))) / os.sysconf("SC_CLK_TCK")


def _processor_ticks(pid: int) -> int:
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return 0
    return sum(map(int, rest.split()[11:15]))
