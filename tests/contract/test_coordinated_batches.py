"""Batches found in storage and shared out by the coordinator, on every database; Spark has no part in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticklake import RunCompleted
from ticklake.coordination.claims import LOST_OFTEN, FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.gaps import PENDING, PERMANENT
from ticklake.errors import DatabaseUnavailable
from ticklake.indexers import coordinated, suspects
from ticklake.indexers.coordinated import CoordinatedBatches
from ticklake.monitoring import Monitor
from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch
from ticklake.ticks import TickRange
from ticklake.topics import Run

Open = Callable[..., CoordinatedBatches]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "storage")


@pytest.fixture
def put(run: Run, tmp_path: Path) -> Callable[..., None]:
    """Puts an (empty) batch file where a listing finds it."""

    def put(first: int, last: int, folder: str = "") -> None:
        directory = tmp_path / "storage" / run.id / folder
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"batch_{first:010d}_{last:010d}.pb").touch()

    return put


@pytest.fixture
def open_batches(run: Run, storage: Storage) -> Open:
    def make(step: int = 10, lease: float = 60, timeout_ms: int = 60_000, monitor: Monitor | None = None) -> Any:
        coordinator = Coordinator(run, "DummyIndexer", step=step, lease=lease)
        return CoordinatedBatches(
            coordinator,
            storage,
            run.id,
            monitor or Monitor("test"),
            poll_interval=0.01,
            gap_warning_timeout_ms=timeout_ms,
            until_caught_up=True,
        )

    return make


@pytest.fixture
def gaps(run: Run) -> Callable[[], list[tuple[int, int, str]]]:
    return lambda: [(*gap.ticks, gap.status) for gap in Coordinator(run, "DummyIndexer", step=10).gaps()]


def taken(batches: CoordinatedBatches, limit: int = 32) -> list[tuple[int, int]]:
    """Waits for what is there and has it done."""
    deliveries = batches.poll(limit, 10)
    batches.done(deliveries)
    return [tuple(delivery.ticks) for delivery in deliveries]


def nothing(batches: CoordinatedBatches) -> bool:
    """Whether a look gives nothing."""
    return batches.poll(32, 0) == []


def test_what_is_in_storage_is_delivered_once_in_tick_order(put: Callable[..., None], open_batches: Open):
    for start in (2000, 0, 1000):
        put(start, start + 990)
    batches = open_batches()
    assert taken(batches) == [(0, 990), (1000, 1990), (2000, 2990)]
    assert nothing(batches)
    assert batches.exhausted
    assert nothing(open_batches())


def test_two_indexers_share_the_files(put: Callable[..., None], open_batches: Open):
    for start in range(0, 1000, 100):
        put(start, start + 90)
    one, other = open_batches(), open_batches()
    shares = [taken(one, 3), taken(other, 3), taken(one, 3), taken(other, 3)]
    assert [len(share) for share in shares] == [3, 3, 3, 1]
    assert sorted(one for share in shares for one in share) == [(start, start + 90) for start in range(0, 1000, 100)]


def test_files_that_come_later_are_found(put: Callable[..., None], open_batches: Open):
    put(0, 990)
    batches = open_batches()
    assert taken(batches) == [(0, 990)]
    put(1000, 1990)
    assert taken(batches) == [(1000, 1990)]


def test_the_oldest_pending_gap_is_filled_before_anything_new(put: Callable[..., None], open_batches: Open, gaps: Any):
    put(1000, 1990)
    put(3000, 3990)
    batches = open_batches()
    assert taken(batches) == [(1000, 1990), (3000, 3990)]
    assert gaps() == [(0, 990, PENDING), (2000, 2990, PENDING)]
    for start in (4000, 2000, 0):
        put(start, start + 990)
    assert taken(batches) == [(0, 990), (2000, 2990), (4000, 4990)]
    assert gaps() == []


@pytest.mark.warns("is not known")
def test_an_end_that_was_damaged_and_repaired_is_read_by_the_running_indexer(
    put: Callable[..., None], open_batches: Open, gaps: Any, run: Run, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinated, "_END_SECONDS", 0.0)
    put(0, 90)
    batches = open_batches(monitor=(monitor := Monitor("test")))
    assert taken(batches) == [(0, 90)]
    end = Path(storage.url) / run.id / "completed.pb"
    end.write_bytes(b"\xff\xff\xfftorn")
    assert nothing(batches) and nothing(batches) and gaps() == []
    assert [one.code for one in monitor.errors] == ["BAD_COMPLETION"]
    end.unlink()
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=190))
    assert nothing(batches) and gaps() == [(100, 190, "pending")]


@pytest.mark.warns("Permanent gap")
def test_a_gap_becomes_permanent_and_its_late_data_is_taken_all_the_same(
    put: Callable[..., None], open_batches: Open, gaps: Any, pass_time: Callable[[float], None]
):
    put(0, 990)
    put(3000, 3990)
    monitor = Monitor("test")
    batches = open_batches(monitor=monitor)
    taken(batches)
    assert nothing(batches)
    assert monitor.snapshot()["gaps_pending"] == 1
    pass_time(61)
    assert nothing(batches)
    assert gaps() == [(1000, 2990, PERMANENT)]
    assert nothing(batches)
    assert monitor.snapshot()["gaps_pending"] == 0
    put(4000, 4990)
    put(1000, 1990)
    assert taken(batches) == [(1000, 1990), (4000, 4990)]
    assert gaps() == [(2000, 2990, PERMANENT)]


def test_a_gap_whose_file_is_there_is_filled_not_given_up_however_old_it_is(
    put: Callable[..., None], open_batches: Open, gaps: Any, pass_time: Callable[[float], None]
):
    put(1000, 1990)
    batches = open_batches()
    taken(batches)
    pass_time(3600)
    put(0, 990)
    assert taken(batches) == [(0, 990)]
    assert gaps() == []


@pytest.mark.warns("STUCK_BATCH_REASSIGNED")
def test_what_a_dead_indexer_held_is_delivered_to_another(
    put: Callable[..., None], open_batches: Open, pass_time: Callable[[float], None]
):
    put(0, 990)
    put(1000, 1990)
    dead, living = open_batches(), open_batches()
    held = dead.poll(1, 0)
    assert taken(living) == [(1000, 1990)]
    assert not living.poll(5, 0) and not living.exhausted, "somebody else is at work on the rest"
    pass_time(61)
    assert taken(living) == [(0, 990)]
    assert dead.renew(held) == held


@pytest.mark.warns("is indexed alone: it may have ended earlier processes")
@pytest.mark.parametrize("place", [0, 3, 9])
def test_a_file_that_ends_its_process_is_claimed_alone_and_last(
    place: int, put: Callable[..., None], run: Run, storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    """Each life of a node works until it claims the culprit, and dies with all that it holds."""
    for start in range(0, 1000, 100):
        put(start, start + 90)
    monkeypatch.setattr(suspects, "LONGEST", 0.2)
    culprit, done = (100 * place, 100 * place + 90), []
    for number in range(20):
        life = f"node/{number}"
        monkeypatch.setattr(suspects, "STARTED", time.monotonic())
        coordinator = Coordinator(run, "DummyIndexer", step=10, lease=600, instance=f"{life}:1")
        coordinator.release_earlier(life)
        batches = CoordinatedBatches(coordinator, storage, run.id, Monitor("test"), poll_interval=0.02)
        while (found := batches.poll(4, 10)) and culprit not in [tuple(one.ticks) for one in found]:
            batches.done(found)
            done += [tuple(one.ticks) for one in found]
        assert not batches.exhausted and not batches.failed
        assert len(found) == 1 or number < LOST_OFTEN
    assert sorted([*done, culprit]) == [(start, start + 90) for start in range(0, 1000, 100)]


@pytest.fixture
def after_many_lives(put: Callable[..., None], run: Run, storage: Storage) -> Open:
    """A file was lost in nine lives of a node. Opens it in the tenth."""
    put(0, 90)
    culprit = FoundFile("batch_0000000000_0000000090.pb", TickRange(0, 90))
    for life in range(9):
        coordinator = Coordinator(run, "DummyIndexer", step=10, lease=600, instance=f"node/{life}:1")
        coordinator.release_earlier(f"node/{life}")
        assert coordinator.take_over(1) or coordinator.claim([culprit], 1)
    tenth = Coordinator(run, "DummyIndexer", step=10, lease=600, instance="node/10:1")
    tenth.release_earlier("node/10")
    return lambda: CoordinatedBatches(tenth, storage, run.id, Monitor("test"), until_caught_up=True)


def test_in_each_life_other_files_come_before_one_that_ended_earlier_lives(
    put: Callable[..., None], after_many_lives: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(suspects, "STARTED", time.monotonic())
    put(100, 190)
    batches = after_many_lives()
    (other,) = batches.poll(4, 0)
    assert tuple(other.ticks) == (100, 190)
    batches.done([other])
    assert nothing(batches) and not batches.exhausted, "it is tried later"


@pytest.mark.warns("is indexed alone: it may have ended earlier processes")
def test_a_file_that_ended_earlier_lives_is_tried_although_its_run_is_opened_again_and_again(
    after_many_lives: Open, monkeypatch: pytest.MonkeyPatch
):
    """As by an indexer that works on many runs in turns."""
    monkeypatch.setattr(suspects, "STARTED", time.monotonic() - suspects.LONGEST)
    assert taken(after_many_lives()) == [(0, 90)]


def test_a_batch_given_back_is_delivered_again(put: Callable[..., None], open_batches: Open):
    put(0, 990)
    one = open_batches()
    one.release(one.poll(5, 0))
    assert taken(open_batches()) == [(0, 990)]


@pytest.mark.warns("failed: ticks 3 to 5 are rotten")
def test_a_failed_batch_is_set_aside_and_the_rest_goes_on(put: Callable[..., None], open_batches: Open, run: Run):
    put(0, 990)
    put(1000, 1990)
    batches = open_batches()
    bad, good = batches.poll(5, 0)
    batches.fail(bad, "ticks 3 to 5 are rotten")
    batches.done([good])
    assert nothing(batches) and batches.exhausted
    assert batches.failed == {f"{run.id}/batch_0000000000_0000000990.pb": "ticks 3 to 5 are rotten"}


@pytest.mark.warns("failed: rotten")
def test_an_indexer_that_ends_knows_what_failed_for_another_one(put: Callable[..., None], open_batches: Open, run: Run):
    put(0, 990)
    put(1000, 1990)
    one, other = open_batches(), open_batches()
    (bad,) = other.poll(1, 0)
    assert taken(one) == [(1000, 1990)]
    assert nothing(one) and not one.exhausted
    other.fail(bad, "rotten")
    assert nothing(one) and one.exhausted
    assert one.failed == {f"{run.id}/batch_0000000000_0000000990.pb": "rotten"}


@pytest.mark.warns("failed: rotten")
@pytest.mark.parametrize("by_another", [False, True])
def test_a_file_that_was_retried_and_completed_has_not_failed(
    put: Callable[..., None], open_batches: Open, run: Run, by_another: bool
):
    put(0, 990)
    put(1000, 1990)
    batches = open_batches()
    bad, good = batches.poll(5, 0)
    batches.fail(bad, "rotten")
    Coordinator(run, "DummyIndexer", step=10).retry_failed()
    assert taken(open_batches() if by_another else batches) == [(0, 990)]
    assert by_another or batches.failed == {}
    batches.done([good])
    assert nothing(batches) and batches.exhausted
    assert batches.failed == {}


@pytest.mark.warns("failed")
def test_a_file_that_vanished_after_it_was_claimed_fails(
    put: Callable[..., None], open_batches: Open, run: Run, tmp_path: Path
):
    put(0, 990)
    batches = open_batches()
    batches.release(batches.poll(5, 0))
    (tmp_path / "storage" / run.id / "batch_0000000000_0000000990.pb").unlink()
    for _ in range(2):
        assert batches.poll(5, 0) == []
        assert "or the file was deleted" in str(batches.failed)


@pytest.mark.warns("Storage .* cannot be reached")
def test_a_storage_that_disappears_for_a_while_does_no_harm(
    put: Callable[..., None], open_batches: Open, gaps: Any, tmp_path: Path, pass_time: Callable[[float], None]
):
    put(0, 990)
    put(2000, 2990)
    batches = open_batches()
    taken(batches)
    shutil.move(tmp_path / "storage", tmp_path / "away")
    pass_time(3600)
    assert nothing(batches) and not batches.exhausted
    assert gaps() == [(1000, 1990, PENDING)], "nobody could look for it"
    shutil.move(tmp_path / "away", tmp_path / "storage")
    put(1000, 1990)
    assert taken(batches) == [(1000, 1990)]


def test_names_that_only_look_like_batches_are_ignored(
    put: Callable[..., None], open_batches: Open, tmp_path: Path, run: Run
):
    put(0, 990)
    folder = tmp_path / "storage" / run.id
    for name in (
        "batch_5_3.pb",
        "batch_-1_3.pb",
        "batch_1_2.pb.tmp",
        "batch_a_b.pb",
        "batch_99999999999999999999_99999999999999999999.pb",
        ".batch_0000001000_0000001990.pb",
        "xbatch_0000001000_0000001990.pb",
    ):
        (folder / name).touch()
    (folder / "batch_0000001000_0000001990.pb").mkdir()
    (folder / "batch_0000002000_0000002990.pb").symlink_to("/etc/passwd")
    assert taken(open_batches()) == [(0, 990)]


def test_duplicates_in_two_folders_and_overlapping_files_are_each_delivered(
    put: Callable[..., None], open_batches: Open, gaps: Any
):
    put(0, 990)
    put(0, 990, "000/000")
    put(500, 1500)
    assert taken(open_batches()) == [(0, 990), (0, 990), (500, 1500)]
    assert gaps() == []


def test_files_that_do_not_fit_the_sampling_interval_are_delivered_and_leave_no_inverted_gap(
    put: Callable[..., None], open_batches: Open, gaps: Any
):
    put(0, 995)
    put(1001, 1007)
    put(1010, 1990)
    assert taken(open_batches()) == [(0, 995), (1001, 1007), (1010, 1990)]
    assert gaps() == []


def test_new_folders_are_found_below_old_ones(put: Callable[..., None], open_batches: Open):
    put(0, 990, "000/000")
    batches = open_batches()
    assert taken(batches) == [(0, 990)]
    put(1000, 1990, "000/001")
    put(2000, 2990, "001/000")
    assert taken(batches) == [(1000, 1990), (2000, 2990)]


def test_waking_ends_a_wait(put: Callable[..., None], open_batches: Open):
    put(0, 990)
    batches = open_batches()
    taken(batches)
    batches.wake()
    assert batches.poll(5, 60) == []


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.warns("failed: rotten")
def test_another_file_with_the_ticks_of_a_failed_one_is_found(
    put: Callable[..., None], open_batches: Open, run: Run, storage: Storage, gaps: Any
):
    put(0, 990)
    put(0, 990, "000")
    batches, clock = open_batches(), Clock()
    batches._watch = Watch(storage, run.id, clock)
    first, copy = batches.poll(5, 0)
    batches.fail(first, "rotten")
    assert gaps() == [], "the copy may be good"
    batches.fail(copy, "rotten")
    assert gaps() == [(0, 990, PENDING)]
    put(0, 990, "001")
    clock.now += 2
    assert taken(batches) == [(0, 990)]
    assert gaps() == []


@pytest.mark.warns("failed: it holds other ticks")
def test_a_name_that_promises_every_tick_hides_no_other_file(put: Callable[..., None], open_batches: Open, gaps: Any):
    for start in range(0, 500, 100):
        put(start, start + 90)
    put(0, 2**63 - 1)
    batches = open_batches()
    hostile, *good = sorted(batches.poll(32, 10), key=lambda delivery: -delivery.ticks.end)
    assert [tuple(one.ticks) for one in sorted(good, key=lambda one: one.ticks)] == [
        (start, start + 90) for start in range(0, 500, 100)
    ]
    batches.fail(hostile, "it holds other ticks")
    batches.done(good)
    put(500, 590)
    assert taken(batches) == [(500, 590)]
    assert gaps() == [(600, (2**63 - 1) // 10 * 10, PENDING)]


def test_the_end_of_the_run_leaves_a_gap_behind_the_last_file(
    put: Callable[..., None], open_batches: Open, gaps: Any, storage: Storage, run: Run
):
    put(0, 990)
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=2990))
    monitor = Monitor("test")
    batches = open_batches(monitor=monitor)
    assert taken(batches) == [(0, 990)]
    assert gaps() == [], "there may be more files"
    assert nothing(batches) and batches.exhausted
    assert gaps() == [(1000, 2990, PENDING)]
    assert monitor.snapshot()["gaps_pending"] == 1
    put(1000, 1990)
    assert taken(batches) == [(1000, 1990)]
    assert gaps() == [(2000, 2990, PENDING)]


def test_the_true_end_of_a_run_that_was_closed_after_a_silence_is_recorded(
    put: Callable[..., None],
    open_batches: Open,
    gaps: Any,
    storage: Storage,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("ticklake.indexers.coordinated._END_SECONDS", 0.0)
    put(0, 990)
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=990, abandoned_by="silence"))
    batches = open_batches()
    assert taken(batches) == [(0, 990)]
    assert nothing(batches) and gaps() == []
    assert storage.remove_completion(storage.read_completion(run.id))
    put(1000, 1990)
    assert taken(batches) == [(1000, 1990)]
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=2990))
    assert nothing(batches)
    assert gaps() == [(2000, 2990, PENDING)]


def test_gaps_that_a_silence_has_excused_are_shown_again_when_the_run_goes_on(
    put: Callable[..., None],
    open_batches: Open,
    gaps: Any,
    storage: Storage,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("ticklake.indexers.coordinated._END_SECONDS", 0.0)
    put(0, 990)
    put(2000, 2990)
    silent = RunCompleted(simulation_run_id=run.id, last_tick=2990, abandoned_by="silence", never_written=[1000, 1990])
    storage.write_completion(silent)
    monitor = Monitor("test")
    batches = open_batches(monitor=monitor)
    assert taken(batches) == [(0, 990), (2000, 2990)]
    assert nothing(batches) and gaps() == []
    assert storage.remove_completion(storage.read_completion(run.id))
    assert nothing(batches) and gaps() == [(1000, 1990, PENDING)]
    assert monitor.snapshot()["gaps_pending"] == 1
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=2990))
    assert nothing(batches) and nothing(open_batches())
    assert gaps() == [(1000, 1990, PENDING)]


def test_an_indexer_that_has_read_an_older_end_records_the_newest(
    put: Callable[..., None], open_batches: Open, gaps: Any, storage: Storage, run: Run
):
    put(0, 990)
    put(2000, 2990)
    silent = RunCompleted(simulation_run_id=run.id, last_tick=2990, abandoned_by="silence", never_written=[1000, 1990])
    storage.write_completion(silent)
    slow = open_batches()
    assert taken(slow) == [(0, 990), (2000, 2990)]
    record = slow._coordinator.record_end

    def record_late(*end: Any) -> bool:
        slow._coordinator.record_end = record
        storage.replace_completion(
            storage.read_completion(run.id), RunCompleted(simulation_run_id=run.id, last_tick=2990)
        )
        assert nothing(open_batches())
        return record(*end)

    slow._coordinator.record_end = record_late
    assert nothing(slow) and slow.exhausted
    assert gaps() == [(1000, 1990, PENDING)]


@pytest.mark.warns("The end of run .* is not known")
def test_an_end_that_cannot_be_read_stops_nothing(
    put: Callable[..., None], open_batches: Open, gaps: Any, tmp_path: Path, run: Run
):
    put(0, 990)
    (tmp_path / "storage" / run.id / "completed.pb").write_bytes(b"no such thing")
    batches = open_batches()
    assert taken(batches) == [(0, 990)]
    assert nothing(batches) and batches.exhausted
    assert gaps() == []


def test_ticks_that_the_table_lacks_are_searched_again(put: Callable[..., None], open_batches: Open, run: Run):
    put(0, 990)
    put(500, 1500)
    put(1600, 1690)
    batches = open_batches()
    taken(batches)
    coordinator = Coordinator(run, "DummyIndexer", step=10)
    coordinator.reopen_missing([TickRange(600, 900)])
    assert taken(batches) == [(0, 990), (500, 1500)]


# A database that stops answering in the middle of a poll


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The first call of a coordinator's method fails as it does when the connection is lost: before it or after it."""

    def cut_off(name: str, *, answered: bool = False) -> None:
        act = getattr(Coordinator, name)
        calls: list[str] = []

        def failing(*args: Any, **values: Any) -> Any:
            calls.append(name)
            if len(calls) > 1:
                return act(*args, **values)
            if answered:
                act(*args, **values)
            raise DatabaseUnavailable(database="the database", reason="the connection was lost")

        monkeypatch.setattr(Coordinator, name, failing)

    return cut_off


