"""The web pages on large tables and large worlds, and what those who look cost those who work."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
from bench.reading import fill
from bench.results import Figure, Section
from bench.runs import RUN_ID, produce

from ticklake.config.options import HttpOptions
from ticklake.contracts import BatchInfo, EnvironmentConfig, SimulationMetadata
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import SCHEMA, EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.flush.job import warm_up
from ticklake.lake.lake import Lake
from ticklake.lake.metadata import write_metadata
from ticklake.lake.session.session import open_session
from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.web.server import open_site
from ticklake.web.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWERS = 50
CELLS = 12_000_000
SIDE, WORLD_TICKS = 1000, 12
SMOOTH = 34  # every second picture of a 60 Hz screen, by a clock that shows tenths of a millisecond
TABLE = EnvironmentIndexer.table
assert TABLE is not None

LOOKING = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import selectors
looking = selectors.DefaultSelector()
for _ in range(count):
    one = socket.create_connection((host, port))
    one.sendall(f"GET /live/overview HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    looking.register(one, selectors.EVENT_READ)
print("looking", flush=True)
while True:
    for key, _ in looking.select():
        if not key.fileobj.recv(1 << 16):
            sys.exit()
"""

WATCH = """() => { window.times = []; let before = performance.now();
    const go = (now) => { times.push(now - before); before = now; if (window.times) requestAnimationFrame(go); };
    requestAnimationFrame(go); }"""


def measure(directory: Path, rows: int = 100_000_000, rounds: int = 3) -> Section:
    total, frames, charts = large_table(directory / "large", rows)
    smooth = large_world(directory / "world")
    costs = viewers(directory / "viewers", rounds)
    return Section(
        "Web pages",
        f"A table of {total:,} rows, over HTTP from a server of its own, 40 ticks here and there; a world of"
        f" {SIDE:,} by {SIDE:,} cells, all of them occupied, in headless Chromium without a graphics card, the time"
        f" between two pictures; {VIEWERS} viewers of the live overview in the process of an indexer that works through"
        f" {CELLS / 1e6:.0f} M cells in small files, {rounds} times in turn with nobody looking.",
        [
            Figure("the first tick shown of the table", frames[0] * 1000, "ms", at_most=300),
            Figure("a tick of the table, p95", quantiles(frames[1:], n=20)[-1] * 1000, "ms", at_most=300),
            Figure("a chart of all its ticks, the first", charts[0] * 1000, "ms"),
            Figure("a chart of all its ticks, once more", min(charts) * 1000, "ms"),
            *(Figure(f"{what}, p95 between two pictures", one, "ms", at_most=SMOOTH) for what, one in smooth.items()),
            Figure(f"share of its rate that {VIEWERS} viewers cost an indexer", costs, "%", at_most=5),
        ],
    )


@contextmanager
def served(site: Site, directory: Path) -> Iterator[str]:
    server = open_site(site, HttpOptions(port=0), directory)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def large_table(directory: Path, rows: int) -> tuple[int, list[float], list[float]]:
    """How long ticks and charts take to arrive, the first of a server that has not seen the table before."""
    lake = directory / "lake"
    total = fill(directory, lake, rows)
    with served(Site(lake=lake), directory) as url, httpx.Client(timeout=60, trust_env=False) as client:
        api = f"{url}/api/runs/{RUN_ID}"
        last = client.get(f"{api}/ticks").json()["last"]
        dice = random.Random(7)
        ticks = [dice.randrange(last) for _ in range(40)]
        frames = [timed(lambda tick=tick: client.get(f"{api}/frame?tick={tick}").raise_for_status()) for tick in ticks]
        charts = [timed(lambda: client.get(f"{api}/series").raise_for_status()) for _ in range(4)]
    return total, frames, charts


