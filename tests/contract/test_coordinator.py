"""The coordinator's promises, on every database."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

import pytest

from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator, frontiers
from ticklake.coordination.errors import SamplingIntervalCorrected
from ticklake.coordination.gaps import PENDING, PERMANENT, Gap, MissingTicks
from ticklake.coordination.overview import recorded_gaps
from ticklake.coordination.target import Target
from ticklake.errors import BatchAlreadyClaimedError, InvalidName, InvalidOption
from ticklake.monitoring import Monitor
from ticklake.storage.names import batch_name
from ticklake.ticks import TickRange, merged
from ticklake.topics import Run

Open = Callable[..., Coordinator]
DAY = 86_400
LAST = (2**63 - 1) // 10 * 10


def batch(first: int, last: int) -> FoundFile:
    return FoundFile(batch_name(TickRange(first, last), compressed=False), TickRange(first, last))


def gaps_of(coordinator: Coordinator) -> list[tuple[int, int, str]]:
    return [(*gap.ticks, gap.status) for gap in coordinator.gaps()]


@pytest.fixture
def coordinator(run: Run) -> Open:
    def make(indexer_class: str = "DummyIndexer", step: int = 10, lease: float = 60, **options: object) -> Coordinator:
        return Coordinator(run, indexer_class, step=step, lease=lease, **options)  # type: ignore[arg-type]

    return make


def claim_all(coordinator: Coordinator, *batches: FoundFile) -> None:
    for one in batches:
        coordinator.complete([coordinator.try_claim(one)])


# Claims


def test_a_batch_goes_to_one_indexer_of_a_class(coordinator: Open):
    one, other = coordinator(), coordinator()
    one.try_claim(batch(0, 990))
    with pytest.raises(BatchAlreadyClaimedError, match=r"batch_0000000000_0000000990\.pb is already claimed"):
        other.try_claim(batch(0, 990))


def test_indexer_classes_are_independent(coordinator: Open):
    assert coordinator("EnvironmentIndexer").try_claim(batch(0, 990))
    assert coordinator("OrganismIndexer").try_claim(batch(0, 990))


def test_of_many_racing_threads_one_has_each_batch(coordinator: Open):
    files = [batch(start, start + 90) for start in range(0, 4000, 100)]
    won: list[str] = []
    start = threading.Barrier(4)

    def race() -> None:
        mine = coordinator()
        start.wait()
        while claims := mine.claim(files, 3):
            won.extend(claim.name for claim in claims)
            mine.complete(claims)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == sorted(file.name for file in files)
    assert coordinator().gaps() == []


def test_many_are_claimed_at_once_in_the_order_given(coordinator: Open):
    files = [batch(0, 90), batch(100, 190), batch(200, 290)]
    coordinator().try_claim(files[0])
    assert [claim.name for claim in coordinator().claim(files, 5)] == [files[1].name, files[2].name]
    assert coordinator().claim(files, 5) == []


def test_the_same_batch_twice_in_one_claim_is_claimed_once(coordinator: Open):
    assert len(coordinator().claim([batch(0, 90), batch(0, 90)], 5)) == 1


def test_completing_twice_is_harmless(coordinator: Open):
    one = coordinator()
    claim = one.try_claim(batch(0, 990))
    assert one.complete([claim]) == 1
    assert one.complete([claim]) == 0
    assert [known.status for known in one.batches()] == ["completed"]


def test_a_failed_batch_keeps_its_error_and_is_not_claimed_again(coordinator: Open, pass_time: Callable[[float], None]):
    one = coordinator()
    assert one.fail(one.try_claim(batch(0, 990)), "bad bytes \x00 at 17")
    pass_time(DAY)
    assert one.status().expired == 0
    assert one.claim([batch(0, 990)], 1) == []
    assert [(known.status, known.error) for known in one.failed()] == [("failed", "bad bytes \\x00 at 17")]
    assert gaps_of(one) == [(0, 990, PENDING)], "its ticks are missing"


def test_a_failed_batch_gets_another_try_when_asked_for(coordinator: Open):
    one = coordinator()
    one.fail(one.try_claim(batch(0, 990)), "bad")
    assert one.retry_failed() == [batch(0, 990).name]
    assert [claim.name for claim in coordinator().take_over(5)] == [batch(0, 990).name]


def test_a_name_is_needed_before_anything_can_be_claimed(run: Run):
    with pytest.raises(InvalidName, match="indexer class"):
        Coordinator(run, " ", step=1)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"step": 0}, "sampling_interval"), ({"step": -10}, "sampling_interval"), ({"lease": 0}, "claim_timeout")],
)
def test_options_without_sense_are_refused(coordinator: Open, options: dict[str, int], name: str):
    with pytest.raises(InvalidOption, match=name):
        coordinator(**options)


def test_the_tables_are_made_once_a_schema(run: Run, coordinator: Open):
    coordinator(), coordinator("Other")
    with run.reading() as transaction:
        ((versions,),) = transaction.execute(
            "SELECT count(*) FROM schema_versions WHERE package = 'ticklake.coordination' AND version = 1", {}
        )
    assert versions == 1


# Leases


@pytest.mark.warns("STUCK_BATCH_REASSIGNED")
def test_the_batch_of_a_dead_indexer_is_taken_over(coordinator: Open, pass_time: Callable[[float], None]):
    dead, living = coordinator(lease=60), coordinator(lease=60)
    stale = dead.try_claim(batch(0, 990))
    assert living.take_over(5) == []
    pass_time(61)
    assert living.status().expired == 1
    (claim,) = living.take_over(5)
    assert (claim.ticks, claim.version) == (TickRange(0, 990), 2)
    assert dead.complete([stale]) == 0, "a claim that was taken over"
    assert dead.renew([stale]) == [stale]
    assert living.complete([claim]) == 1


def test_a_renewed_lease_holds(coordinator: Open, pass_time: Callable[[float], None]):
    one = coordinator(lease=60)
    claim = one.try_claim(batch(0, 990))
    for _ in range(3):
        pass_time(50)
        assert one.renew([claim]) == []
    assert coordinator(lease=60).take_over(5) == []


def test_work_whose_lease_ran_out_counts_if_nobody_took_it_over(coordinator: Open, pass_time: Callable[[float], None]):
    one = coordinator(lease=60)
    claim = one.try_claim(batch(0, 990))
    pass_time(DAY)
    assert one.complete([claim]) == 1


def test_what_is_given_back_goes_to_the_next_at_once(coordinator: Open):
    one = coordinator()
    one.release([one.try_claim(batch(0, 990))])
    assert [claim.name for claim in coordinator().take_over(5)] == [batch(0, 990).name]


def test_a_claim_that_a_crash_has_undone_changes_nothing_when_another_has_its_version(coordinator: Open, run: Run):
    one, other = coordinator(), coordinator()
    stale = one.try_claim(batch(0, 990))
    with run.transaction() as transaction:  # a server that crashes undoes claims that it has not synced
        transaction.execute_script("DELETE FROM coordinator_batches")
    claim = other.try_claim(batch(0, 990))
    assert claim == stale
    assert not one.fail(stale, "bad")
    assert one.complete([stale]) == 0
    one.release([stale])
    one.release_except([])
    assert one.renew([stale]) == [stale]
    assert one.claimed_except([stale]) == 1
    assert other.claimed_except([claim]) == 0
    assert other.complete([claim]) == 1


def test_nobody_can_give_back_or_renew_what_another_holds(coordinator: Open):
    one, other = coordinator(), coordinator()
    claim = one.try_claim(batch(0, 990))
    other.release([claim])
    assert other.renew([claim]) == [claim]
    assert other.take_over(5) == []


@pytest.mark.warns("STUCK_BATCH_REASSIGNED")
def test_a_claim_from_the_future_is_taken_over(coordinator: Open, pass_time: Callable[[float], None]):
    """The clock of the database's machine was a day ahead and has been set right."""
    pass_time(DAY)
    coordinator(lease=60).try_claim(batch(0, 990))
    pass_time(-DAY)
    assert len(coordinator(lease=60).take_over(5)) == 1