def drained(batches: CoordinatedBatches) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while not batches.exhausted:
        deliveries = batches.poll(2, 0)
        batches.done(deliveries)
        found += [tuple(delivery.ticks) for delivery in deliveries]
    return sorted(found)


def make_listing_slow(batches: CoordinatedBatches, storage: Storage, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that takes a second to list, and so is not listed again for nine."""
    entries, clock = storage.entries, Clock()

    def slow(folder: str) -> Any:
        clock.now += 1
        return entries(folder)

    monkeypatch.setattr(storage, "entries", slow)
    batches._watch = Watch(storage, run.id, clock)


@pytest.mark.warns("Waiting for the database")
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("act", ["status", "gaps", "never_claimed", "claim", "complete", "record_end", "failed"])
def test_an_outage_at_any_moment_leaves_no_file_and_no_gap_out(
    put: Callable[..., None],
    open_batches: Open,
    storage: Storage,
    run: Run,
    gaps: Any,
    cut_off: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    answered: bool,
):
    files = [(start, start + 990) for start in range(0, 5000, 1000)]
    for ticks in files:
        put(*ticks)
    storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=5990))
    batches = open_batches()
    make_listing_slow(batches, storage, run, monkeypatch)
    cut_off(act, answered=answered)
    assert drained(batches) == files
    assert {batch.status for batch in Coordinator(run, "DummyIndexer", step=10).batches()} == {"completed"}
    assert gaps() == [(5000, 5990, PENDING)]


@pytest.mark.warns("Waiting for the database")
def test_a_takeover_whose_answer_is_lost_is_delivered(
    put: Callable[..., None], open_batches: Open, cut_off: Callable[..., None]
):
    put(0, 990)
    one, other = open_batches(), open_batches()
    one.release(one.poll(1, 0))
    cut_off("take_over", answered=True)
    assert drained(other) == [(0, 990)]


@pytest.mark.warns("Waiting for the database")
def test_what_is_in_hand_stays_in_hand_after_an_outage(
    put: Callable[..., None], open_batches: Open, cut_off: Callable[..., None]
):
    put(0, 990)
    put(1000, 1990)
    one, other = open_batches(), open_batches()
    held = one.poll(1, 0)
    cut_off("claim", answered=True)
    assert [tuple(delivery.ticks) for delivery in one.poll(1, 0)] == [(1000, 1990)]
    assert nothing(other)
    assert one.renew(held) == []


@pytest.mark.parametrize("kept_by", ["done", "renew"])
def test_a_file_whose_claim_a_server_crash_has_undone_is_claimed_again(
    put: Callable[..., None], open_batches: Open, run: Run, kept_by: str
):
    put(0, 990)
    batches = open_batches()
    held = batches.poll(1, 0)
    assert nothing(batches) and batches.exhausted
    undo_claims(run)
    getattr(batches, kept_by)(held)
    assert drained(batches) == [(0, 990)]


def undo_claims(run: Run) -> None:
    """As a server does that crashes before it has synced them."""
    with run.transaction() as transaction:
        for table in ("coordinator_batches", "coordinator_gaps", "coordinator_frontiers"):
            transaction.execute_script(f"DELETE FROM {table}")


def test_a_claim_made_during_a_look_is_seen_by_who_looks(
    put: Callable[..., None], open_batches: Open, monkeypatch: pytest.MonkeyPatch
):
    put(0, 990)
    one, other = open_batches(), open_batches()
    held: list[Any] = []
    never_claimed = Coordinator.never_claimed

    def slow(self: Coordinator, names: Any) -> Any:
        monkeypatch.setattr(Coordinator, "never_claimed", never_claimed)
        held.extend(other.poll(1, 0))
        return never_claimed(self, names)

    monkeypatch.setattr(Coordinator, "never_claimed", slow)
    assert nothing(one)
    assert held
    assert not one.exhausted, "somebody else has it, and may die"


def test_files_beyond_those_remembered_are_not_forgotten_when_others_have_these(
    put: Callable[..., None], open_batches: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ticklake.indexers.coordinated._MAX_FOUND", 2)
    for start in range(0, 4000, 1000):
        put(start, start + 990)
    one, other = open_batches(), open_batches()
    first = one.poll(1, 0)
    assert taken(other, 1) == [(1000, 1990)]
    one.done(first)
    assert nothing(one)
    assert not one.exhausted
    assert drained(one) == [(2000, 2990), (3000, 3990)]
