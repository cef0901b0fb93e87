"""Bad bytes by the million: `fuzz.py --inputs N --seed S`. See `readers.py` for what is read, `mutation.py` for how.

Each input must be read, or refused with an error of ours that says where. They are read by processes with a bound on
memory that say which input they are at: one that dies, or is at the same input for too long, has found a case, which is
kept in a file, and the rest is read by another. An input follows from seed and number: `--only NUMBER` reads one.

`fuzz.py --guided KIND [options of libFuzzer]` lets atheris look for new ways through the code instead.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FunctionType

from nursery import ended, forked
from readers import Kind, Readers, kinds

HANG_SECONDS, MEMORY, ENOUGH_CASES = 10.0, 1 << 30, 50
SHOW_SECONDS = 10.0


class Inputs:
    """Every input of a seed, by its number."""

    def __init__(self, seed: int) -> None:
        self._seed, self._kinds, self._rng = seed, kinds(), random.Random()
        self._order = [name for name, kind in self._kinds.items() for _ in range(kind.share)]
        random.Random(seed).shuffle(self._order)

    def kind(self, number: int) -> str:
        return self._order[number % len(self._order)]

    def data(self, number: int) -> bytes:
        kind: Kind = self._kinds[self.kind(number)]
        self._rng.seed(self._seed << 64 | number)
        return kind.spoil(self._rng.choice(kind.specimens), self._rng)


class Reading:
    """A process that reads every so many-th input, and where it is."""

    def __init__(self, inputs: Inputs, numbers: range, folder: Path) -> None:
        self._numbers, self._at = numbers, memoryview(mmap.mmap(-1, 16)).cast("d")
        self._stamp(numbers.start)
        self.process = forked(lambda: self._read(inputs, folder / str(numbers.start)))

    @property
    def at(self) -> int:
        return int(self._at[0])

    @property
    def hangs(self) -> bool:
        return time.monotonic() - self._at[1] > HANG_SECONDS

    @property
    def rest(self) -> range:
        """What comes after the one that it is at."""
        return range(self.at + self._numbers.step, self._numbers.stop, self._numbers.step)

    def _stamp(self, number: int) -> None:
        self._at[0], self._at[1] = number, time.monotonic()

    def _read(self, inputs: Inputs, folder: Path) -> None:
        faulthandler.enable()  # says where a hang or a crash is
        logging.disable()  # that something was set aside, a million times
        folder.mkdir()
        readers = Readers(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, -1))
        for number in self._numbers:
            self._stamp(number)
            readers.read(inputs.kind(number), inputs.data(number))


def _folder() -> tempfile.TemporaryDirectory[str]:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="tl-fuzz-", dir=memory if memory.is_dir() else None)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def run(inputs: Inputs, count: int, processes: int, found: Path) -> Counter[str]:
    """The cases by what became of their readers; each is kept."""
    with _folder() as folder:
        return _run(inputs, [range(number, count, processes) for number in range(processes)], Path(folder), found)


def _run(inputs: Inputs, parts: list[range], folder: Path, found: Path) -> Counter[str]:
    bad: Counter[str] = Counter()
    at_work = [Reading(inputs, numbers, folder) for numbers in parts if numbers]
    shown = time.monotonic()
    while at_work:
        time.sleep(0.05)
        if time.monotonic() - shown > SHOW_SECONDS:
            shown = time.monotonic()
            left = sum(len(reading.rest) for reading in at_work)
            sys.stderr.write(f"{sum(map(len, parts)) - left:,} inputs read, {left:,} to go, {bad.total()} bad\n")
        for reading in list(at_work):
            if (end := _end(reading)) is None:
                continue
            at_work.remove(reading)
            if end:
                bad[end] += 1
                found.mkdir(parents=True, exist_ok=True)
                case = inputs.kind(reading.at).encode() + b"\n" + inputs.data(reading.at)
                (found / f"{reading.at}.case").write_bytes(case)
                if reading.rest and bad.total() < ENOUGH_CASES:
                    at_work.append(Reading(inputs, reading.rest, folder))
    return bad


def _end(reading: Reading) -> str | None:
    """How a process has ended: empty if well, None if it has not."""
    if reading.hangs:
        os.kill(reading.process, signal.SIGABRT)
        ended(reading.process)
        return "hung"
    process, status = os.waitpid(reading.process, os.WNOHANG)
    if not process:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else "failed" if code else ""


def guided(kind: str, options: list[str]) -> None:
    """libFuzzer grows a corpus by what the instrumented code does; our mutations are its mutations too."""
    import atheris

    found, rng = kinds()[kind], random.Random()

    def changed(data: bytes, most: int, seed: int) -> bytes:
        rng.seed(seed)
        return found.spoil(bytes(data) or found.specimens[0], rng)[:most]

    with _folder() as folder:
        readers = Readers(Path(folder))
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and str(function.__module__).startswith("ticklake."):
                atheris.instrument_func(function)
        atheris.Setup([sys.argv[0], *options], lambda data: readers.read(kind, bytes(data)), custom_mutator=changed)
        atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--found", type=Path, default=Path("fuzz-cases"))
    parser.add_argument("--only", type=int)
    parser.add_argument("--guided", choices=list(kinds()))
    options, others = parser.parse_known_args()
    if options.guided:
        return guided(options.guided, others)
    inputs = Inputs(options.seed)
    if options.only is not None:
        with _folder() as folder:
            return Readers(Path(folder)).read(inputs.kind(options.only), inputs.data(options.only))
    begun = time.monotonic()
    bad = run(inputs, options.inputs, options.processes, options.found)
    _report(options.seed, inputs, options.inputs, time.monotonic() - begun, bad)
    raise SystemExit(bool(bad))


def _report(seed: int, inputs: Inputs, count: int, seconds: float, bad: Counter[str]) -> None:
    read = Counter(map(inputs.kind, range(count)))
    lines = [f"seed        {seed}", f"inputs      {count:,} in {seconds:,.0f} s, {count / seconds:,.0f} a second"]
    lines += [f"  {kind:14}{number:,}" for kind, number in read.most_common()]
    lines += [f"bad         {bad.total()}", *(f"  {how:14}{number}" for how, number in bad.most_common())]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