# Gaps


def test_contiguous_batches_of_any_size_leave_no_gap(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(1000, 1420), batch(1430, 2580))
    assert (one.gaps(), one.frontier()) == ([], 2580)


def test_a_batch_at_2000_after_1420_leaves_1430_to_1990(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(1000, 1420), batch(2000, 2990))
    assert gaps_of(one) == [(1430, 1990, PENDING)]


def test_out_of_order_arrival_is_filled(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(1000, 1990), batch(2000, 2990))
    assert gaps_of(one) == [(0, 990, PENDING)]
    claim_all(one, batch(0, 990))
    assert (one.gaps(), one.frontier()) == ([], 2990)


def test_a_batch_inside_a_gap_splits_it(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 999), batch(3000, 3990))
    assert gaps_of(one) == [(1009, 2990, PENDING)]
    claim_all(one, batch(1500, 1800))
    assert gaps_of(one) == [(1009, 1490, PENDING), (1810, 2990, PENDING)]


@pytest.mark.warns("Permanent gap in DummyIndexer")
def test_a_gap_that_is_never_filled_becomes_permanent_once(coordinator: Open, pass_time: Callable[[float], None]):
    monitor = Monitor("test")
    one = coordinator(monitor=monitor)
    claim_all(one, batch(2000, 2990))
    pass_time(5)
    assert one.make_permanent(60_000) == []
    pass_time(56)
    assert [gap.ticks for gap in one.make_permanent(60_000)] == [TickRange(0, 1990)]
    assert one.make_permanent(60_000) == []
    assert one.oldest_pending_gap() is None
    assert gaps_of(one) == [(0, 1990, PERMANENT)]
    assert monitor.snapshot()["permanent_gaps_detected"] == 1


