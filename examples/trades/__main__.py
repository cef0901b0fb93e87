"""10,000 trades, a fifth of them sent twice, some invalid, four validators of which some are killed: one result each.

python examples/trades [--trades 10000] [--kills 6] [--database sqlite:///DIRECTORY]
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))
from ticklake import Database, Outbox, Run
from trades.trades_pb2 import Trade, ValidationResult
from trades.validation import GROUP, INGESTION, SQL, VALIDATION

VALIDATORS = 4
RUN_ID = "20251014-143025-7ade5000"
SYMBOLS = ("AAPL", "MSFT", "NOVO", "SAP", "")


def generated(count: int, rng: random.Random) -> list[Trade]:
    """Trades of which about one in ten is invalid, followed by a fifth of them once more."""
    trades = [
        Trade(
            event_id=str(UUID(int=rng.getrandbits(128), version=4)),
            number=number,
            symbol=rng.choices(SYMBOLS, weights=(8, 8, 8, 8, 1))[0],
            quantity=rng.randrange(-5, 100),
            price_cents=rng.randrange(1, 50_000),
        )
        for number in range(count)
    ]
    return trades + rng.sample(trades, count // 5)


class Validators:
    """Processes that compete, and replacements for those that are killed."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._url = url
        self._rng = rng
        self._running = [self._start() for _ in range(VALIDATORS)]
        self.killed = 0

    def kill_one(self) -> None:
        victim = self._running.pop(self._rng.randrange(len(self._running)))
        victim.kill()
        victim.wait()
        self.killed += 1
        self._running.append(self._start())

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(__file__).with_name("validation.py")), self._url, RUN_ID]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def work_left(run: Run) -> int:
    lag = sum(status.lag for status in run.groups.list(INGESTION) if status.group == GROUP)
    return lag + Outbox(run, VALIDATION).count_unsent()


def results(run: Run) -> Counter[tuple[int, bool]]:
    """How many results each trade has, by number and verdict."""
    found: Counter[tuple[int, bool]] = Counter()
    messages = run.browse(VALIDATION, limit=1000)
    while messages:
        for message in messages:
            opened = message.opened()
            if opened is not None and isinstance(opened.payload, ValidationResult):
                found[opened.payload.number, opened.payload.valid] += 1
        messages = run.browse(VALIDATION, after=messages[-1].id, limit=1000)
    return found


def compete(run: Run, url: str, kills: int, rng: random.Random) -> Validators:
    """Four validators at work; one is killed whenever another part of the work is done."""
    total = left = work_left(run)
    validators = Validators(url, rng)
    try:
        while left or validators.killed < kills:
            if validators.killed < kills and left < total * (1 - validators.killed / kills):
                validators.kill_one()
            time.sleep(0.02)
            left = work_left(run)
    finally:
        validators.stop()
    return validators


def print_table(rows: dict[str, object]) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value:>8,}" if isinstance(value, int) else f"{name:<{width}}  {value}")


def main(url: str, count: int, kills: int) -> bool:
    rng = random.Random(2025)
    with Database(url) as database:
        run = database.run(RUN_ID)
        run.prepare("ticklake.consumer")
        run.prepare(SQL)
        run.reader(INGESTION, group=GROUP).close()
        trades = generated(count, rng)
        with run.writer(INGESTION) as writer:
            writer.send_many(trades)
        started = time.monotonic()
        validators = compete(run, url, kills, rng)
        found = results(run)
        with run.reading() as view:
            shares = [str(row[1]) for row in view.sql(SQL).validators()]
    once = {number for number, _ in found} == set(range(count)) and set(found.values()) == {1}
    print_table(
        {
            "trades": count,
            "sent": len(trades),
            "validators killed": validators.killed,
            "results": found.total(),
            "valid": sum(valid for _, valid in found),
            "invalid": sum(not valid for _, valid in found),
            "trades without a result": count - len({number for number, _ in found}),
            "trades with more than one": sum(times - 1 for times in found.values()),
            "validated by each process": " ".join(shares),
            "seconds": round(time.monotonic() - started, 1),
        }
    )
    print("every trade has exactly one result" if once else "NOT every trade has exactly one result")
    return once


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trades", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--database", help="default: SQLite in a temporary directory")
    options = parser.parse_args()
    logging.getLogger("ticklake").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(not main(options.database or f"sqlite:///{directory}", options.trades, options.kills))
