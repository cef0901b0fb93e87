"""A run is closed once, whoever else writes to it at the same moment, and a producer that still writes is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticklake import Database
from ticklake.contracts import RunCompleted
from ticklake.errors import RunClosed, RunEndedBefore, RunGoesOn, RunLeaving
from ticklake.lives import life_of
from ticklake.services.closing import keep_open, record_close
from ticklake.services.completion import CompletionService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.storage.codec import encode_ticks
from ticklake.storage.files import BatchFile, Storage
from ticklake.ticks import TickRange

SOON = 20.0


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as opened:
        yield opened


def life(maker: Any) -> str:
    return str(life_of(maker.storage.read_completion(maker.run_id)))


def close(maker: Any, storage: Storage | None = None, **options: Any) -> bool:
    return record_close(storage or maker.storage, maker.run_id, cause="command", **options).changed


def test_a_run_is_closed_at_its_last_file_once(maker: Any) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    assert [close(maker), close(maker), life(maker)] == [True, False, "abandoned at tick 19"]


def test_a_run_without_a_tick_is_closed_before_its_first(maker: Any) -> None:
    maker.metadata()
    close(maker)
    assert life(maker) == "abandoned before its first tick"


def test_a_file_that_comes_later_is_counted_by_closing_again(maker: Any) -> None:
    maker.batch(0, 9)
    close(maker)
    maker.batch(10, 19)
    assert [close(maker), close(maker), life(maker)] == [True, False, "abandoned at tick 19"]


def test_an_end_stays_an_end(maker: Any) -> None:
    maker.batch(0, 9)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=9))
    assert (close(maker), life(maker)) == (False, "ended at tick 9")
    with pytest.raises(RunEndedBefore, match="it is ended at tick 9"):
        close(maker, last_tick=19)


def test_a_tick_before_the_last_file_is_no_end(maker: Any) -> None:
    maker.batches(2, ticks=10)
    with pytest.raises(RunGoesOn, match="batch_0000000010_0000000019"):
        close(maker, last_tick=9)
    assert life(maker) == "running"


@pytest.mark.parametrize("step", [1, 10])
def test_ticks_that_nobody_has_written_are_recorded(maker: Any, step: int) -> None:
    maker.metadata(step=step)
    for start in (0, 200):
        maker.batch(start, start + 90, step=step)
    close(maker, last_tick=500, known=[TickRange(100, 150)])
    end = maker.storage.read_completion(maker.run_id)
    first = {1: [91, 99, 151, 199], 10: [160, 190]}[step]
    assert (list(end.never_written), end.last_tick) == (first, 500)


class Racing(Storage):
    """A storage in which somebody else acts just before a record is written."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def _act(self) -> None:
        act, self.before = self.before, lambda: None
        act()

    def write_completion(self, completed: RunCompleted) -> str:
        self._act()
        return super().write_completion(completed)

    def replace_completion(self, *records: Any) -> Any:
        self._act()
        return super().replace_completion(*records)

    def remove_completion(self, record: Any) -> Any:
        self._act()
        return super().remove_completion(record)


def test_a_file_that_comes_while_the_run_is_closed_is_counted(maker: Any) -> None:
    maker.batch(0, 9)
    racing = Racing(maker.storage.url)
    racing.before = lambda: maker.batch(10, 19)
    assert close(maker, racing)
    assert life(maker) == "abandoned at tick 19"


@pytest.mark.parametrize("compress", [True, False])
def test_a_producer_that_ends_at_the_same_moment_wins_or_is_told(maker: Any, compress: bool) -> None:
    maker.batch(0, 9)
    racing = Racing(maker.storage.url)
    other = Storage(maker.storage.url, compress=compress)
    racing.before = lambda: other.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=9))
    assert not close(maker, racing)
    assert life(maker) == "ended at tick 9"


def persistence(maker: Any, database: Database, storage: Storage, *starts: int) -> PersistenceService:
    queue = TickQueue()
    for start in starts:
        for tick in encode_ticks(maker.run_id, [maker._tick(number, 1) for number in range(start, start + 10)]):
            queue.put(tick)
    queue.close()
    service = PersistenceService(database.run(maker.run_id), storage, queue, PersistenceOptions(max_batch_size=10))
    service.start()
    assert service.join(SOON)
    return service