@pytest.mark.warns("Permanent gap")
def test_late_data_fills_a_permanent_gap(coordinator: Open, pass_time: Callable[[float], None]):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(3000, 3990))
    pass_time(61)
    one.make_permanent(60_000)
    claim_all(one, batch(1000, 1990))
    assert gaps_of(one) == [(2000, 2990, PERMANENT)]
    claim_all(one, batch(2000, 2990))
    assert one.gaps() == []


def test_what_is_left_of_a_gap_is_as_old_as_the_gap(coordinator: Open, pass_time: Callable[[float], None]):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(9000, 9990))
    ((_, detected, _),) = one.gaps()
    pass_time(40)
    claim_all(one, batch(5000, 5990))
    assert [gap.first_detected_ms for gap in one.gaps()] == [pytest.approx(detected, abs=1)] * 2


@pytest.mark.warns("Permanent gap")
def test_a_gap_from_the_future_does_not_stay_young_for_ever(coordinator: Open, pass_time: Callable[[float], None]):
    pass_time(DAY)
    one = coordinator()
    claim_all(one, batch(1000, 1990))
    pass_time(-DAY)
    assert len(one.make_permanent(60_000)) == 1


def test_the_oldest_pending_gap_is_the_one_with_the_lowest_ticks(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(1000, 1990), batch(3000, 3990))
    gap = one.oldest_pending_gap()
    assert isinstance(gap, Gap) and gap.ticks == TickRange(0, 990)


def test_a_late_batch_below_the_frontier_records_nothing(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(1000, 1990), batch(500, 1500))
    assert (one.gaps(), one.frontier()) == ([], 1990)


def test_a_batch_over_several_gaps_and_the_frontier_closes_what_it_covers(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(100, 190), batch(300, 390), batch(500, 590), batch(50, 700))
    assert (gaps_of(one), one.frontier()) == ([(0, 40, PENDING)], 700)


def test_duplicates_in_two_folders_are_two_batches_and_no_gap(coordinator: Open):
    one = coordinator()
    copy = FoundFile(f"000/{batch(0, 990).name}", TickRange(0, 990))
    claim_all(one, batch(0, 990), copy)
    assert (len(one.batches()), one.gaps()) == (2, [])


def test_ticks_as_large_as_they_can_be_do_no_harm(coordinator: Open):
    one = coordinator(step=2**31 - 1)
    claim_all(one, batch(2**63 - 2, 2**63 - 1), batch(0, 5))
    assert one.frontier() == 2**63 - 1


