"""Real processes that cost little: each is forked from one that has imported everything, and has done nothing else.

`nursery.py` reads lines of JSON, each a list of stories, and answers with a line of what became of each. A story is a
walk (see `walks.py`) that a fault ends, the same walk taken again to its end, and a look at what is there then.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

AT_ONCE = 4


class Story(NamedTuple):
    """`place` is what the walk is told; `folder` is its own, for its journal and what the processes have to say."""

    walk: str
    place: Sequence[str]
    folder: str
    fault: str = ""


class End(NamedTuple):
    """How the first process ended (below 0: the signal that killed it), and the second; what is there then."""

    first: int
    second: int
    state: str


class Nursery:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, stories: Sequence[Story]) -> list[End]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(stories) + "\n")
        self._process.stdin.flush()
        return [End(*end) for end in json.loads(self._process.stdout.readline())]


@contextmanager
def opened() -> Iterator[Nursery]:
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield Nursery(process)
        assert process.stdin
        process.stdin.close()


def forked(act: Callable[[], object]) -> int:
    """The id of a process that does this and ends."""
    if child := os.fork():
        return child
    status = 1
    try:
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _walk(story: Story, fault: str) -> None:
    from ticklake import faults

    faults.arm(fault)
    getattr(__import__("walks"), story.walk)(*story.place, f"{story.folder}/journal")


def _tell(story: Story) -> None:
    os.environ["TICKLAKE_FAULT_MARK"] = f"{story.folder}/mark"
    first = ended(forked(lambda: _walk(story, story.fault)))
    second = ended(forked(lambda: _walk(story, "")))
    state = repr(getattr(__import__("walks"), f"{story.walk}_state")(*story.place)) if second == 0 else ""
    Path(story.folder, "end").write_text(json.dumps([first, second, state]))


def _tell_all(stories: Sequence[Story]) -> list[Any]:
    running: set[int] = set()
    for story in stories:
        if len(running) == AT_ONCE:
            running.remove(os.wait()[0])
        Path(story.folder).mkdir(parents=True)
        running.add(forked(lambda story=story: _tell(story)))
    for process in running:
        os.waitpid(process, 0)
    ends = (Path(story.folder, "end") for story in stories)
    return [json.loads(end.read_text()) if end.exists() else [0, 1, ""] for end in ends]


def main() -> None:
    logging.getLogger("ticklake").setLevel(logging.CRITICAL)
    __import__("walks")
    for line in sys.stdin:
        answer = _tell_all(
            [Story(walk, tuple(place), folder, fault) for walk, place, folder, fault in json.loads(line)]
        )
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
