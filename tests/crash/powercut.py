"""Power cuts: a pipeline's disk is recorded, rebuilt as a cut would leave it, and the pipeline goes on from there.

`python tests/crash/powercut.py --cuts 200`. Right after a cut everything that was promised before it must be there; at
the end every tick is in storage, and every key once in its table.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disk import STYLES, Cut, Event, Mark, Naming, Sync, build, image, marks
from powercut_child import expected, go_on, missing, wrong
from recording import record, why_not

CHILD = Path(__file__).with_name("powercut_child.py")
AT_ONCE, PATIENCE = 2, 180


@dataclass
class Report:
    """What the cuts have shown. `promised` is how often something that was promised was looked for."""

    cuts: Counter[str] = field(default_factory=Counter)
    events: int = 0
    promised: int = 0
    lost: int = 0
    doubled: int = 0
    complaints: list[str] = field(default_factory=list)

    def take(self, cut: Cut, promised: int, found: Sequence[str]) -> None:
        self.cuts[cut.style] += 1
        self.promised += promised
        self.lost += sum(text.startswith("lost") for text in found)
        self.doubled += sum(text.startswith("doubled") for text in found)
        self.complaints += [f"{cut.style} after event {cut.at}, seed {cut.seed}: {text}" for text in found]

    def text(self) -> str:
        styles = ", ".join(f"{style} {count}" for style, count in sorted(self.cuts.items()))
        lines = [
            f"power cuts  {self.cuts.total():,}: {styles}, in {self.events:,} writes, syncs and names",
            f"promised    {self.promised:,} looked for",
            f"lost        {self.lost:,}",
            f"doubled     {self.doubled:,}",
        ]
        return "\n".join([*lines, *(f"wrong       {complaint}" for complaint in self.complaints)])


def recorded(folder: Path) -> list[Event]:
    """What a pipeline did to its disk, which is `left` afterwards: nothing may find it where it was, as after a cut."""
    command = [sys.executable, str(CHILD), str(folder / "root"), str(folder / "marks")]
    events = record(command, folder / "root", folder / "marks", folder / "log")
    (folder / "root").rename(folder / "left")
    return events


def chosen(events: Sequence[Event], count: int, seed: int) -> list[Cut]:
    """Half of them the moment after a promise, where most can be wrong; the others anywhere."""
    rng = random.Random(seed)
    promises = [number + 1 for number, event in enumerate(events) if isinstance(event, Mark)]
    return [
        Cut(rng.choice(promises), rng.choice(("strict", *STYLES)), rng.randrange(1 << 30))
        if number % 2
        else Cut(rng.randint(0, len(events)), rng.choice(STYLES), rng.randrange(1 << 30))
        for number in range(count)
    ]


def _last_promises(events: Sequence[Event], count: int) -> list[Cut]:
    """Where most was promised."""
    promises = [number + 1 for number, event in enumerate(events) if isinstance(event, Mark)]
    return [Cut(at, "strict") for at in promises[-count:]]


def without_syncs(events: Sequence[Event], pattern: str) -> list[Event]:
    """The same, by a program that forgets to sync the files and folders of such names."""
    named = {
        inode
        for event in events
        if isinstance(event, Naming)
        for _, name, inode in event.changes
        if re.fullmatch(pattern, name)
    }
    # Every event keeps its place: syncs say which came before them.
    return [Mark("") if isinstance(event, Sync) and event.inode in named else event for event in events]


def play(events: Sequence[Event], cuts: Sequence[Cut], folder: Path) -> Report:
    """Each cut in a process of its own, which has done nothing before."""
    expected()
    report, running = Report(events=len(events)), dict[int, tuple[Cut, Path]]()
    for number, cut in enumerate(cuts):
        if len(running) == AT_ONCE:
            _gather(running, report)
        place = folder / f"cut-{number}"
        place.mkdir()
        (place / "result").write_text(json.dumps((0, [f"there was no end after {PATIENCE} s"])))
        running[_forked(events, cut, place)] = cut, place
    while running:
        _gather(running, report)
    return report


def _forked(events: Sequence[Event], cut: Cut, place: Path) -> int:
    if child := os.fork():
        return child
    signal.alarm(PATIENCE)
    try:
        result = _survive(events, cut, place / "root")
    except BaseException as error:
        result = 0, [f"{type(error).__name__}: {error}", traceback.format_exc()]
    finally:
        (place / "result").write_text(json.dumps(result))
        os._exit(0)


def _survive(events: Sequence[Event], cut: Cut, root: Path) -> tuple[int, list[str]]:
    build(root, *image(events, cut))
    promised = [text for text in marks(events[: cut.at]) if text]
    lost = [f"lost: {text} was promised" for text in missing(root, promised)]
    go_on(root)
    return len(promised), lost + wrong(root)


def _gather(running: dict[int, tuple[Cut, Path]], report: Report) -> None:
    cut, place = running.pop(os.wait()[0])
    promised, found = json.loads((place / "result").read_text())
    report.take(cut, promised, found)
    shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--recording", type=Path, help="where one is, or is to be kept")
    parser.add_argument("--unsynced", default="", help="names whose syncs are to be forgotten, to see that it shows")
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(f"power cuts: none, {reason}")
    logging.getLogger("ticklake").setLevel(logging.CRITICAL)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tl-power-") as folder:
        events = _kept(options.recording, Path(folder))
        cuts = chosen(events, options.cuts, options.seed)
        if options.unsynced:
            events, cuts = without_syncs(events, options.unsynced), _last_promises(events, options.cuts)
        report = play(events, cuts, Path(folder))
    took = time.monotonic() - begun
    sys.stdout.write(f"seed        {options.seed}\n{report.text()}\ntook        {took:.0f} s\n")
    raise SystemExit(bool(report.complaints))


def _kept(recording: Path | None, folder: Path) -> list[Event]:
    if recording is not None and recording.exists():
        events: list[Event] = pickle.loads(recording.read_bytes())
        return events
    events = recorded(folder)
    if recording is not None:
        recording.write_bytes(pickle.dumps(events))
    return events


if __name__ == "__main__":
    main()