def test_racing_indexers_agree_on_the_frontier_and_the_gaps(coordinator: Open):
    """All files but every seventh, claimed by many at once in different orders: each hole is one gap."""
    files = [batch(start, start + 90) for start in range(0, 7000, 100)]
    there = [file for number, file in enumerate(files) if number % 7 != 3]

    def race(order: Sequence[FoundFile]) -> None:
        mine = coordinator()
        while claims := mine.claim(order, 4):
            mine.complete(claims)

    orders = [there, there[::-1], there[30:] + there[:30], there[::2] + there[1::2]]
    threads = [threading.Thread(target=race, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holes = [(*file.ticks, PENDING) for number, file in enumerate(files) if number % 7 == 3]
    assert gaps_of(coordinator()) == holes
    assert coordinator().frontier() == 6990


# Batches that fail


def test_the_ticks_of_a_failed_batch_are_a_gap_except_those_that_another_has(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 290), batch(1000, 1990))
    one.fail(one.try_claim(batch(200, 490)), "bad")
    assert (gaps_of(one), one.frontier()) == ([(300, 490, PENDING), (500, 990, PENDING)], 1990)
    claim_all(one, batch(300, 990))
    assert one.gaps() == []


def test_the_frontier_goes_back_when_the_batch_that_moved_it_fails(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990))
    one.fail(one.try_claim(batch(0, 2**63 - 1)), "its name promises what no file can hold")
    assert (gaps_of(one), one.frontier()) == ([(1000, LAST, PENDING)], 990)
    claim_all(one, batch(2000, 2990))
    assert (gaps_of(one)[0], one.frontier()) == ((1000, 1990, PENDING), 2990)


@pytest.mark.warns("Permanent gap")
def test_a_gap_that_only_a_wrong_name_tells_of_does_not_hide_the_next_gap(
    coordinator: Open, pass_time: Callable[[float], None]
):
    one = coordinator()
    one.fail(one.try_claim(batch(0, 2**63 - 1)), "bad")
    pass_time(61)
    one.make_permanent(60_000)
    claim_all(one, batch(0, 990), batch(2000, 2990))
    assert gaps_of(one) == [(1000, 1990, PENDING), (3000, LAST, PERMANENT)]


def test_a_failed_batch_that_is_tried_again_is_no_gap_any_more(coordinator: Open):
    one = coordinator()
    one.fail(one.try_claim(batch(500, 990)), "bad")
    assert (gaps_of(one), one.frontier()) == ([(0, 490, PENDING), (500, 990, PENDING)], None)
    one.retry_failed()
    assert (gaps_of(one), one.frontier()) == ([(0, 490, PENDING)], 990)


# The end of a run


@pytest.mark.warns("Permanent gap in DummyIndexer .*: 1,000–1,990")
def test_a_missing_tail_is_a_gap_like_any_other(coordinator: Open, pass_time: Callable[[float], None]):
    monitor = Monitor("test")
    one = coordinator(monitor=monitor)
    claim_all(one, batch(0, 990))
    assert one.record_end(1990)
    assert (gaps_of(one), one.frontier()) == ([(1000, 1990, PENDING)], 1990)
    assert not one.record_end(1990), "that was known"
    pass_time(61)
    one.make_permanent(60_000)
    assert (gaps_of(one), monitor.snapshot()["permanent_gaps_detected"]) == ([(1000, 1990, PERMANENT)], 1)
    claim_all(one, batch(1000, 1990))
    assert one.gaps() == []


def test_a_run_of_which_no_file_is_there_lacks_all_of_it(coordinator: Open):
    one = coordinator()
    one.record_end(990)
    assert gaps_of(one) == [(0, 990, PENDING)]


@pytest.mark.parametrize("last_tick", [-1, -(2**63), 500, 990, 995])
def test_an_end_before_the_last_file_leaves_no_gap(coordinator: Open, last_tick: int):
    one = coordinator()
    claim_all(one, batch(0, 990))
    one.record_end(last_tick)
    assert one.gaps() == []


