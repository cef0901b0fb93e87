"""What every run still has to do is found, against what the test has sent and acknowledged, on every database."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ticklake import BatchInfo, Database, RunCompleted
from ticklake.coordination import Coordinator, FoundFile
from ticklake.errors import DatabaseUnavailable
from ticklake.insights import Backlog, BacklogReport, Backlogs, backlogs
from ticklake.ticks import TickRange
from ticklake.topics import Run

pytestmark = pytest.mark.warns("DEAD_LETTER", "Permanent gap")
TOPIC = "batch-topic"
Eventually = Callable[..., None]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with Database(database_url) as opened:
        yield opened


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass
class Truth:
    """What was done to the runs of this test, which are newer than those of tests before it: they share a server."""

    database: Database
    prefix: str = field(default_factory=lambda: f"{time.time_ns():020}")
    waiting: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def name(self, number: int) -> str:
        return f"99991101-120000-{self.prefix}-{number:05}"

    def run(self, number: int) -> Run:
        return self.database.run(self.name(number))

    def send(self, number: int, count: int, groups: tuple[str, ...] = ("indexer",)) -> None:
        for group in groups:
            self.run(number).reader(TOPIC, group=group).close()
        with self.run(number).writer(TOPIC) as writer:
            writer.send_many([BatchInfo(tick_start=at) for at in range(count)])
        for group in groups:
            self.waiting[self.name(number), group] += count

    def work(self, number: int, done: int, failed: int = 0, group: str = "indexer") -> None:
        with self.run(number).reader(TOPIC, group=group, max_delivery_attempts=1) as reader:
            messages = reader.poll_many(done + failed, 5)
            assert len(messages) == done + failed
            assert all(reader.ack_many(messages[:done]))
            for message in messages[done:]:
                assert reader.fail(message, "broken")
        self.waiting[self.name(number), group] -= done + failed
        self.dead[self.name(number), group] += failed

    def own(self, report: BacklogReport) -> dict[str, Backlog]:
        return {one.run_id: one for one in report.runs if self.prefix in one.run_id}

    def expected(self) -> dict[tuple[str, str], tuple[int, int]]:
        keys = {*self.waiting, *self.dead}
        found = {key: (self.waiting[key], self.dead[key]) for key in keys}
        return {key: counts for key, counts in found.items() if any(counts)}

    def check(self, report: BacklogReport) -> None:
        found = {
            (run_id, one.group): (one.lag, one.dead_letters)
            for run_id, backlog in self.own(report).items()
            for one in backlog.groups
        }
        assert found == self.expected()


@pytest.fixture
def truth(database: Database) -> Truth:
    return Truth(database)


@pytest.fixture
def looks(database: Database, clock: Clock) -> Backlogs:
    return Backlogs(lambda: [database], clock)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were read, in this order."""
    read: list[str] = []
    original = backlogs.backlog_of

    def counted(run: Run, *files: object) -> Backlog | None:
        read.append(run.id)
        return original(run)

    monkeypatch.setattr(backlogs, "backlog_of", counted)
    return read


def settle(truth: Truth, looks: Backlogs, opened: list[str], eventually: Eventually) -> None:
    """Waits until a look reads no run of this test any more."""

    def is_calm() -> bool:
        opened.clear()
        looks.look()
        return not any(truth.prefix in run_id for run_id in opened)

    eventually(is_calm)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_every_run_is_counted_whatever_happens_to_it(
    truth: Truth, looks: Backlogs, seed: int, eventually: Eventually
) -> None:
    chance = random.Random(seed)
    groups = ("indexer", "audit")
    for number in range(4):
        truth.send(number, chance.randrange(1, 9), groups)
    truth.check(looks.look_at_all(60))
    for _ in range(8):
        number, group = chance.randrange(4), chance.choice(groups)
        left = truth.waiting[truth.name(number), group]
        if left and chance.random() < 0.7:
            failed = chance.randrange(2)
            truth.work(number, chance.randint(1 - failed, left - failed), failed, group)
        else:
            truth.send(number, chance.randrange(1, 5), groups)

    def is_true() -> bool:  # a server counts writes a moment later
        try:
            truth.check(looks.look())
        except AssertionError:
            return False
        return True

    eventually(is_true)


def test_what_is_done_is_no_backlog_and_costs_nothing(
    truth: Truth, looks: Backlogs, opened: list[str], eventually: Eventually
) -> None:
    for number in range(5):
        truth.send(number, 2)
        truth.work(number, 2)
    settle(truth, looks, opened, eventually)
    assert truth.own(looks.look()) == {}
    truth.send(3, 4)
    eventually(lambda: set(truth.own(looks.look())) == {truth.name(3)})
    if truth.database.url.startswith("sqlite"):  # a server may still count what was written before
        assert {run_id for run_id in opened if truth.prefix in run_id} == {truth.name(3)}


