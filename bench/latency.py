"""From send to receive by a reader that idles in another process, and what it costs while nothing happens."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import quantiles
from typing import NamedTuple

from ticklake import BatchInfo, Database

TOPIC = "latency"


class Latency(NamedTuple):
    """Milliseconds until a reader has the message: since `send` returned (it is durable), and since it was called."""

    p50_ms: float
    p99_ms: float
    p50_with_send_ms: float
    p99_with_send_ms: float
    idle_share: float


def measure(url: str, run_id: str, count: int = 200, gap: float = 0.02) -> Latency:
    with Database(url) as database, database.run(run_id).writer(TOPIC) as writer:
        command = [sys.executable, "-m", "bench.latency", url, run_id, str(count)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        called, returned = [], []
        for number in range(count):
            time.sleep(gap)
            called.append(time.monotonic_ns())
            writer.send(BatchInfo(tick_start=number))
            returned.append(time.monotonic_ns())
        told = json.loads(child.stdout.readline())
        child.wait()
    return Latency(*_cuts(told["received"], returned), *_cuts(told["received"], called), told["idle"])


def _cuts(received: list[int], since: list[int]) -> tuple[float, float]:
    """A reader that is woken may be faster than the sender's own return: then it took no time."""
    cuts = quantiles((max(0, end - start) / 1e6 for end, start in zip(received, since, strict=True)), n=100)
    return cuts[49], cuts[98]


def main(url: str, run_id: str, count: int) -> None:
    with Database(url) as database, database.run(run_id).reader(TOPIC, group="g") as reader:
        reader.poll(0.5)
        wall, used = time.monotonic(), time.process_time()
        reader.poll(5)
        idle = (time.process_time() - used) / (time.monotonic() - wall)
        print("ready", flush=True)
        received = []
        while len(received) < count:
            message = reader.receive()
            received.append(time.monotonic_ns())
            assert message.payload.tick_start == len(received) - 1  # type: ignore[attr-defined]
            reader.ack(message)
        print(json.dumps({"received": received, "idle": idle}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