def test_an_end_as_late_as_can_be_does_no_harm(coordinator: Open):
    one = coordinator(step=1)
    claim_all(one, batch(0, 9))
    one.record_end(2**63 - 1)
    assert gaps_of(one) == [(10, 2**63 - 1, PENDING)]
    claim_all(one, batch(10, 2**63 - 1))
    assert (one.gaps(), one.frontier()) == ([], 2**63 - 1)


def test_a_failed_last_file_of_a_run_that_has_ended_is_a_gap(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990))
    one.fail(one.try_claim(batch(1000, 1990)), "bad")
    one.record_end(1990)
    assert (gaps_of(one), one.frontier()) == ([(1000, 1990, PENDING)], 1990)


@pytest.mark.parametrize("known", [False, True], ids=["new", "known before"])
def test_ticks_that_were_never_written_to_an_abandoned_run_are_no_gap(coordinator: Open, known: bool):
    one = coordinator()
    claim_all(one, batch(0, 90), batch(200, 290))
    if known:
        one.record_end(390)
    assert one.record_end(390, [TickRange(100, 150), TickRange(300, 390)])
    assert (gaps_of(one), one.frontier()) == ([(160, 190, PENDING)], 390)


@pytest.mark.parametrize("last_tick", [None, 290, 390, 250])
def test_ticks_that_a_silence_has_excused_are_gaps_again_when_the_true_end_is_known(
    coordinator: Open, last_tick: int | None
):
    one = coordinator()
    claim_all(one, batch(0, 90), batch(200, 290))
    one.record_end(290, [TickRange(100, 190)])
    assert one.gaps() == []
    assert one.record_end(last_tick)
    tail = [(300, 390, PENDING)] if last_tick == 390 else []
    assert (gaps_of(one), one.frontier()) == ([(100, 190, PENDING), *tail], 390 if tail else 290)
    assert not one.record_end(last_tick), "that was known"


def ticks_of(one: Coordinator) -> list[tuple[int, int]]:
    return [tuple(gap.ticks) for gap in one.gaps()]


ENDS: list[tuple[int | None, list[TickRange]]] = [
    *((None, []), (-1, []), (90, []), (290, []), (790, [])),
    *((290, [TickRange(100, 190)]), (590, [TickRange(100, 190), TickRange(300, 390)])),
]


def test_the_gaps_are_those_of_the_last_recorded_end_whatever_was_recorded_before(run: Run):
    def made(name: str) -> Coordinator:
        one = Coordinator(run, name, step=10)
        claim_all(one, batch(0, 90), batch(200, 290))
        one.fail(one.try_claim(batch(350, 590)), "bad")
        return one

    last = {number: made(f"Only{number}") for number in range(len(ENDS))}
    for number, end in enumerate(ENDS):
        last[number].record_end(*end)
    for before, after in itertools.product(range(len(ENDS)), repeat=2):
        one = made(f"Both{before}and{after}")
        one.record_end(*ENDS[before])
        assert one.record_end(*ENDS[after]) == (ENDS[before] != ENDS[after])
        expected = last[after]
        assert (missing_in(one), one.frontier()) == (missing_in(expected), expected.frontier()), (before, after)


def missing_in(one: Coordinator) -> list[TickRange]:
    return merged([gap.ticks for gap in one.gaps()], 10)


def test_an_end_that_was_too_late_leaves_no_gap_behind(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 90))
    one.fail(one.try_claim(batch(500, 590)), "bad")
    one.record_end(990)
    assert (ticks_of(one), one.frontier()) == ([(100, 490), (500, 590), (600, 990)], 990)
    for last_tick, frontier in ((190, 190), (None, 90)):
        assert one.record_end(last_tick)
        # The failed file still promises its ticks, and nobody has those before it.
        assert (ticks_of(one), one.frontier()) == ([(100, 490), (500, 590)], frontier)


def test_ticks_that_were_never_written_are_no_gap_if_the_table_lacks_them(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(200, 290))
    one.record_end(290, [TickRange(0, 190)])
    assert one.reopen_missing([TickRange(0, 190)]) == []
    assert gaps_of(one) == []


def test_a_bad_file_with_ticks_that_were_never_written_is_a_gap(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 90), batch(200, 290))
    one.fail(one.try_claim(batch(120, 150)), "it came after the run was closed, and is bad")
    one.record_end(290, [TickRange(100, 190)])
    assert gaps_of(one) == [(120, 150, PENDING)]