def test_a_look_reads_a_bounded_number_of_new_runs_and_says_how_many_are_left(
    truth: Truth, looks: Backlogs, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "OPENED", 3)
    for number in range(8):
        truth.send(number, 1)
    report = looks.look()
    total = len(truth.database.runs())
    assert opened == [truth.name(number) for number in (7, 6, 5)], "the newest first"
    assert (report.checked, report.unchecked) == (3, total - 3)
    opened.clear()
    report = looks.look()
    assert [truth.name(number) for number in (4, 3, 2)] == opened[:3]
    assert report.unchecked == total - 6
    report = looks.look()
    assert set(truth.own(report)) == {truth.name(number) for number in range(8)}


def test_more_changed_runs_than_a_look_reads_are_read_by_the_next_ones(
    truth: Truth, looks: Backlogs, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    for number in range(7):
        truth.send(number, 2)
    looks.look_at_all(60)
    monkeypatch.setattr(backlogs, "OPENED", 2)
    for number in range(7):
        truth.work(number, 2)
    eventually(lambda: truth.own(looks.look()) == {})


def test_unchanged_runs_are_asked_in_turns(
    truth: Truth, looks: Backlogs, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, opened: list[str]
) -> None:
    for number in range(7):
        truth.send(number, 1)
        truth.work(number, 1)
    settle(truth, looks, opened, eventually)
    monkeypatch.setattr(backlogs, "STAMPED", 2)
    for number in range(7):
        truth.send(number, number + 1)
    eventually(lambda: len(truth.own(looks.look())) == 7)
    eventually(lambda: all(truth.own(looks.look())[truth.name(at)].messages == at + 1 for at in range(7)))


def test_ages_grow_without_another_read(
    truth: Truth, looks: Backlogs, clock: Clock, opened: list[str], eventually: Eventually
) -> None:
    if not truth.database.url.startswith("sqlite"):
        pytest.skip("a server may still count what was written before")
    truth.send(1, 2)
    settle(truth, looks, opened, eventually)
    before = truth.own(looks.look())[truth.name(1)].oldest_seconds
    clock.now += backlogs.REFRESH_SECONDS - 1
    opened.clear()
    after = truth.own(looks.look())[truth.name(1)].oldest_seconds
    assert before is not None and after == pytest.approx(before + backlogs.REFRESH_SECONDS - 1)
    assert truth.name(1) not in opened
    clock.now += 2
    looks.look()
    assert truth.name(1) in opened, "a claim may have expired"


def test_a_run_that_does_not_answer_for_a_moment_does_not_get_younger(
    truth: Truth, looks: Backlogs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth.send(1, 1)
    looks.look()

    def away(run: Run, *files: object) -> Backlog | None:
        if run.id == truth.name(1):
            raise DatabaseUnavailable(database="x", reason="it does not answer")
        return None

    monkeypatch.setattr(backlogs, "backlog_of", away)
    clock.now += 5000
    report = looks.look()
    assert [one for one in report.unreadable if truth.name(1) in one]
    assert (truth.own(report)[truth.name(1)].oldest_seconds or 0) >= 5000


def test_the_oldest_is_the_worst(truth: Truth, looks: Backlogs) -> None:
    truth.send(2, 1)
    truth.send(1, 500)
    truth.send(3, 1)
    truth.work(3, 0, failed=1)
    assert list(truth.own(looks.look_at_all(60))) == [truth.name(2), truth.name(1), truth.name(3)]


def test_a_deleted_run_is_forgotten(
    database: Database, truth: Truth, looks: Backlogs, eventually: Eventually, tmp_path: Path
) -> None:
    truth.send(1, 2)
    truth.send(2, 2)
    looks.look_at_all(60)
    if database.url.startswith("sqlite"):
        database.close()
        (file,) = [one for one in (tmp_path / "db").glob("SIM_*.sqlite") if f"{truth.prefix}_00001" in one.name.lower()]
        file.unlink()
        looks = Backlogs(lambda: [Database(database.url)])
    else:
        with truth.run(1).transaction() as transaction:
            ((schema,),) = transaction.execute("SELECT current_schema()", {})
            transaction.execute_script(f'DROP SCHEMA "{schema}" CASCADE')
    eventually(lambda: set(truth.own(looks.look())) == {truth.name(2)})


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(
    truth: Truth, looks: Backlogs, eventually: Eventually
) -> None:
    for number in (1, 2, 3):
        truth.send(number, number)
    with truth.run(2).transaction() as transaction:
        transaction.execute_script("DELETE FROM schema_versions WHERE package = 'ticklake.topics' AND version > 1")
    eventually(lambda: any(truth.name(2) in text for text in looks.look().unreadable))
    report = looks.look()
    (text,) = [one for one in report.unreadable if truth.prefix in one]
    assert text.startswith(f"run {truth.name(2)}: ") and "db upgrade" in text
    assert {run_id: one.messages for run_id, one in truth.own(report).items()} == {truth.name(1): 1, truth.name(3): 3}


@pytest.mark.warns("is damaged")
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "SIM_BROKEN.sqlite").write_bytes(b"this is no database, it is a text of more than one page" * 100)
    with Database(f"sqlite:///{tmp_path}") as database:
        Truth(database).send(1, 2)
        report = Backlogs(lambda: [database]).look()
        assert len(report.unreadable) == 1 and "SIM_BROKEN.sqlite" in report.unreadable[0]
        assert [one.messages for one in report.runs] == [2]


def test_a_database_that_is_away_is_named_and_hides_no_other(truth: Truth) -> None:
    truth.send(1, 2)
    with Database("postgresql://me:secret-word@127.0.0.1:1/none") as away:
        report = Backlogs(lambda: [away, truth.database]).look()
        assert list(report.away) == ["postgresql://me@127.0.0.1:1/none"]
        assert "secret-word" not in str(report)
        assert truth.own(report)[truth.name(1)].messages == 2


def test_a_run_in_two_databases_is_one_run(truth: Truth, tmp_path: Path) -> None:
    truth.send(1, 2)
    with Database(f"sqlite:///{tmp_path / 'second'}") as second:
        other = Truth(second, truth.prefix)
        other.send(1, 3)
        (backlog,) = truth.own(Backlogs(lambda: [truth.database, second]).look_at_all(60)).values()
        assert [(one.group, one.lag) for one in backlog.groups] == [("indexer", 5)]


def test_gaps_are_counted(truth: Truth, looks: Backlogs, eventually: Eventually) -> None:
    coordinator = Coordinator(truth.run(1), "EnvironmentIndexer", step=1)
    coordinator.claim([FoundFile("b", TickRange(100, 199))], 1)
    coordinator.claim([FoundFile("c", TickRange(300, 399))], 1)
    eventually(lambda: truth.name(1) in truth.own(looks.look()))
    backlog = truth.own(looks.look())[truth.name(1)]
    assert (backlog.gaps_pending, backlog.gaps_permanent, backlog.messages) == (2, 0, 0)
    coordinator.make_permanent(0)
    eventually(lambda: truth.own(looks.look())[truth.name(1)].gaps_permanent == 2)
    assert truth.own(looks.look())[truth.name(1)].gaps_pending == 0


def test_messages_that_no_group_reads_are_counted_until_an_indexer_has_their_files(
    truth: Truth, looks: Backlogs, eventually: Eventually
) -> None:
    truth.send(1, 3, groups=())
    with truth.run(1).writer("run-topic") as writer:
        writer.send(RunCompleted(last_tick=9))
    backlog = truth.own(looks.look_at_all(60))[truth.name(1)]
    assert (backlog.unread, backlog.messages, backlog.groups) == (3, 0, ())
    assert backlog.unread_seconds is not None
    assert not backlog.is_unread and backlog.after(backlogs.NO_READER_SECONDS + 1).is_unread
    coordinator = Coordinator(truth.run(1), "EnvironmentIndexer", step=1)
    files = [FoundFile(f"f{at}", TickRange(10 * at, 10 * at + 9)) for at in range(3)]
    coordinator.complete(coordinator.claim(files, 2))
    eventually(lambda: truth.own(looks.look())[truth.name(1)].unread == 1)
    coordinator.complete(coordinator.claim(files, 1))
    eventually(lambda: truth.own(looks.look()) == {})


def test_a_group_without_a_reader_is_one_of_which_nobody_holds_a_claim(truth: Truth, looks: Backlogs) -> None:
    for number in (1, 2, 3):
        truth.send(number, 2)
    late = backlogs.NO_READER_SECONDS + 1
    with (
        truth.run(1).reader(TOPIC, group="indexer", claim_timeout=3600) as held,
        truth.run(2).reader(TOPIC, group="indexer", claim_timeout=0.001) as expired,
    ):
        assert held.poll(5) and expired.poll(5)
        found = truth.own(looks.look_at_all(60))
        assert not any(one.without_reader for one in found.values()), "they are young"
        names = {run_id for run_id, one in found.items() if one.after(late).without_reader}
    assert truth.name(1) not in names and truth.name(3) in names
    assert truth.name(2) in names


def test_a_run_that_cannot_be_read_just_after_a_write_counts_as_not_read_yet(tmp_path: Path) -> None:
    """Its tables may just be created. A moment later it is named."""
    with Database(f"sqlite:///{tmp_path}") as database:
        truth = Truth(database)
        truth.send(1, 2)
        truth.send(2, 3)
        looks = Backlogs(lambda: [database])
        assert looks.look().unchecked == 0
        with truth.run(2).transaction() as transaction:
            transaction.execute_script("DELETE FROM schema_versions WHERE package = 'ticklake.topics' AND version > 1")
        report = looks.look_at_all(60)
        assert (report.unchecked, report.unreadable) == (1, []) and list(truth.own(report)) == [truth.name(1)]
        for file in tmp_path.glob("SIM_*"):
            if file.is_file():
                os.utime(file, (1_700_000_000, 1_700_000_000))
        report = looks.look()
        assert (report.unchecked, len(report.unreadable)) == (0, 1)