@pytest.mark.warns("RunClosed")
def test_a_producer_that_comes_back_to_a_closed_run_writes_nothing(maker: Any, database: Database) -> None:
    maker.batch(0, 9)
    close(maker)
    service = persistence(maker, database, maker.storage, 10, 20)
    assert isinstance(service.error, RunClosed)
    text = f"Run {maker.run_id} is abandoned at tick 9, but its producer still writes: ticks 10 to 19."
    assert str(service.error).startswith(text) and f"ticklake runs close {maker.run_id}" in str(service.error)
    assert [file.ticks for file in maker.storage.every_batch(maker.run_id)] == [(0, 9)]


class ClosedAfterWrite(Storage):
    """A storage in which the run is closed just before or after the second file of its producer."""

    when = ""
    cause = "command"
    written = 0

    def write_batch(self, run_id: str, ticks: Any) -> BatchFile:
        self.written += 1
        if self.written == 2 and self.when == "before":
            record_close(Storage(self.url), run_id, cause=self.cause)
        file = super().write_batch(run_id, ticks)
        if self.written == 2 and self.when == "after":
            record_close(Storage(self.url), run_id, cause=self.cause)
        return file


@pytest.mark.warns("RunClosed")
@pytest.mark.parametrize(("when", "last"), [("before", 9), ("after", 19)])
def test_a_producer_is_told_or_its_file_is_counted(maker: Any, database: Database, when: str, last: int) -> None:
    storage = ClosedAfterWrite(maker.storage.url)
    storage.when = when
    service = persistence(maker, database, storage, 0, 10, 20)
    assert isinstance(service.error, RunClosed)
    assert life(maker) == f"abandoned at tick {last}"
    # Told about the first file after the end, which closing again counts.
    assert f"ticks {last + 1} to {last + 10}" in str(service.error)
    close(maker)
    assert life(maker) == f"abandoned at tick {last + 10}"


@pytest.mark.warns("it is open again")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_live_producer_loses_nothing_if_its_run_is_closed_after_a_silence(
    maker: Any, database: Database, when: str
) -> None:
    storage = ClosedAfterWrite(maker.storage.url)
    storage.when, storage.cause = when, "silence"
    service = persistence(maker, database, storage, 0, 10, 20)
    assert (service.error, life(maker)) == (None, "running")
    assert [file.ticks for file in maker.storage.every_batch(maker.run_id)] == [(0, 9), (10, 19), (20, 29)]
    assert [error.code for error in service.monitor.errors] == ["RUN_OPENED_AGAIN"]
    CompletionService(database.run(maker.run_id), maker.storage, TickQueue())._complete(29)
    assert life(maker) == "ended at tick 29"


@pytest.mark.warns("it is open again")
def test_a_producer_that_comes_back_after_a_silence_goes_on(maker: Any, database: Database) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    assert persistence(maker, database, maker.storage, 10).error is None
    assert life(maker) == "running"
    assert [file.ticks for file in maker.storage.every_batch(maker.run_id)] == [(0, 9), (10, 19)]


@pytest.mark.warns("RunClosed")
@pytest.mark.parametrize("cause", ["command", "restart"])
def test_a_run_that_was_closed_for_good_after_a_silence_stays_closed(
    maker: Any, database: Database, cause: str
) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    closed = record_close(maker.storage, maker.run_id, cause=cause)
    assert (closed.changed, closed.end.abandoned_by, life(maker)) == (True, cause, "abandoned at tick 9")
    assert not record_close(maker.storage, maker.run_id, cause="silence").changed
    assert isinstance(persistence(maker, database, maker.storage, 10).error, RunClosed)
    assert life(maker) == "abandoned at tick 9"


def end_truly(maker: Any, last_tick: int) -> None:
    """What a producer does that was only silent: it opens the run again, writes and ends."""
    keep_open(maker.storage, maker.run_id, [last_tick - 9, last_tick])
    maker.batch(last_tick - 9, last_tick)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=last_tick))


@pytest.mark.parametrize("cause", ["command", "restart"])
def test_a_producer_does_not_remove_the_record_of_another_who_has_closed_the_run_for_good(
    maker: Any, cause: str
) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    racing = Racing(maker.storage.url)
    racing.before = lambda: record_close(maker.storage, maker.run_id, cause=cause)
    with pytest.raises(RunClosed, match="abandoned at tick 9"):
        keep_open(racing, maker.run_id, [10, 19])
    assert maker.storage.read_completion(maker.run_id).abandoned_by == cause


@pytest.mark.parametrize("last_tick", [None, 19])
def test_closing_a_silent_run_for_good_does_not_replace_its_true_end(maker: Any, last_tick: int | None) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    racing = Racing(maker.storage.url)
    racing.before = lambda: end_truly(maker, 19)
    assert not close(maker, racing, last_tick=last_tick)
    assert life(maker) == "ended at tick 19"