def test_excused_ticks_stay_excused_if_the_sampling_interval_is_corrected(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 80), batch(200, 280))
    one.record_end(280, [TickRange(90, 190)])
    other = coordinator(step=20)
    other.register(lambda *_: None)
    assert other.gaps() == []
    assert other.record_end(280)
    assert gaps_of(other) == [(100, 180, PENDING)]


def test_a_node_releases_what_its_ended_processes_have_claimed(coordinator: Open):
    dead, other, alive = (coordinator(instance=f"{life}:1") for life in ("node-a/1", "node-ab/1", "node-a/2"))
    for holder, start in ((dead, 0), (other, 100), (alive, 200)):
        holder.try_claim(batch(start, start + 90))
    assert coordinator(instance="node-a/2:2").release_earlier("node-a/2") == 1
    assert [claim.ticks.start for claim in alive.take_over(10)] == [0]


# One table each


def no_table_at(location: str, own: str) -> None:
    """There is no table at any location."""


def table(name: str, location: str = "file:///lake", host: str = "here") -> Target:
    return Target(name, location, host)


def test_tables_are_independent(coordinator: Open):
    one, other = coordinator(table=table("1", "file:///a")), coordinator(table=table("2", "file:///b"))
    for each in (one, other):
        each.register(no_table_at)
        assert each.try_claim(batch(0, 990))
        each.fail(each.try_claim(batch(2000, 2990)), "bad")
    one.retry_failed()
    assert (len(one.failed()), len(other.failed())) == (0, 1)
    assert (gaps_of(one), gaps_of(other)) == (
        [(1000, 1990, PENDING)],
        [(1000, 1990, PENDING), (2000, 2990, PENDING)],
    )


def test_what_was_recorded_before_tables_had_ids_becomes_the_first_tables(coordinator: Open):
    before = coordinator()
    claim_all(before, batch(0, 990), batch(2000, 2990))
    before.fail(before.try_claim(batch(0, 2**63 - 1)), "bad")
    one, other = coordinator(table=table("1", "file:///a")), coordinator(table=table("2", "file:///b"))
    one.register(no_table_at)
    other.register(no_table_at)
    assert one.claim([batch(0, 990)], 1) == [] and other.claim([batch(0, 990)], 1)
    assert (gaps_of(one)[0], one.frontier(), len(one.failed())) == ((1000, 1990, PENDING), 2990, 1)
    assert (coordinator().batches(), coordinator().gaps(), coordinator().frontier()) == ([], [], None)


def test_a_table_that_is_made_anew_in_its_place_starts_anew(coordinator: Open, run: Run):
    old = coordinator(table=table("1"))
    old.register(no_table_at)
    claim_all(old, batch(0, 990), batch(2000, 2990))
    new = coordinator(table=table("2"))
    new.register(no_table_at)
    assert (new.batches(), new.gaps(), new.frontier()) == ([], [], None)
    claim_all(new, batch(0, 990))
    assert frontiers(run) == {("DummyIndexer", "2"): 990}, "nothing is left of the old one"


def test_a_table_on_another_machine_is_another_place(coordinator: Open):
    one, other = coordinator(table=table("1", host="a")), coordinator(table=table("2", host="b"))
    for each in (one, other):
        each.register(no_table_at)
        claim_all(each, batch(0, 990))
    assert len(one.batches()) == len(other.batches()) == 1


# What a table lacks


def test_completed_batches_that_the_table_lacks_are_indexed_again(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(1000, 1990), batch(2000, 2990))
    assert one.reopen_missing([TickRange(1500, 1600)]) == [batch(1000, 1990).name]
    assert [claim.name for claim in coordinator().take_over(5)] == [batch(1000, 1990).name]


def test_ticks_that_no_batch_covers_become_gaps_and_those_behind_the_frontier_do_not(coordinator: Open):
    one = coordinator()
    claim_all(one, batch(0, 990), batch(2000, 2990))
    one.reopen_missing([TickRange(900, 4000)])
    assert gaps_of(one) == [(1000, 1990, PENDING)]


