"""The faults that a pipeline must survive, each named after its method."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pipeline import INDEXERS, RUN_ID, Pipeline
from small_disk import filled

from ticklake import Database
from ticklake.errors import TickLakeError

LEASE = 1.0
# Where a process that is begun again dies, or runs out of space: each has its own writes.
DEADLY = {
    "produce": ("storage.unsynced", "storage.published", "persistence.publish", "sql.topics.publish.after"),
    "indexer": (
        *("lake.parquet.unsynced", "lake.commit.before", "lake.commit.after", "indexer.ack.before"),
        *("sql.topics.ack.before", "sql.topics.ack.after", "database.commit.before"),
    ),
}
FULL = {"produce": ("storage.unsynced", "persistence.write"), "indexer": ("lake.parquet.write",)}


class Torment:
    """Faults, one after the other."""

    def __init__(self, pipeline: Pipeline, rng: random.Random, server: Any = None, only: Collection[str] = ()) -> None:
        self._pipeline, self._rng, self._server, self._armed = pipeline, rng, server, ""
        kinds = ["kill", "kill_at_point", "stop", "term", "full", "away", "forget", "tear", "tear_batch", "clock"]
        kinds += ["cut", "restart"] if server else ["forbid"]
        kinds += ["fill"] if pipeline.disk.is_mount() else []
        kinds += ["worker"] * len(kinds) if pipeline.indexers != INDEXERS else []
        self._kinds = [kind for kind in kinds if not only or kind in only]
        if not self._kinds:
            raise SystemExit(
                f"chaos: {', '.join(only)} cannot happen to this pipeline; it knows {', '.join(sorted({*kinds}))}"
            )

    def one(self) -> str:
        """The name of what happened; of what found nothing to happen to, it says so."""
        self.relent()
        kind: str = self._rng.choice(self._kinds)
        if getattr(self, f"_{kind}")() is not False:
            return kind
        self.relent()  # what has not met its fault yet would meet it later, and nobody would wait for that
        return f"{kind} missed"

    def relent(self) -> None:
        """Every worker of a Spark is told of its driver's fault, and would die of it again and again."""
        if self._armed in self._pipeline.indexers and self._pipeline.indexers != INDEXERS:
            self._again(self._armed)
        self._armed = ""

    def _victim(self, *others: str) -> str:
        return self._rng.choice([*self._pipeline.indexers, *(name for name in others if not self._pipeline.done(name))])

    def _again(self, name: str, **how: Any) -> None:
        self._pipeline.end(name)
        self._pipeline.start(name, **how)

    def _kill(self) -> None:
        self._again(self._victim("produce", "reconcile"))

    def _kill_at_point(self) -> bool:
        return self._fault_at(DEADLY, "kill", "Python worker exited unexpectedly")

    def _full(self) -> bool:
        return self._fault_at(FULL, "full", "No space left")

    def _fill(self) -> bool:
        """For everybody, SQLite too; it has happened if somebody complains."""
        complained = self._from_now_on("No space left")
        with filled(self._pipeline.disk):
            time.sleep(self._rng.uniform(0.5, 1.5))
        return complained()

    def _fault_at(self, points: Mapping[str, Sequence[str]], action: str, complaint: str) -> bool:
        """Whether its process, or a worker of its Spark, met it."""
        name, nth, complained = self._victim("produce"), self._rng.randint(1, 3), self._from_now_on(complaint)
        point = self._rng.choice(points.get(name, points["indexer"]))
        self._again(name, fault=f"{point}:{action}:{nth}")
        self._armed, hits = name, self._pipeline.hits
        return any(self._pipeline.hits > hits or complained() for _ in self._tries())

    def _term(self) -> None:
        """Not to the producer: it would end its run."""
        name = self._victim()
        self._pipeline.end(name, signal.SIGTERM)
        self._pipeline.start(name)

    def _stop(self) -> None:
        """Longer than its lease: a zombie that wakes up."""
        name = self._victim()
        self._pipeline.send(name, signal.SIGSTOP)
        time.sleep(1.3 * LEASE)
        self._pipeline.send(name, signal.SIGCONT)

    def _clock(self) -> None:
        """On SQLite time is the clock of the machine: a wrong one there makes leases longer or shorter by as much."""
        wrong = self._rng.choice([-3600.0, 3600.0]) if self._server else self._rng.choice([-3.0, 3.0])
        self._again(self._victim("produce"), clock=wrong)

    def _away(self) -> bool:
        """Nobody writes meanwhile: that would make the folder anew."""
        self._pipeline.send("produce", signal.SIGSTOP)
        storage = self._pipeline.disk / "storage"
        if found := storage.exists():
            storage.rename(storage.with_name("away"))
            time.sleep(0.5)
            storage.with_name("away").rename(storage)
        self._pipeline.send("produce", signal.SIGCONT)
        return found

    def _forbid(self) -> bool:
        """For everybody: even root obeys, see `chaos_child.py`."""
        complained = self._from_now_on("Permission denied")
        storage = self._pipeline.disk / "storage"
        if storage.exists():
            storage.chmod(0)
            time.sleep(0.5)
            storage.chmod(0o700)
        return complained()

    def _worker(self) -> bool:
        """One of the Python processes that a Spark has its tasks in, or else its JVM, as soon as there is one."""
        driver = psutil.Process(self._pipeline.processes[self._rng.choice(self._pipeline.indexers)].pid)
        wanted = self._rng.choice([*["pyspark.daemon"] * 3, "org.apache.spark.deploy.SparkSubmit"])
        for _ in self._tries():
            with suppress(psutil.Error):
                for victim in reversed(driver.children(recursive=True)):
                    if wanted in victim.cmdline():
                        victim.kill()
                        return True
        return False

    def _from_now_on(self, words: str) -> Callable[[], bool]:
        """Asks whether the log has got more of these words."""
        already = self._pipeline.said(words)
        return lambda: self._pipeline.said(words) > already

    def _tries(self) -> Iterator[None]:
        """As long as it takes an indexer to be at work again."""
        deadline = time.monotonic() + (8 if self._pipeline.indexers == INDEXERS else 20)
        while time.monotonic() < deadline:
            yield
            self._pipeline.tend()
            time.sleep(0.02)

    def _forget(self) -> bool:
        """The newest notification is gone, its file is not. Where no file changes, `reconcile` looks when it starts."""
        forgotten = False
        with suppress(TickLakeError), Database(self._pipeline.url) as database:
            run = database.run(RUN_ID)
            with run.transaction() as transaction:
                newest = "SELECT max(id) FROM topic_messages WHERE topic_name = 'batch-topic'"
                rows = transaction.execute(f"SELECT message_id FROM topic_messages WHERE id = ({newest})", {})
                for (message_id,) in rows:
                    for table in ("topic_consumer_group", "topic_messages"):
                        transaction.execute_script(f"DELETE FROM {table} WHERE message_id = '{message_id}'")
            forgotten = bool(rows)
        self._again("reconcile")
        return forgotten

    def _tear(self) -> bool:
        """A Parquet file is cut while it is written, and its writer dies. Nobody else writes to the table meanwhile."""
        name = self._rng.choice(self._pipeline.indexers)
        kind = name.partition("-")[0]
        others = [one for one in self._pipeline.indexers if one.startswith(kind) and one != name]
        for other in others:
            self._pipeline.send(other, signal.SIGSTOP)
        table = self._pipeline.disk / "lake" / RUN_ID / f"{kind}_data"
        cut = self._cut_short(name, "lake.parquet.unsynced:hold", table, "*.parquet")
        for other in others:
            self._pipeline.send(other, signal.SIGCONT)
        return cut

    def _tear_batch(self) -> bool:
        """The first file that a producer writes is the metadata."""
        storage = self._pipeline.disk / "storage" / RUN_ID
        return self._cut_short("produce", "storage.unsynced:hold:2", storage, "**/.batch*.tmp")

    def _cut_short(self, name: str, fault: str, folder: Path, pattern: str) -> bool:
        mark = self._pipeline.root / "mark"
        mark.unlink(missing_ok=True)
        self._pipeline.end(name)
        before = {*folder.glob(pattern)}
        self._pipeline.start(name, fault=fault)
        for _ in self._tries():
            if mark.exists():
                break
        found = {*folder.glob(pattern)} - before if mark.exists() else set()
        for file in found:
            os.truncate(file, min(50, file.stat().st_size))
        self._again(name)
        return bool(found)

    def _cut(self) -> bool:
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return bool(self._server.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others};"))

    def _restart(self) -> None:
        self._server.restart()
