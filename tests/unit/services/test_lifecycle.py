from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from ticklake.errors import WrongServiceState
from ticklake.services.base import Service

SOON = 10.0


class Worker(Service):
    """Does one piece of work each time it is asked, and tells what happened."""

    def __init__(self) -> None:
        super().__init__("worker")
        self.work = threading.Semaphore(0)
        self.worked = threading.Semaphore(0)
        self.finished = threading.Event()

    def run(self) -> None:
        while self.proceed():
            self.work.acquire()
            if not self.interrupted():
                self.worked.release()
        self.finished.set()

    def wake(self) -> None:
        self.work.release()


class Broken(Service):
    def __init__(self, error: BaseException) -> None:
        super().__init__("broken")
        self.error_to_raise: BaseException | None = error

    def run(self) -> None:
        if self.error_to_raise:
            raise self.error_to_raise


class Stubborn(Service):
    def __init__(self) -> None:
        super().__init__("stubborn")
        self.release = threading.Event()

    def run(self) -> None:
        self.release.wait()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    assert worker.stop(SOON)


def test_a_service_runs_in_its_own_thread_until_it_is_stopped(worker: Worker) -> None:
    assert worker.state == "stopped"
    worker.start()
    assert worker.state == "running"
    worker.work.release()
    assert worker.worked.acquire(timeout=SOON)
    assert worker.stop(SOON)
    assert worker.state == "stopped"
    assert worker.finished.is_set()


def test_a_paused_service_waits_and_takes_up_no_work_until_it_is_resumed(
    worker: Worker, eventually: Callable[..., None]
) -> None:
    worker.start()
    worker.pause()
    assert worker.state == "paused"
    eventually(lambda: len(worker._changed._waiters) == 1, timeout=SOON)  # type: ignore[attr-defined]
    worker.work.release()
    assert not worker.worked.acquire(timeout=0.02)
    worker.resume()
    assert worker.worked.acquire(timeout=SOON)


def test_a_paused_service_can_be_stopped(worker: Worker) -> None:
    worker.start()
    worker.pause()
    assert worker.stop(SOON)
    assert worker.state == "stopped"


def test_a_stopped_service_can_be_started_again(worker: Worker) -> None:
    worker.start()
    worker.stop(SOON)
    worker.start()
    assert (worker.state, worker.stopping) == ("running", False)


@pytest.mark.warns("broken failed")
@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(3)])
def test_an_error_is_kept_and_seen_until_the_next_start(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    service = Broken(error)
    service.start()
    assert service.join(SOON)
    assert (service.state, service.error, service.monitor.healthy) == ("error", error, False)
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == [logging.ERROR]
    assert service.monitor.snapshot()["error_count"] == 1
    assert service.stop(SOON)
    assert service.state == "error"
    service.error_to_raise = None
    service.start()
    assert service.join(SOON)
    assert (service.state, service.error, service.monitor.healthy) == ("stopped", None, True)


@pytest.mark.warns("did not stop")
def test_a_stop_that_takes_too_long_says_so_and_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    service = Stubborn()
    service.start()
    assert not service.stop(0.01)
    assert service.state == "running"
    assert "did not stop within 0.01 seconds" in caplog.text
    service.release.set()
    assert service.join(SOON)


def test_stopping_twice_or_before_a_start_is_harmless(worker: Worker) -> None:
    assert worker.stop(SOON)
    worker.start()
    assert worker.stop(SOON)
    assert worker.stop(SOON)


def test_what_the_state_does_not_allow_is_refused_with_the_state_in_the_message(worker: Worker) -> None:
    with pytest.raises(WrongServiceState, match="Cannot pause worker: it is stopped but must be running"):
        worker.pause()
    with pytest.raises(WrongServiceState, match="resume"):
        worker.resume()
    worker.start()
    with pytest.raises(WrongServiceState, match="Cannot start worker: it is running but must be stopped or error"):
        worker.start()


def test_a_wait_ends_early_on_a_stop() -> None:
    class Sleeper(Service):
        def run(self) -> None:
            assert not self.wait(3600)

    with Sleeper("sleeper") as sleeper:
        assert sleeper.stop(SOON)
        assert sleeper.state == "stopped"
