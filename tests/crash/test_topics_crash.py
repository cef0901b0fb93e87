"""Real processes that share a topic, and are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake import BatchInfo, Database
from ticklake.topics import Run

CHILD = Path(__file__).with_name("topics_child.py")
WRITERS, READERS = 4, 4
LEASE = 2.0


class Children:
    """Processes that write what they did to a file each."""

    def __init__(self, folder: Path, url: str, run_id: str) -> None:
        self._folder = folder
        self._where = (url, run_id)
        self._started = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, what: str, *options: object) -> subprocess.Popen[bytes]:
        self._started += 1
        with (self._folder / f"{what}-{self._started}.txt").open("wb") as output:
            command = [sys.executable, str(CHILD), what, *self._where, *map(str, options)]
            child = subprocess.Popen(command, stdout=output)
        self.running.append(child)
        return child

    def kill(self, child: subprocess.Popen[bytes], how: signal.Signals = signal.SIGKILL) -> None:
        child.send_signal(how)
        child.wait()
        self.running.remove(child)

    def lines(self, what: str) -> list[str]:
        """What those processes have written; a last line without an end was cut off by a kill."""
        texts = (file.read_text() for file in self._folder.glob(f"{what}-*.txt"))
        return [line[:-1] for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def children(tmp_path: Path, url: str, run: Run) -> Iterator[Children]:
    made = Children(tmp_path, url, run.id)
    yield made
    for child in list(made.running):
        made.kill(child)


@pytest.fixture
def run(url: str) -> Iterator[Run]:
    with Database(url) as database:
        yield database.run(f"20251014-143025-{uuid4().hex[:8]}")


def acknowledged(run: Run) -> int:
    with run.reading() as view:
        ((count,),) = view.execute("SELECT count(*) FROM topic_consumer_group WHERE acknowledged_at IS NOT NULL", {})
    return int(count)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [8_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_message_is_acknowledged_exactly_once_whoever_is_killed(children: Children, run: Run, count: int) -> None:
    rng = random.Random(7)
    run.writer("t").close()
    writers = [children.start("write", number, count // WRITERS) for number in range(WRITERS)]
    readers = [children.start("read", LEASE) for _ in range(READERS)]
    killed, deadline = 0, time.monotonic() + 500
    while acknowledged(run) < count:
        assert time.monotonic() < deadline, f"{acknowledged(run)} of {count} acknowledged"
        if acknowledged(run) > (killed + 1) * 1000:
            children.kill(readers.pop(rng.randrange(READERS)))
            readers.append(children.start("read", LEASE))
            killed += 1
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    assert killed >= 5
    sent, accepted = children.lines("write"), children.lines("read")
    assert len(set(sent)) == len(sent) == count
    assert set(accepted) <= set(sent)
    assert max(Counter(accepted).values()) == 1, "an ack was accepted twice"
    assert acknowledged(run) == count
    assert [(status.lag, status.dead_letters) for status in run.groups.list()] == [(0, 0)]
    assert_each_writers_order_is_kept(run, count)


def assert_each_writers_order_is_kept(run: Run, count: int) -> None:
    """A single reader of another group gets what each writer sent in the order it was sent."""
    expected = Counter({str(number): 0 for number in range(WRITERS)})
    with run.reader("t", group="late", max_unacknowledged=count) as reader:
        while messages := reader.poll_many(1000, 0):
            for message in messages:
                assert message.payload.tick_start == expected[message.payload.simulation_run_id]  # type: ignore[attr-defined]
                expected[message.payload.simulation_run_id] += 1  # type: ignore[attr-defined]
            assert all(reader.ack_many(messages))
    assert expected.total() == count


@pytest.mark.parametrize(("how", "free"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_term_gives_claims_back_and_kill_leaves_them_to_expire(
    children: Children, run: Run, eventually: Callable[..., None], how: signal.Signals, free: bool
) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=1))
    holder = children.start("hold")
    eventually(lambda: len(children.lines("hold")) == 1)
    assert len(run.claims.list()) == 1
    children.kill(holder, how)
    with run.reader("t", group="g") as reader:
        assert (reader.poll(0) is not None) is free


def test_a_reader_in_another_process_is_woken_by_the_write(
    children: Children, run: Run, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticklake.database.sqlite.wakeups.SAFETY_SECONDS", 600)
    monkeypatch.setattr("ticklake.database.sqlite.wakeups.MAX_WAIT_SECONDS", 600)
    monkeypatch.setattr("ticklake.database.postgres.wakeups.SAFETY_SECONDS", 600)
    with run.reader("t", group="g") as reader:
        assert reader.poll(0.01) is None
        children.start("write", 0, 50)
        message = reader.poll(60)
        assert message is not None
        assert reader.ack(message)
