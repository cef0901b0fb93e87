"""Bad bytes: mutated batch files, envelopes, metadata, configurations, by the million: `fuzz.py --inputs N --seed S`.

Each input must be read, or refused with an error of ours that says where. Inputs are read in processes of their own
with a bound on memory; one that takes longer than a bound counts as a hang. What was found is kept, as a case.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from ticklake import BatchInfo
from ticklake.config import load
from ticklake.config.templates import STARTER
from ticklake.errors import TickLakeError
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage import zstd
from ticklake.storage.codec import encode_ticks, read_ticks
from ticklake.storage.delimited import frame
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics.envelope import unwrap, wrap
from ticklake.world import World

RUN_ID = "20251014-143025-550e8400"
PORTION, HANG_SECONDS, MEMORY = 2_000, 10, 1 << 30
SHARES = {"batch": 40, "compressed": 20, "envelope": 30, "metadata": 9, "configuration": 1}
"""Of a hundred inputs. A configuration takes a hundred times as long to read as anything else."""
_TOKENS = (
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    b"\x7b" * 300,
    b"\xff\xff\xff\xff\x0f",
    b"\x00" * 16,
    b"\x0a\x7f",
    b"{" * 200,
)


class Target:
    """Readers over a folder of their own, and an honest specimen of what each reads."""

    def __init__(self, folder: Path) -> None:
        self._storage = Storage(folder / "storage")
        self._run = folder / "storage" / RUN_ID
        self._file = folder / "node.conf"
        world = Ecosystem(SimulationSettings(shape=(6, 6), organisms=2))
        self._world = World.of(world.metadata(RUN_ID, 0))
        ticks = []
        for _ in range(3):
            ticks.append(world.columns(0))
            world.step()
        metadata = self._storage.write_metadata(world.metadata(RUN_ID, 0))
        plain = frame([tick.data for tick in encode_ticks(RUN_ID, ticks)])
        with self._storage.open(metadata) as stream:
            described = stream.read()
        (folder / "storage" / metadata).unlink()
        self.specimens = {
            "batch": plain,
            "compressed": zstd.compress(plain),
            "envelope": wrap(BatchInfo(simulation_run_id=RUN_ID, storage_key="a/b", tick_end=9), 1).data,
            "metadata": described,
            "configuration": STARTER.read_bytes(),
        }

    def read(self, kind: str, data: bytes) -> None:
        try:
            getattr(self, f"_{kind}")(data)
        except TickLakeError as error:
            if not str(error):
                raise AssertionError("an error that says nothing") from error

    def _batch(self, data: bytes, name: str = "batch_0000000000_0000000002.pb") -> None:
        (self._run / name).write_bytes(data)
        file = self._storage.batch(f"{RUN_ID}/{name}")
        fields = ("tick_number", "cells", "organisms")
        for _ in read_ticks(self._storage, file, ticks=TickRange(0, 2), fields=fields, world=self._world):
            pass

    def _compressed(self, data: bytes) -> None:
        self._batch(data, "batch_0000000000_0000000002.pb.zst")

    @staticmethod
    def _envelope(data: bytes) -> None:
        unwrap(data)

    def _metadata(self, data: bytes) -> None:
        (self._run / "metadata.pb").write_bytes(data)
        World.of(self._storage.read_metadata(RUN_ID))

    def _configuration(self, data: bytes) -> None:
        self._file.write_bytes(data)
        load(self._file)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: flipped, set, cut, doubled, moved; lengths that lie, groups that nest."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0 and place < len(out):
            out[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(out):
            out[place] = rng.randrange(256)
        elif kind == 2:
            del out[place : place + rng.randint(1, 20)]
        elif kind == 3:
            out[place:place] = rng.choice(_TOKENS)
        elif kind == 4:
            out[place:place] = rng.randbytes(rng.randint(1, 8))
        elif kind == 5:
            end = rng.randrange(len(out) + 1)
            out[place:place] = out[end : end + rng.randint(1, 60)]
        else:
            del out[rng.randrange(len(out) // 2 + 1) + len(out) // 2 :]
    return bytes(out)


def portion(seed: int, folder: Path, current: Path) -> None:
    """Reads so many inputs; `current` has the one at hand, for whoever finds this process dead."""
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, -1))
    rng, target = random.Random(seed), Target(folder)
    kinds = rng.choices(list(SHARES), list(SHARES.values()), k=PORTION)
    descriptor = os.open(current, os.O_RDWR | os.O_CREAT)
    for kind in kinds:
        data = mutated(target.specimens[kind], rng)
        case = kind.encode() + b"\n" + data
        os.pwrite(descriptor, case, 0)
        os.ftruncate(descriptor, len(case))
        signal.alarm(HANG_SECONDS)
        target.read(kind, data)
    signal.alarm(0)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def run(inputs: int, seed: int, found: Path) -> int:
    """How many portions ended badly; the input of each is kept."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="tl-fuzz-") as root:
        for number in range(-(-inputs // PORTION)):
            folder = Path(root) / str(number)
            folder.mkdir()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    portion(seed + number, folder, folder / "current")
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            if os.waitpid(child, 0)[1]:
                bad += 1
                found.mkdir(parents=True, exist_ok=True)
                case = (folder / "current").read_bytes()
                (found / f"{seed + number}.case").write_bytes(case)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--found", type=Path, default=Path("fuzz-cases"))
    options = parser.parse_args()
    begun = time.monotonic()
    bad = run(options.inputs, options.seed, options.found)
    seconds = time.monotonic() - begun
    rate = options.inputs / seconds
    sys.stdout.write(f"seed {options.seed}: {options.inputs:,} inputs in {seconds:.0f} s, {rate:,.0f}/s, {bad} bad\n")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
