"""Scenes with a full account, each from a seed: `python tests/crash/scenes.py --help`.

`post`: publishers, groups and readers of a topic. `harvest`: batch files that are partly bad, and indexers that share
them. `books`: idempotent consumers and messages that nobody can handle. `events`: an event queue and its indexer.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import books
import feed
import harvest
import post
from pipeline import RUN_ID, Server, database
from report import Findings

ACTS_A_ROUND = 8
Scene = Callable[..., Findings]
SCENES: dict[str, Scene] = {"post": post.play, "harvest": harvest.play, "books": books.play, "events": feed.play}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acts", type=int, default=100, help=f"in all, {ACTS_A_ROUND} a round")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--scene", choices=list(SCENES), action="append")
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--only", metavar="ACT", action="append", default=[], help="no others")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    whole, begun = Findings(), time.monotonic()
    sys.stdout.write(f"seed        {options.seed}\n")
    interrupted = True
    with suppress(KeyboardInterrupt):  # whoever has seen enough gets the report of what was
        for number in range(-(-options.acts // ACTS_A_ROUND)):
            whole.add(play(options, number))
        interrupted = False
    sys.stdout.write(f"\nseed        {options.seed}\n{whole}\ntook        {time.monotonic() - begun:.0f} s\n")
    raise SystemExit(130 if interrupted else bool(whole.complaints))


def play(options: Any, number: int) -> Findings:
    """One round: the scenes take turns, and so do the databases."""
    scenes, kinds = options.scene or list(SCENES), options.database or ["sqlite", "postgres"]
    name, kind = scenes[number % len(scenes)], kinds[number // len(scenes) % len(kinds)]
    seed, acts = options.seed + number, min(ACTS_A_ROUND, options.acts - number * ACTS_A_ROUND)
    with tempfile.TemporaryDirectory(prefix="tl-scene-") as folder, database(kind, Path(folder, "db")) as (url, server):
        findings = scene(name, Path(folder, "scene"), url, seed, acts, server, options.only)
        state = "fine"
        if findings.complaints:
            kept = Path(tempfile.gettempdir(), f"tl-{name}-{kind}-{seed}.log")
            kept.write_text(f"{findings}\n\n{Path(folder, 'scene', 'log').read_text(errors='replace')}")
            state = f"wrong, see {kept}"
    sys.stdout.write(f"{name}, {kind}, seed {seed}: {findings.acts.total()} acts, {state}\n")
    sys.stdout.flush()
    return findings


def scene(name: str, root: Path, url: str, seed: int, acts: int, server: Server | None, only: Any = ()) -> Findings:
    return SCENES[name](root, url, RUN_ID, seed, acts, server=server, only=only)


if __name__ == "__main__":
    main()
