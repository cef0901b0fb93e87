"""Senders that come together share a commit; one that spoils it spoils only its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from ticklake.database.retry import retry_while_unavailable
from ticklake.errors import DatabaseFull, DatabaseLocked, DatabaseUnavailable, TickLakeError
from ticklake.topics.envelope import Envelope
from ticklake.topics.publisher import Publisher

Parcels = Sequence[tuple[str, Sequence[Envelope]]]


class SlowStore:
    """Keeps what it is given; its first commit lasts until it is let go."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.entered, self.let_go = threading.Event(), threading.Event()

    def publish_all(self, parcels: Parcels) -> None:
        if any(topic == "too large" for topic, _ in parcels):
            raise DatabaseFull(database="db")
        self.entered.set()
        assert self.let_go.wait(10)
        self.commits.append([envelope.message_id for _, envelopes in parcels for envelope in envelopes])


def envelope(name: str) -> list[Envelope]:
    return [Envelope(name, 0, b"")]


def test_who_comes_during_a_commit_shares_the_next(eventually: Callable[..., None]):
    store = SlowStore()
    publisher = Publisher(store)  # type: ignore[arg-type]
    threads = [threading.Thread(target=publisher.publish, args=("t", envelope("first")))]
    threads[0].start()
    assert store.entered.wait(10)
    threads += [threading.Thread(target=publisher.publish, args=("t", envelope(str(n)))) for n in range(5)]
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(publisher._queue) == 6)  # with the first, until it is stored
    store.let_go.set()
    for thread in threads:
        thread.join(10)
    assert store.commits[0] == ["first"]
    assert sorted(store.commits[1]) == ["0", "1", "2", "3", "4"]
    assert len(store.commits) == 2


def test_one_that_spoils_a_commit_spoils_only_its_own(eventually: Callable[..., None]):
    store = SlowStore()
    publisher = Publisher(store)  # type: ignore[arg-type]
    failed: list[str] = []

    def send(topic: str, name: str) -> None:
        try:
            publisher.publish(topic, envelope(name))
        except DatabaseFull:
            failed.append(name)

    threads = [threading.Thread(target=send, args=("t", "first"))]
    threads[0].start()
    assert store.entered.wait(10)
    threads += [threading.Thread(target=send, args=a) for a in (("t", "good"), ("too large", "bad"))]
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(publisher._queue) == 3)
    store.let_go.set()
    for thread in threads:
        thread.join(10)
    assert failed == ["bad"]
    assert store.commits == [["first"], ["good"]]


@pytest.mark.parametrize("kind", [DatabaseUnavailable, DatabaseLocked])
@pytest.mark.warns("Waiting for the database")
def test_a_database_that_is_away_is_waited_for_once_and_not_once_a_sender(
    eventually: Callable[..., None], kind: type[TickLakeError]
):
    store = AwayStore(kind(database="db", reason="r", seconds=30))
    publisher = Publisher(store)  # type: ignore[arg-type]
    failed: list[str] = []

    def send(name: str) -> None:
        with pytest.raises(kind):
            publisher.publish("t", envelope(name), patience=0)
        failed.append(name)

    threads = [threading.Thread(target=send, args=(str(n),)) for n in range(5)]
    threads[0].start()
    assert store.entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(publisher._queue) == 5)
    store.let_go.set()
    for thread in threads:
        thread.join(10)
    assert sorted(failed) == ["0", "1", "2", "3", "4"]
    assert store.tries == 2, "one of the first, one of all who came meanwhile"


class AwayStore:
    """Fails always; the first time only when it is let go."""

    def __init__(self, error: TickLakeError) -> None:
        self.tries = 0
        self.entered, self.let_go = threading.Event(), threading.Event()
        self._error = error

    def publish_all(self, parcels: Parcels) -> None:
        self.tries += 1
        self.entered.set()
        assert self.let_go.wait(10)
        raise self._error


@pytest.mark.parametrize("where", ["_gather", "_commit"])
def test_a_sender_that_is_interrupted_leaves_the_queue_to_the_next(
    eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch, where: str
):
    store = SlowStore()
    store.let_go.set()
    publisher = Publisher(store)  # type: ignore[arg-type]
    plain, reached, let_go = getattr(publisher, where), threading.Event(), threading.Event()

    def interrupted(*values: object) -> None:
        monkeypatch.setattr(publisher, where, plain)
        reached.set()
        assert let_go.wait(10)
        raise KeyboardInterrupt

    def send_interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            publisher.publish("t", envelope("interrupted"))

    monkeypatch.setattr(publisher, where, interrupted)
    threads = [threading.Thread(target=send_interrupted)]
    threads[0].start()
    assert reached.wait(10)
    threads += [threading.Thread(target=publisher.publish, args=("t", envelope(name)), daemon=True) for name in "ab"]
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: {"a", "b"} <= {e.message_id for parcel in publisher._queue for e in parcel.envelopes})
    let_go.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert {"a", "b"} <= {name for commit in store.commits for name in commit}
    assert publisher._leader is None and not publisher._queue


@pytest.mark.warns("Waiting for the database")
def test_patience_repeats_until_the_database_answers():
    answers = iter([DatabaseUnavailable(database="d", reason="r"), DatabaseUnavailable(database="d", reason="r"), 7])
    pauses: list[float] = []

    def act() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told: list[object] = []
    assert retry_while_unavailable(act, on_error=told.append, pause=pauses.append) == 7
    assert len(told) == len(pauses)
    assert pauses == [0.05, 0.1]


@pytest.mark.warns("Waiting for the database")
def test_patience_has_an_end():
    def act() -> None:
        raise DatabaseUnavailable(database="d", reason="r")

    with pytest.raises(DatabaseUnavailable):
        retry_while_unavailable(act, on_error=lambda _: None, seconds=0)
