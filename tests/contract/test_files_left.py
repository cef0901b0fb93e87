"""Files that indexers with a coordinator still have to index are counted, against the files of the test."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from tests.contract.apart import apart

from ticklake import Database, EnvironmentConfig, RunCompleted, SimulationMetadata
from ticklake.cli import cli
from ticklake.completeness import close_run
from ticklake.coordination import Coordinator, FoundFile, Target, bind
from ticklake.doctor import CHECKS, Subject
from ticklake.doctor.subject import Store
from ticklake.insights import Backlog, Backlogs, Places
from ticklake.storage import Storage, parse_batch_name
from ticklake.web.feeds.live import Watch
from ticklake.web.pages.overview import picture
from ticklake.web.pages.system import _findings
from ticklake.web.site import Site

CELLS = Target("cells-1", "file:///lake/run/cells", "here")
Eventually = Callable[..., None]


class Made:
    """A run with empty batch files of ten sampled ticks, which are an hour old."""

    def __init__(self, root: Path, database: Database, *, begun: bool = True) -> None:
        self.root, self.database, self.storage = root / "storage", database, Storage(root / "storage")
        self.run_id = f"99991101-120000-{time.time_ns():020}-{uuid4().hex[:8]}"
        world = EnvironmentConfig(dimensions=1, shape=[10], toroidal=[True])
        metadata = SimulationMetadata(simulation_run_id=self.run_id, environment=world, sampling_interval=5)
        self.storage.write_metadata(metadata)
        self.coordinator = Coordinator(database.run(self.run_id), "CellIndexer", step=5, table=CELLS)
        if begun:
            self.coordinator.register(lambda *_: None)

    def add(self, count: int, folder: str = "") -> list[FoundFile]:
        """Adds files after those that are there."""
        start = len(list((self.root / self.run_id).rglob("batch_*")))
        found = []
        for number in range(start, start + count):
            name = f"{folder}batch_{number * 50:010}_{number * 50 + 45:010}.pb"
            path = self.root / self.run_id / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
            hour = path.stat().st_mtime_ns - 3600 * 10**9
            os.utime(path, ns=(hour, hour))
            ticks = parse_batch_name(path.name)
            assert ticks is not None
            found.append(FoundFile(name, ticks))
        return found

    def complete(self, files: list[FoundFile]) -> None:
        assert self.coordinator.complete(self.coordinator.claim(files, len(files))) == len(files)

    def end(self, last_tick: int) -> None:
        self.storage.write_completion(RunCompleted(simulation_run_id=self.run_id, last_tick=last_tick))
        self.coordinator.record_end(last_tick)

    def looks(self) -> Backlogs:
        return Backlogs(lambda: [self.database], storages=[self.storage])

    def backlog(self, looks: Backlogs) -> Backlog | None:
        return looks.look_at_all(60).of(self.run_id)

    def left(self, looks: Backlogs) -> int:
        found = self.backlog(looks)
        return found.files if found else 0


@pytest.fixture
def database_url(database_url: str) -> Iterator[str]:
    with apart(database_url) as url:
        yield url


@pytest.fixture
def made(tmp_path: Path, database: Database) -> Made:
    return Made(tmp_path, database)


def test_files_ticks_and_age_of_what_is_left(made: Made, eventually: Eventually) -> None:
    files, looks = made.add(4), made.looks()
    found = made.backlog(looks)
    assert found is not None
    (table,) = found.coordinated
    assert (table.indexer_class, table.table, table.files, table.ticks, table.in_work) == (
        "CellIndexer",
        "cells",
        4,
        40,
        0,
    )
    assert found.oldest_seconds == pytest.approx(3600, abs=60)
    made.complete(files[:2])
    claim = made.coordinator.claim(files[2:3], 1)
    eventually(lambda: (made.backlog(looks) or found).coordinated[0].in_work == 1)
    now = made.backlog(looks)
    assert now is not None and (now.files, now.ticks) == (2, 20)
    made.coordinator.release(claim)
    eventually(lambda: (made.backlog(looks) or found).coordinated[0].in_work == 0)
    made.complete(files[3:])
    made.coordinator.complete(made.coordinator.take_over(1))
    eventually(lambda: made.left(looks) == 0)


def test_a_new_file_is_noticed_although_the_database_does_not_change(made: Made, eventually: Eventually) -> None:
    looks = made.looks()
    made.complete(made.add(2))
    eventually(lambda: made.left(looks) == 0)
    made.add(1)
    eventually(lambda: made.left(looks) == 1)
    made.add(1, "later/")
    eventually(lambda: made.left(looks) == 2)
    made.add(1, "later/")
    eventually(lambda: made.left(looks) == 3)


def test_failed_files_are_gaps_and_not_left(made: Made) -> None:
    (file,) = made.add(1)
    (claim,) = made.coordinator.claim([file], 1)
    made.coordinator.fail(claim, "bad")
    found = made.backlog(made.looks())
    assert found is not None and (found.files, found.gaps_pending) == (0, 1)


def test_gaps_of_ticks_that_an_abandoned_run_never_had_are_no_backlog(made: Made, eventually: Eventually) -> None:
    first, _, third = made.add(3)
    made.complete([first, third])
    (made.root / made.run_id / "batch_0000000050_0000000095.pb").unlink()
    looks = made.looks()
    found = made.backlog(looks)
    assert found is not None and (found.files, found.gaps_pending) == (0, 1)
    close_run(made.storage, made.run_id, last_tick=145, silent_for=0)
    eventually(lambda: made.backlog(looks) is None)


def test_a_table_that_a_group_fills_is_counted_by_its_messages(made: Made, database: Database) -> None:
    made.add(3)
    bind(database.run(made.run_id), "batch-topic", "cells", "CellIndexer", CELLS, lambda *_: None)
    assert made.backlog(made.looks()) is None


def test_a_run_that_has_ended_and_is_complete_is_not_listed_again(
    made: Made, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    entries = Storage.entries
    monkeypatch.setattr(Storage, "entries", lambda self, folder: (listed.append(folder), entries(self, folder))[1])
    monkeypatch.setattr(Storage, "changed_at", lambda self, folder: listed.append(folder))
    made.complete(made.add(2))
    made.end(95)
    looks = made.looks()

    def is_calm() -> bool:
        listed.clear()
        looks.look()
        return not listed

    eventually(is_calm)


def test_a_large_run_is_counted_for_at_most_a_tenth_of_the_time(
    made: Made, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Made(made.root.parent, database)
    now, listed = [0.0], list[str]()
    entries = Storage.entries

    def slow(storage: Storage, folder: str) -> tuple[list[str], list[str]]:
        listed.append(folder)
        now[0] += 1.0 if folder == made.run_id else 0.0
        return entries(storage, folder)

    monkeypatch.setattr(Storage, "entries", slow)
    looks = Backlogs(lambda: [database], lambda: now[0], [made.storage])
    made.add(1)
    small.add(1)
    looks.look_at_all(1e9)
    listed.clear()
    started, counts = now[0], dict[str, set[int]]({made.run_id: set(), small.run_id: set()})
    for _ in range(50):
        made.add(1)
        small.add(1)
        now[0] += 2.0
        report = looks.look()
        for run_id, seen in counts.items():
            found = report.of(run_id)
            assert found is not None
            seen.add(found.files)
    assert 3 <= listed.count(made.run_id) <= (now[0] - started) / 10 + 1
    assert len(counts[small.run_id]) == 50, "a small run does not wait for a large one"
    assert 3 <= len(counts[made.run_id]) < 15


def test_without_a_storage_nothing_is_claimed_about_files(made: Made) -> None:
    made.add(3)
    assert Backlogs(lambda: [made.database]).look_at_all(60).of(made.run_id) is None


def test_a_run_of_another_storage_is_found_there(made: Made, tmp_path: Path) -> None:
    made.add(3)
    other = Storage(tmp_path / "other")
    looks = Backlogs(lambda: [made.database], storages=[other, made.storage])
    assert made.left(looks) == 3


def test_the_doctor_names_files_that_nobody_indexes(made: Made, tmp_path: Path, database_url: str) -> None:
    files = made.add(3)
    with Subject(stores=(Store(database_url, (made.root,)),), storages=(made.root,)) as subject:
        (found,) = [one for one in CHECKS["backlog"](subject) if made.run_id in "".join(one.details)]
    assert found.level == "warning" and "batch files that no indexer with a coordinator works on" in found.message
    assert f"{made.run_id}: 3 files, 30 ticks of CellIndexer, 1.0 h old" in found.details
    assert f"ticklake index {made.run_id}" in found.remedy
    made.coordinator.claim(files, 1)
    with Subject(stores=(Store(database_url, (made.root,)),), storages=(made.root,)) as subject:
        assert not [one for one in CHECKS["backlog"](subject) if made.run_id in "".join(one.details)]


def test_the_doctor_counts_them_in_the_given_places_and_on_its_page(made: Made, database_url: str) -> None:
    made.add(3)
    given = ["doctor", "--json", "--database", database_url]
    done = CliRunner().invoke(cli, [*given, "--storage", str(made.root)], catch_exceptions=False)
    line = f"{made.run_id}: 3 files, 30 ticks of CellIndexer, 1.0 h old"
    assert line in [text for one in json.loads(done.stdout)["findings"] for text in one["details"]]
    shown = _findings(Site(made.storage, None, [made.database]))
    assert line in [text for one in shown for text in one.details]
    unknown = CliRunner().invoke(cli, given, env={"TICKLAKE_STORAGE": ""}, catch_exceptions=False)
    assert "no files that nobody indexes" not in unknown.stdout


def test_views_say_that_only_files_of_runs_that_were_begun_are_counted(made: Made, database_url: str) -> None:
    waiting = Made(made.root.parent, made.database, begun=False)
    waiting.add(2)
    given = ["--storage", str(made.root), "--database", database_url]
    calm = CliRunner().invoke(cli, ["doctor", "--json", *given]).stdout
    made.add(3)
    late = CliRunner().invoke(cli, ["doctor", "--json", *given]).stdout
    for shown in (calm, late):
        lines = [one["message"] for one in json.loads(shown)["findings"] if one["check"] == "backlog"]
        (line,) = [one for one in lines if " files that no" in one]
        assert "runs that an indexer has begun" in line
    for run_id in (made.run_id, waiting.run_id):
        top = CliRunner().invoke(cli, ["top", run_id, "--once", *given], env={"COLUMNS": "80"}).stdout
        assert "Files are counted only in runs that an indexer has begun." in top
    page = picture(Watch(Site(made.storage, None, [made.database]), waiting.run_id), "")
    assert "Files are counted only in runs that an indexer has begun." in page


@pytest.mark.parametrize("shown", ["it", "another"])
def test_top_shows_them(made: Made, database_url: str, shown: str) -> None:
    made.add(3)
    other = made.database.run(f"99991231-120000-{uuid4().hex[:8]}")
    run = made.run_id if shown == "it" else other.id
    given = ["top", run, "--once", "--json", "--storage", str(made.root), "--database", database_url]
    done = CliRunner().invoke(cli, given, catch_exceptions=False)
    frame = json.loads(done.stdout)
    if shown == "it":
        (one,) = frame["coordinated"]
        assert (one["table"], one["files"], one["ticks"]) == ("cells", 3, 30)
    else:
        (one,) = [one for one in frame["other_runs"]["worst"] if one["run_id"] == made.run_id]
        assert (one["files"], one["ticks"]) == (3, 30)
    text = CliRunner().invoke(cli, [one for one in given if one != "--json"], env={"COLUMNS": "80"}).stdout
    assert ("CellIndexer" if shown == "it" else "files") in text


def test_status_shows_them_and_tables_that_have_caught_up(made: Made, database_url: str) -> None:
    files = made.add(3)
    given = ["status", made.run_id, "--storage", str(made.root), "--database", database_url]

    def counted() -> list[tuple[str, int, int, int]]:
        done = CliRunner().invoke(cli, [*given, "--json"], catch_exceptions=False)
        return [
            (one["table"], one["files"], one["ticks"], one["in_work"]) for one in json.loads(done.stdout)["coordinated"]
        ]

    assert counted() == [("cells", 3, 30, 0)]
    made.complete(files[:2])
    claims = made.coordinator.claim(files[2:], 1)
    assert counted() == [("cells", 1, 10, 1)]
    shown = CliRunner().invoke(cli, given, catch_exceptions=False).stdout.splitlines()
    assert ["CellIndexer", "cells", "1", "10", "1"] in [line.split()[:5] for line in shown]
    made.coordinator.complete(claims)
    assert counted() == [("cells", 0, 0, 0)]


def test_nothing_is_said_of_files_that_cannot_be_counted(made: Made, database_url: str) -> None:
    made.add(3)
    for command in ("status", "top"):
        given = [command, made.run_id, "--json", "--database", database_url]
        given += ["--once"] if command == "top" else []
        done = CliRunner().invoke(cli, given, catch_exceptions=False)
        assert json.loads(done.stdout)["coordinated"] == []
    report = made.looks().look_at_all(60)
    unread = replace(report, runs=[], unchecked=1), replace(report, runs=[], away={"db": "gone"})
    assert [one.coordinated_of(made.run_id) for one in unread] == [None, None]
    assert Places(made.storage, None, [made.database]).glance(made.run_id).with_files(None).coordinated == []


def test_the_overview_shows_them(made: Made) -> None:
    from ticklake.web.feeds.pipeline import stages

    files = made.add(3)
    site = Site(made.storage, None, [made.database])
    flow = Watch(site, made.run_id).flow()
    assert (flow.lag_files, flow.lag_ticks) == (3, 30) and (flow.lag_seconds or 0) > 3000
    assert [stage.figures[0] for stage in stages(flow)[3]] == ["3 files left, 1 h old"]
    made.complete(files)
    caught_up = Watch(Site(made.storage, None, [made.database]), made.run_id).flow()
    assert caught_up.lag_files == 0 and [one.figures[0] for one in stages(caught_up)[3]] == ["caught up"]


def test_metrics_have_them_of_the_worst_runs_only(made: Made) -> None:
    from ticklake.metric_names import COORDINATED
    from ticklake.web.api.prometheus import Families, _collect_backlogs, _collect_groups
    from ticklake.web.feeds.lag import LagSample

    made.add(3)
    report = made.looks().look_at_all(60)
    families = Families()
    _collect_groups(families, LagSample([], {}, {}, report.runs[:1], report))
    _collect_backlogs(families, report)
    found = {family.name: [(one.labels, one.value) for one in family.samples] for family in families}
    labels = dict(zip(COORDINATED.labels, (made.run_id, "CellIndexer", "cells"), strict=True))
    assert (labels, 3.0) in found["ticklake_coordinated_files"] and (labels, 30.0) in found[
        "ticklake_coordinated_ticks"
    ]
    assert found["ticklake_backlog_files"] == [({}, float(report.files))] and report.files >= 3
