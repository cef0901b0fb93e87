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
    p50_ms: float
    p99_ms: float
    idle_share: float


def measure(url: str, run_id: str, count: int = 200, gap: float = 0.02) -> Latency:
    with Database(url) as database, database.run(run_id).writer(TOPIC) as writer:
        command = [sys.executable, "-m", "bench.latency", url, run_id, str(count)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(count):
            time.sleep(gap)
            writer.send(BatchInfo(tick_start=time.monotonic_ns()))
        told = json.loads(child.stdout.readline())
        child.wait()
    cuts = quantiles(told["latencies"], n=100)
    return Latency(cuts[49] / 1e6, cuts[98] / 1e6, told["idle"])


def main(url: str, run_id: str, count: int) -> None:
    with Database(url) as database, database.run(run_id).reader(TOPIC, group="g") as reader:
        reader.poll(0.5)
        wall, used = time.monotonic(), time.process_time()
        reader.poll(5)
        idle = (time.process_time() - used) / (time.monotonic() - wall)
        print("ready", flush=True)
        latencies = []
        while len(latencies) < count:
            message = reader.receive()
            latencies.append(time.monotonic_ns() - message.payload.tick_start)  # type: ignore[attr-defined]
            reader.ack(message)
        print(json.dumps({"latencies": latencies, "idle": idle}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