def test_closing_a_run_again_does_not_bring_back_a_record_that_was_removed(maker: Any) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    racing = Racing(maker.storage.url)

    def go_on() -> None:
        keep_open(maker.storage, maker.run_id, [10, 19])
        maker.batch(10, 19)

    racing.before = go_on
    assert close(maker, racing)
    assert life(maker) == "abandoned at tick 19"


@pytest.mark.parametrize("last_tick", [9, 19])
def test_the_true_end_of_a_run_replaces_the_record_of_its_silence(
    maker: Any, database: Database, last_tick: int
) -> None:
    maker.metadata()
    maker.batch(5, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    CompletionService(database.run(maker.run_id), maker.storage, TickQueue())._complete(last_tick)
    end = maker.storage.read_completion(maker.run_id)
    assert (life(maker), list(end.never_written)) == (f"ended at tick {last_tick}", [])


@pytest.mark.parametrize("last_tick", [None, 9, 19])
def test_an_operator_can_end_a_run_that_was_closed_after_a_silence(maker: Any, last_tick: int | None) -> None:
    maker.batch(0, 9)
    record_close(maker.storage, maker.run_id, cause="silence")
    assert record_close(maker.storage, maker.run_id, last_tick=last_tick).changed
    assert life(maker) == f"ended at tick {last_tick or 9}"


def test_a_file_that_is_lost_after_the_run_was_closed_is_missing_also_after_closing_again(maker: Any) -> None:
    maker.metadata()
    for start in (0, 20, 40):
        maker.batch(start, start + 9)
    close(maker)
    assert list(maker.storage.read_completion(maker.run_id).never_written) == [10, 19, 30, 39]
    Path(maker.storage.url, maker.storage.batches(maker.run_id).files[1].key).unlink()
    maker.batch(60, 69)
    close(maker)
    assert list(maker.storage.read_completion(maker.run_id).never_written) == [10, 19, 30, 39, 50, 59]


def test_an_end_is_withdrawn_if_a_file_after_it_comes_at_the_same_moment(maker: Any) -> None:
    maker.batch(0, 9)
    racing = Racing(maker.storage.url)
    racing.before = lambda: maker.batch(10, 19)
    with pytest.raises(RunGoesOn, match="batch_0000000010_0000000019"):
        record_close(racing, maker.run_id)
    assert life(maker) == "running"


@pytest.mark.warns("RunLeaving")
def test_a_producer_of_a_run_that_is_being_deleted_is_told(maker: Any, database: Database) -> None:
    maker.storage.mark_leaving(maker.run_id, "")
    service = persistence(maker, database, maker.storage, 0)
    assert isinstance(service.error, RunLeaving)
    assert maker.storage.runs() == [] and maker.storage.leaving_runs() == [maker.run_id]


class DeletedAfterWrite(Storage):
    """A storage in which the run is deleted after the first file of its producer."""

    written = 0

    def exists(self, key: str) -> bool:
        if self.written == 1:
            self.remove_run(key.partition("/")[0])
        return super().exists(key)

    def write_batch(self, run_id: str, ticks: Any) -> BatchFile:
        self.written += 1
        return super().write_batch(run_id, ticks)


@pytest.mark.warns("is not in")
def test_a_producer_does_not_bring_back_a_part_of_a_deleted_run(maker: Any, database: Database) -> None:
    storage = DeletedAfterWrite(maker.storage.url)
    service = persistence(maker, database, storage, 0, 10)
    assert "it was deleted, or a disk is not mounted" in str(service.error)
    assert maker.storage.runs() == []


@pytest.mark.parametrize(("last", "error"), [(9, None), (19, RunClosed)])
def test_a_producer_that_ends_an_abandoned_run_is_told_unless_it_agrees(
    maker: Any, database: Database, last: int, error: type[Exception] | None
) -> None:
    maker.batch(0, 9)
    close(maker)
    service = CompletionService(database.run(maker.run_id), maker.storage, TickQueue())
    if error is None:
        service._complete(last)
    else:
        with pytest.raises(error, match="abandoned at tick 9, but its producer still writes: ticks 10 to 19"):
            service._complete(last)
    assert life(maker) == "abandoned at tick 9"


def test_what_is_before_the_end_may_be_written_again(maker: Any, database: Database) -> None:
    assert persistence(maker, database, maker.storage, 0).error is None
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=9))
    assert persistence(maker, database, maker.storage, 0).error is None
    assert persistence(maker, database, maker.storage).error is None