def large_world(directory: Path) -> dict[str, float]:
    """The 95th percentile of the time between two pictures, in milliseconds; nothing where there is no browser."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if binary is None:
        return {}
    from playwright.sync_api import sync_playwright

    lake = full_world(directory)
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with served(Site(lake=lake), directory) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=flags)
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(f"{url}/world?tick=0")
        while not page.evaluate("document.querySelector('#world').dataset.shown"):
            page.wait_for_timeout(50)
        acts = {"panning": panning, "zooming": zooming, "playing": playing}
        found = {what: between_pictures(page, act) for what, act in acts.items()}
        browser.close()
    return found


def between_pictures(page: Any, act: Callable[[Any], None]) -> float:
    page.evaluate(WATCH)
    act(page)
    times = page.evaluate("() => { const found = window.times; window.times = null; return found; }")
    return float(quantiles(times[1:], n=20)[-1])


def panning(page: Any) -> None:
    page.mouse.move(400, 400)
    page.mouse.down()
    for step in range(120):
        page.mouse.move(400 + 2 * step, 400 + step)
    page.mouse.up()


def zooming(page: Any) -> None:
    for step in range(80):
        page.mouse.wheel(0, -40 if step < 40 else 40)
        page.wait_for_timeout(10)


def playing(page: Any) -> None:
    page.locator("#fit").click()
    page.locator("#play").click()
    while page.evaluate("Number(document.querySelector('#world').dataset.shown)") < WORLD_TICKS - 1:
        page.wait_for_timeout(50)


def full_world(directory: Path) -> Path:
    """A world with something in each of its cells."""
    lake = Lake(directory / "lake")
    environment = EnvironmentConfig(dimensions=2, shape=(SIDE, SIDE), toroidal=[True, True])
    metadata = SimulationMetadata(simulation_run_id=RUN_ID, environment=environment, sampling_interval=1)
    write_metadata(lake.location(RUN_ID, "metadata"), metadata)
    ledger = lake.ledger(RUN_ID, TABLE)
    writer = ParquetFileWriter(ledger.location, "0.parquet", TABLE)
    cell = np.arange(SIDE * SIDE, dtype=np.int32)
    for tick in range(WORLD_TICKS):
        kind, value = cell // 7 % 4 << 16, (cell + tick * 1000) % 500
        columns = [
            np.full(len(cell), tick),
            cell,
            cell // SIDE,
            cell % SIDE,
            None,
            kind | value,
            kind,
            value,
            cell % 90,
            kind >> 16,
            None,
        ]
        arrays = [
            pa.nulls(len(cell), one.type) if data is None else pa.array(data, one.type)
            for data, one in zip(columns, SCHEMA, strict=True)
        ]
        writer.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})
    return directory / "lake"


def viewers(directory: Path, rounds: int) -> float:
    """By how many percent the rate is lower with viewers; the median of rounds, each with and without."""
    storage, total = produce(directory, CELLS, ticks_a_file=4)
    spark = open_session("local[2]")
    warm_up(spark, EnvironmentIndexer.rows)
    shares = []
    for turn in range(rounds + 1):
        alone = total / catch_up(directory / f"alone-{turn}", storage, spark, 0)
        watched = total / catch_up(directory / f"watched-{turn}", storage, spark, VIEWERS)
        shares.append((1 - watched / alone) * 100)
        print(f"alone {alone:,.0f} cells/s, watched {watched:,.0f}", flush=True)
    spark.stop()
    return median(shares[1:])


def catch_up(directory: Path, storage: Storage, spark: SparkSession, count: int) -> float:
    """Seconds until an indexer has taken everything from the topic while so many look at the overview."""
    with Database(f"sqlite:///{directory / 'database'}") as database:
        resources = IndexerResources(storage, Lake(directory / "lake"), database, spark=lambda: spark)
        MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
        with database.run(RUN_ID).writer("batch-topic") as writer:
            infos = [
                BatchInfo(
                    simulation_run_id=RUN_ID, storage_key=one.key, tick_start=one.ticks.start, tick_end=one.ticks.end
                )
                for one in storage.every_batch(RUN_ID)
            ]
            writer.send_many(infos)
        options = IndexerOptions(RUN_ID, insert_batch_size=80, until_caught_up=True)
        indexer = EnvironmentIndexer("environment-indexer", resources, options)
        with served(Site(storage, directory / "lake", database), directory) as url, looking(url, count):
            seconds = timed(indexer.run)
    shutil.rmtree(directory)
    return seconds


@contextmanager
def looking(url: str, count: int) -> Iterator[None]:
    if not count:
        yield
        return
    host, _, port = url.removeprefix("http://").partition(":")
    with subprocess.Popen([sys.executable, "-c", LOOKING, host, port, str(count)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
