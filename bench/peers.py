"""Queues from PyPI that we measure ourselves against. They are installed for the benchmark only, beside the project."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

PAYLOAD = "x" * 150
HERE = Path(__file__).parent


class Peer(Protocol):
    """A queue: publish durably one at a time or many; claim a batch, read it, acknowledge it. 0: it cannot."""

    name: str

    def publish(self) -> int: ...

    def publish_many(self, count: int) -> int: ...

    def claim_and_ack(self, limit: int) -> int: ...

    def close(self) -> None: ...


def install(folder: Path) -> bool:
    """Make the peers importable, behind everything that is installed already. False without a network."""
    if importlib.util.find_spec("litequeue"):
        return True
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(folder),
        "-r",
        str(HERE / "peers.txt"),
    ]
    if subprocess.run(command, check=False).returncode:
        return False
    sys.path.append(str(folder))
    return True


class Litequeue:
    name = "litequeue"

    def __init__(self, folder: Path, durable: bool) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(str(folder / "litequeue.db"))
        self._queue.conn.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")

    def publish(self) -> int:
        self._queue.put(PAYLOAD)
        return 1

    def publish_many(self, count: int) -> int:
        with self._queue.transaction():
            for _ in range(count):
                self._queue.put(PAYLOAD)
        return count

    def claim_and_ack(self, limit: int) -> int:
        for _ in range(limit):
            self._queue.done(self._queue.pop().message_id)
        return limit

    def close(self) -> None:
        self._queue.conn.close()


class PersistQueue:
    name = "persist-queue"

    def __init__(self, folder: Path, durable: bool) -> None:
        from persistqueue import SQLiteAckQueue

        self._queue = SQLiteAckQueue(str(folder / "persist"))
        self._queue._putter.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")

    def publish(self) -> int:
        self._queue.put(PAYLOAD)
        return 1

    def publish_many(self, count: int) -> int:
        return sum(self.publish() for _ in range(min(count, 100)))  # it has no batches with acks

    def claim_and_ack(self, limit: int) -> int:
        for _ in range(limit):
            self._queue.ack(self._queue.get(block=False))
        return limit

    def close(self) -> None:
        self._queue.close()


class Huey:
    name = "huey"

    def __init__(self, folder: Path, durable: bool) -> None:
        from huey.storage import SqliteStorage

        self._storage = SqliteStorage(filename=str(folder / "huey.db"), fsync=durable)

    def publish(self) -> int:
        self._storage.enqueue(PAYLOAD.encode())
        return 1

    def publish_many(self, count: int) -> int:
        return sum(self.publish() for _ in range(min(count, 100)))

    def claim_and_ack(self, limit: int) -> int:
        return sum(self._storage.dequeue() is not None for _ in range(limit))  # a dequeue deletes: no ack, no lease

    def close(self) -> None:
        self._storage.close()


class Honker:
    """Always synchronous=NORMAL: no durable publish to compare."""

    name = "honker"

    def __init__(self, folder: Path, durable: bool) -> None:
        import honker

        self._durable = durable
        self._database = honker.open(str(folder / "honker.db"))
        self._queue = self._database.queue("q")

    def publish(self) -> int:
        return 0

    def publish_many(self, count: int) -> int:
        if self._durable:
            return 0
        with self._database.transaction() as transaction:
            for _ in range(count):
                self._queue.enqueue({"x": PAYLOAD}, tx=transaction)
        return count

    def claim_and_ack(self, limit: int) -> int:
        jobs = self._queue.claim_batch("w", limit)
        read = [job.id for job in jobs if job.payload]  # it is decoded when it is looked at
        return int(self._queue.ack_batch(read, "w"))

    def close(self) -> None:
        self._database.close()


class PgQueuer:
    name = "pgqueuer"

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        import psycopg
        from pgqueuer.db import PsycopgDriver
        from pgqueuer.queries import Queries

        self._connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        self._queries = Queries(PsycopgDriver(self._connection))
        with contextlib.suppress(psycopg.Error):
            await self._queries.install()
        self._manager = uuid4()

    def publish(self) -> int:
        self._loop.run_until_complete(self._queries.enqueue("e", PAYLOAD.encode()))
        return 1

    def publish_many(self, count: int) -> int:
        payloads: list[bytes | None] = [PAYLOAD.encode()] * count
        self._loop.run_until_complete(self._queries.enqueue(["e"] * count, payloads, [0] * count))
        return count

    def claim_and_ack(self, limit: int) -> int:
        return self._loop.run_until_complete(self._claim_and_ack(limit))

    async def _claim_and_ack(self, limit: int) -> int:
        from pgqueuer.queries import EntrypointExecutionParameter

        entries = {"e": EntrypointExecutionParameter(concurrency_limit=0)}
        jobs = await self._queries.dequeue(limit, entries, self._manager, None, timedelta(seconds=300))  # type: ignore[arg-type]
        await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


class Procrastinate:
    name = "procrastinate"

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        import procrastinate

        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        await self._app.open_async()
        with contextlib.suppress(Exception):  # it is there from the run before
            await self._app.schema_manager.apply_schema_async()
        self._worker = await self._app.job_manager.register_worker()
        self._task = self._app.configure_task("t", allow_unknown=True)

    def publish(self) -> int:
        self._loop.run_until_complete(self._task.defer_async(x=PAYLOAD))
        return 1

    def publish_many(self, count: int) -> int:
        self._loop.run_until_complete(self._task.batch_defer_async(*({"x": PAYLOAD} for _ in range(count))))
        return count

    def claim_and_ack(self, limit: int) -> int:
        return self._loop.run_until_complete(self._claim_and_ack(limit))

    async def _claim_and_ack(self, limit: int) -> int:
        from procrastinate.jobs import Status

        manager: Any = self._app.job_manager
        for _ in range(limit):
            job = await manager.fetch_job(queues=None, worker_id=self._worker)
            await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
        return limit

    def close(self) -> None:
        self._loop.run_until_complete(self._app.close_async())
        self._loop.close()


class Pgmq:
    name = "pgmq"

    def __init__(self, url: str, sql: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        if not self._connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'pgmq'").fetchone():
            self._connection.execute(sql.encode())
            self._connection.execute("SELECT pgmq.create('q')")
        self._payload = json.dumps({"x": PAYLOAD})

    def publish(self) -> int:
        self._connection.execute("SELECT pgmq.send('q', %s::jsonb)", [self._payload])
        return 1

    def publish_many(self, count: int) -> int:
        self._connection.execute("SELECT pgmq.send_batch('q', %s::jsonb[])", [[self._payload] * count])
        return count

    def claim_and_ack(self, limit: int) -> int:
        claimed = self._connection.execute("SELECT * FROM pgmq.read('q', 300, %s)", [limit]).fetchall()
        ids = [row[0] for row in claimed]
        return len(self._connection.execute("SELECT pgmq.archive('q', %s::bigint[])", [ids]).fetchall())

    def close(self) -> None:
        self._connection.close()


def pgmq_sql(folder: Path) -> str | None:
    """From the crate that carries it; None without cargo or a network."""
    if not shutil.which("cargo"):
        return None
    folder.mkdir()
    (folder / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n'
        '[lib]\npath = "lib.rs"\n[dependencies]\npgmq = "=0.33.5"\n'
    )
    environment = os.environ | {"CARGO_HOME": str(folder / "home")}
    subprocess.run(["cargo", "fetch", "--quiet"], cwd=folder, env=environment, check=False)
    found = list(folder.glob("home/registry/src/*/pgmq-*/src/install/embedded/sql/pgmq.sql"))
    return found[0].read_text() if found else None


@contextlib.contextmanager
def slow_disk(seconds: float) -> Iterator[None]:
    """Until the end, SQLite's syncs take that much longer, in every database that is opened meanwhile."""
    import apsw

    base = apsw.vfs_names()[0]

    class SlowFile(apsw.VFSFile):
        def xSync(self, flags: int) -> None:
            time.sleep(seconds)
            super().xSync(flags)

    class SlowDisk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("slow", base, makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> Any:
            return SlowFile(base, name, flags)

    disk = SlowDisk()
    try:
        yield
    finally:
        disk.unregister()


@contextlib.contextmanager
def sqlite_peers(folder: Path, durable: bool) -> Iterator[list[Peer]]:
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(kind(folder, durable)))
            for kind in (Honker, Litequeue, PersistQueue, Huey)
        ]


@contextlib.contextmanager
def postgres_peers(url: str, pgmq: str | None) -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        kinds: list[Any] = [PgQueuer, Procrastinate, *([partial(Pgmq, sql=pgmq)] if pgmq else [])]
        yield [stack.enter_context(contextlib.closing(kind(url))) for kind in kinds]