def test_failed_batches_stay_failed_and_another_file_with_their_ticks_is_looked_for(coordinator: Open):
    one = coordinator()
    one.fail(one.try_claim(batch(0, 990)), "bad")
    assert one.reopen_missing([TickRange(0, 990)]) == []
    assert (len(one.failed()), gaps_of(one)) == (1, [(0, 990, PENDING)])
    one.retry_failed()
    assert (len(one.take_over(5)), one.gaps()) == (1, [])


def test_what_is_under_way_stays_with_who_has_it_when_the_table_lacks_it(coordinator: Open):
    one = coordinator()
    claim = one.try_claim(batch(0, 990))
    assert one.reopen_missing([TickRange(0, 990)]) == []
    assert one.renew([claim]) == []
    assert one.gaps() == []


# Metrics


def test_what_happens_is_counted(coordinator: Open):
    monitor = Monitor("test")
    one = coordinator(monitor=monitor)
    claim_all(one, batch(1000, 1990), batch(0, 990))
    one.fail(one.try_claim(batch(2000, 2990)), "bad")
    assert one.claim([batch(0, 990)], 1) == []
    numbers = monitor.snapshot()
    assert {name: numbers[name] for name in ("claim_attempts", "claim_successes", "claim_success_rate")} == {
        "claim_attempts": 4,
        "claim_successes": 3,
        "claim_success_rate": 0.75,
    }
    assert (numbers["batches_claimed"], numbers["batches_completed"], numbers["batches_failed"]) == (3, 2, 1)
    assert numbers["gaps_released"] == 1
    assert "try_claim_latency_p95_ms" in numbers and "mark_completed_latency_p95_ms" in numbers


def test_frontiers_tell_who_is_coordinated(run: Run, coordinator: Open):
    claim_all(coordinator("A"), batch(0, 990))
    claim_all(coordinator("B"), batch(0, 490))
    assert frontiers(run) == {("A", ""): 990, ("B", ""): 490}


def test_a_file_with_very_many_holes_is_one_gap_until_it_is_mended(coordinator: Open) -> None:
    """The metadata of a run say that every tick is sampled, and every tenth is."""
    one, found = coordinator(step=1), batch(0, 2000)
    lacks = tuple(TickRange(tick + 1, tick + 9) for tick in range(0, 2000, 10))

    def complete_again(lacks: Sequence[TickRange]) -> None:
        assert one.reopen_missing([TickRange(10, 10)], [found.name]) == [found.name]
        one.complete(one.take_over(1), {found.name: MissingTicks(tuple(lacks), "stamp")})

    one.complete([one.try_claim(found)], {found.name: MissingTicks(lacks, "stamp")})
    assert gaps_of(one) == [(1, 1999, PENDING)]
    assert [known.missing.ranges for known in one.batches()] == [lacks], "what it has is known all the same"
    complete_again(lacks)
    assert gaps_of(one) == [(1, 1999, PENDING)]
    one.try_claim(batch(5, 25))
    assert gaps_of(one) == [(1, 4, PENDING), (26, 1999, PENDING)]
    complete_again(lacks[1:])
    assert gaps_of(one) == [(26, 1989, PENDING), (1991, 1999, PENDING)]
    complete_again(lacks[-2:])
    assert gaps_of(one) == [(1981, 1989, PENDING), (1991, 1999, PENDING)]
    complete_again([])
    assert gaps_of(one) == []


def test_recorded_gaps_are_those_of_the_tables_asked_for(run: Run, pass_time: Callable[[float], None]) -> None:
    for table, last in (("a", 990), ("b", 1990)):
        one = Coordinator(run, "OneIndexer", step=10, table=Target(table))
        one.claim([batch(last + 10, 3000)], 9)
    assert sorted(one.table_id for one in recorded_gaps(run)) == ["a", "b"]
    (found,) = recorded_gaps(run, ["b", "c"])
    assert (found.indexer_class, found.ticks, found.status) == ("OneIndexer", TickRange(0, 1990), PENDING)
    assert found.age_ms >= 0
    pass_time(-3600)
    (found,) = recorded_gaps(run, ["b"])
    assert found.age_ms >= 0, "the clock was set back"
    assert recorded_gaps(run, []) == []


