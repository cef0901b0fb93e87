"""One run is damaged: everything that lists runs shows the others, names the damaged one, and ends with exit code 1."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ticklake.contracts import BatchInfo
from ticklake.doctor import Subject, examine
from ticklake.doctor.subject import Store
from ticklake.errors import DatabaseDamaged, DatabaseFileUnusable
from ticklake.topics import Database

from .conftest import add_ticks

OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"
Run = Callable[..., Result]

pytestmark = pytest.mark.warns("DEAD_LETTER")


@pytest.fixture
def places(tmp_path: Path, maker: Any) -> Path:
    """Two runs with files, a table, a topic, a claim and a dead letter each; the database of the old one is damaged."""
    for run_id in (OLD, NEW):
        maker.run_id = run_id
        maker.metadata()
        maker.batches(2, ticks=10)
        add_ticks(tmp_path / "lake" / run_id / "organism_data", range(20))
        with Database(f"sqlite:///{tmp_path / 'database'}") as database:
            run = database.run(run_id)
            with run.writer("batch-topic") as writer:
                writer.send_many([BatchInfo(simulation_run_id=run_id, tick_start=0, tick_end=9) for _ in range(3)])
            with run.reader("batch-topic", group="dead", max_delivery_attempts=1) as reader:
                message = reader.poll(5)
                assert message is not None and reader.fail(message, "broken")
            held = run.reader("batch-topic", group="holding")
            assert held.poll(5) is not None
    return tmp_path


@pytest.fixture
def damaged(places: Path) -> Iterator[Path]:
    (file,) = (one for one in (places / "database").glob("*.sqlite") if "550E8400" in one.name)
    data = bytearray(file.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    file.write_bytes(data)
    yield places


LISTS = [["topics"], ["groups"], ["claims"], ["dead-letters", "list"], ["db", "status"]]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_a_list_of_runs_shows_the_others_and_names_the_damaged_one(
    ticklake: Run, damaged: Path, command: list[str]
) -> None:
    database = f"sqlite:///{damaged / 'database'}"
    for form in ([], ["--json"]):
        done = ticklake(*command, "--database", database, *form)
        assert done.exit_code == 1
        assert NEW in done.stdout and OLD not in done.stdout
        assert len(done.stderr.splitlines()) == 1 and "550E8400.sqlite is damaged" in done.stderr


def test_runs_lists_every_run_and_what_is_known_of_the_damaged_one(ticklake: Run, damaged: Path, maker: Any) -> None:
    where = ("--storage", maker.storage.url, "--lake", damaged / "lake", "--database", f"sqlite:///{damaged}/database")
    done = ticklake("runs", *where)
    assert done.exit_code == 1
    assert OLD in done.stdout and NEW in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "is damaged" in done.stderr
    old, new = json.loads(ticklake("runs", *where, "--json").stdout)["runs"]
    assert "is damaged" in old["error"] and new["error"] is None
    assert (old["storage"]["files"], old["tables"][0]["rows"], old["groups"]) == (2, 20, [])
    assert len(new["groups"]) == 2
    status = ticklake("status", OLD, *where)
    assert status.exit_code == 1 and "organism_data" in status.stdout and "is damaged" in status.stderr
    assert ticklake("status", NEW, *where).exit_code == 0


@pytest.mark.warns("is damaged")
@pytest.mark.parametrize(
    "command", [["runs"], *(pytest.param(one, marks=pytest.mark.slow) for one in LISTS)], ids=" ".join
)
def test_a_file_whose_run_is_not_known_any_more_is_named(
    ticklake: Run, places: Path, maker: Any, command: list[str]
) -> None:
    (file,) = (one for one in (places / "database").glob("*.sqlite") if "550E8400" in one.name)
    file.write_bytes(b"this is no database" * 1000)
    done = ticklake(*command, "--database", f"sqlite:///{places / 'database'}")
    assert done.exit_code == 1 and NEW in done.stdout and f"{file.name} is damaged" in done.stderr
    errors = [text for check, level, text in findings(places, maker) if level == "error"]
    assert len(errors) == 1 and file.name in errors[0]


def garbage(file: Path) -> None:
    file.write_bytes(b"this is no database" * 1000)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.warns("is damaged", "cannot be used")
@pytest.mark.parametrize("damage", [garbage, folder])
def test_a_file_that_cannot_be_read_may_be_the_newest_run(
    ticklake: Run, places: Path, damage: Callable[[Path], None]
) -> None:
    (file,) = (one for one in (places / "database").glob("*.sqlite") if "AAAAAAAA" in one.name)
    damage(file)
    database = ("--database", f"sqlite:///{places / 'database'}")
    for command in (["status"], ["runs"], ["top", "--once"], ["topics"]):
        done = ticklake(*command, *database)
        assert done.exit_code == 1, command
        assert OLD in done.stdout and file.name in done.output
    assert json.loads(ticklake("status", *database, "--json").stdout)["run_id"] == OLD
    assert ticklake("status", OLD, *database).exit_code == 0
    with pytest.raises((DatabaseDamaged, DatabaseFileUnusable), match=file.name):
        ticklake("status", NEW, *database)


@pytest.mark.warns("is damaged", "cannot be used")
@pytest.mark.parametrize("damage", [garbage, folder])
def test_a_run_is_not_the_only_one_if_another_cannot_be_read(
    ticklake: Run, places: Path, damage: Callable[[Path], None]
) -> None:
    (file,) = (one for one in (places / "database").glob("*.sqlite") if "AAAAAAAA" in one.name)
    damage(file)
    database = ("--database", f"sqlite:///{places / 'database'}")
    reset = ("groups", "reset", "batch-topic", "dead", "--to", "earliest", "--dry-run")
    done = ticklake(*reset, *database)
    assert done.exit_code == 2 and "Choose a run" in done.stderr and file.name in done.stderr
    assert ticklake(*reset, *database, "--run", OLD).exit_code == 0


def test_db_upgrade_upgrades_the_others(ticklake: Run, damaged: Path) -> None:
    done = ticklake("db", "upgrade", "--database", f"sqlite:///{damaged / 'database'}")
    assert done.exit_code == 1
    assert "up to date" not in done.stdout and "is damaged" in done.stderr


def test_an_end_that_cannot_be_read_hides_no_run(ticklake: Run, places: Path, maker: Any) -> None:
    (Path(maker.storage.url) / OLD / "completed.pb").write_bytes(b"")
    done = ticklake("runs", "--storage", maker.storage.url)
    assert done.exit_code == 1
    assert "unknown" in done.stdout and "running" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and f"{OLD}/completed.pb" in done.stderr
    old, new = json.loads(ticklake("runs", "--storage", maker.storage.url, "--json").stdout)["runs"]
    assert (old["storage"]["files"], old["storage"]["completed"]) == (2, None)
    assert f"{OLD}/completed.pb" in old["storage"]["error"]
    assert (new["storage"]["completed"], new["storage"]["error"], new["error"]) == (False, None, None)
    assert ticklake("status", OLD, "--storage", maker.storage.url).exit_code == 1


def test_a_database_that_does_not_answer_hides_no_run_of_others(ticklake: Run, places: Path) -> None:
    away = "postgresql://nobody@127.0.0.1:9/none"
    done = ticklake("topics", "--database", f"sqlite:///{places / 'database'}", "--database", away)
    assert done.exit_code == 1 and OLD in done.stdout and NEW in done.stdout and len(done.stderr.splitlines()) == 1
    done = ticklake("runs", "--lake", places / "lake", "--database", away)
    assert done.exit_code == 1 and OLD in done.stdout and NEW in done.stdout and len(done.stderr.splitlines()) == 1


def findings(places: Path, maker: Any) -> list[tuple[str, str, str]]:
    stores = (Store(f"sqlite:///{places / 'database'}"),)
    with Subject((Path(maker.storage.url),), (places / "lake",), stores) as subject:
        found = list(examine(subject))
    assert not [one for one in found if "check itself" in one.message]
    return [(one.check, str(one.level), one.message) for one in found]


def test_the_doctor_checks_the_other_runs(damaged: Path, maker: Any) -> None:
    found = findings(damaged, maker)
    errors = [(check, text) for check, level, text in found if level == "error"]
    assert len(errors) == 1 and OLD in errors[0][1] and "is damaged" in errors[0][1]
    (letters,) = [text for check, level, text in found if check == "dead letters"]
    assert f"1 dead letters, without 1 that cannot be read, most of them in run {NEW}" in letters


def test_the_doctor_reads_the_files_of_each_run(places: Path, maker: Any) -> None:
    assert not [one for one in findings(places, maker) if one[1] == "error"]
    (Path(maker.storage.url) / OLD / "completed.pb").write_bytes(b"")
    (metadata,) = (Path(maker.storage.url) / NEW).glob("metadata.pb*")
    metadata.write_bytes(b"xx")
    errors = [text for check, level, text in findings(places, maker) if check == "files of runs" and level == "error"]
    assert len(errors) == 2
    assert any(f"{OLD}/completed.pb" in text for text in errors)
    assert any(f"{NEW}/metadata.pb" in text for text in errors)


def test_the_doctor_looks_for_unneeded_files_in_the_other_tables(places: Path, maker: Any) -> None:
    log = places / "lake" / OLD / "organism_data" / "_delta_log"
    add_ticks(log.parent, range(20, 30))
    (log / f"{0:020d}.json").unlink()
    (places / "lake" / NEW / "organism_data" / "left.parquet").write_bytes(b"")
    os.utime(places / "lake" / NEW / "organism_data" / "left.parquet", (0, 0))
    orphaned = [(level, text) for check, level, text in findings(places, maker) if check == "orphaned files"]
    assert [level for level, _ in orphaned] == ["error", "warning"]
    assert OLD in orphaned[0][1] and "1 files" in orphaned[1][1]