# A corrected sampling interval


def holes(first: int, last: int, every: int = 10) -> MissingTicks:
    """What a file of every tenth tick lacks if each tick is expected."""
    ranges = [TickRange(tick + 1, tick + every - 1) for tick in range(first, last, every)]
    return MissingTicks(tuple(ranges), "a stamp")


def complete(coordinator: Coordinator, file: FoundFile, missing: MissingTicks) -> None:
    coordinator.complete([coordinator.try_claim(file)], {file.name: missing})


@pytest.mark.parametrize("last", [90, 2000])
def test_a_corrected_sampling_interval_leaves_only_real_gaps(coordinator: Open, last: int):
    wrong = coordinator(step=1)
    lacks = holes(0, last)
    complete(wrong, batch(0, last), lacks._replace(ranges=(*lacks.ranges[:3], TickRange(31, 49), *lacks.ranges[5:])))
    complete(wrong, batch(last + 20, last + 90), holes(last + 20, last + 90))
    assert wrong.status().gaps_pending > 2
    right = coordinator(step=10)
    right.register(lambda *_: None)
    assert gaps_of(right) == [(40, 40, PENDING), (last + 10, last + 10, PENDING)]
    assert right.status().gaps_pending == 2
    assert [(one.ticks, one.missing.ranges) for one in right.incomplete()] == [
        (TickRange(0, last), (TickRange(40, 40),))
    ]
    assert right.reopen_missing([TickRange(0, 90)]) == [batch(0, last).name]


def test_a_gap_keeps_its_age_and_status_when_the_sampling_interval_is_corrected(
    coordinator: Open, pass_time: Callable[[float], None], caplog: pytest.LogCaptureFixture
):
    wrong = coordinator(step=1)
    claim_all(wrong, batch(0, 90), batch(200, 290))
    pass_time(61)
    with caplog.at_level("ERROR", "ticklake"):
        wrong.make_permanent(60_000)
    claim_all(wrong, batch(400, 490))
    (old, young) = wrong.gaps()
    right = coordinator(step=10)
    right.register(lambda *_: None)
    assert right.gaps() == [old._replace(ticks=TickRange(100, 190)), young._replace(ticks=TickRange(300, 390))]


def test_files_that_were_read_on_a_coarser_grid_are_read_again(coordinator: Open):
    wrong = coordinator(step=20)
    claim_all(wrong, batch(0, 80), batch(100, 180))
    wrong.fail(wrong.try_claim(batch(200, 280)), "bad")
    right = coordinator(step=10)
    assert [one.name for one in right.take_over(9)] == [batch(0, 80).name, batch(100, 180).name]
    assert gaps_of(right) == [(90, 90, PENDING), (190, 190, PENDING), (200, 280, PENDING)]


def test_an_indexer_with_an_outdated_sampling_interval_changes_nothing(coordinator: Open):
    old = coordinator(step=1)
    claim = old.try_claim(batch(0, 90))
    new = coordinator(step=10)
    claim_all(new, batch(100, 190))
    for act in (
        lambda: old.complete([claim], {claim.name: holes(0, 90)}),
        lambda: old.fail(claim, "bad"),
        lambda: old.claim([batch(500, 590)], 1),
        lambda: old.record_end(500),
    ):
        with pytest.raises(
            SamplingIntervalCorrected, match=r"was corrected to 10, but this DummyIndexer still uses 1\."
        ):
            act()
    assert gaps_of(new) == []
    old.release([claim])
    (taken,) = new.take_over(9)
    assert new.complete([taken]) == 1


def test_records_without_a_sampling_interval_are_put_on_the_grid(coordinator: Open, run: Run):
    complete(coordinator(step=1), batch(0, 90), holes(0, 90))
    with run.transaction() as transaction:
        transaction.execute("UPDATE coordinator_frontiers SET step = NULL", {})
    late = coordinator(step=10)
    claim_all(late, batch(100, 190))
    assert (gaps_of(late), late.incomplete()) == ([], [])
    assert [one.status for one in late.batches()] == ["completed"] * 2
