"""The life of a run as commands show it, and `runs close`, `runs delete` and `runs archive` as a user types them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ticklake import Database
from ticklake.completeness import close_run
from ticklake.errors import RunClosed, RunEndedBefore, RunNotFound, RunNotSilent, RunStillRunning, RunVanished
from ticklake.services.closing import keep_open
from ticklake.storage.files import Storage

from .conftest import add_ticks

Command = Callable[..., Result]
NOW = ("--silent-for", "0")


@pytest.fixture
def places(maker: Any) -> list[str]:
    """Three files of ten ticks, all in the table."""
    maker.metadata()
    maker.publish(*maker.batches(3, ticks=10, cells=1))
    add_ticks(maker.folder("organism_data"), range(30))
    return ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]


def close(ticklake: Command, maker: Any, *options: str) -> str:
    return ticklake("runs", "close", maker.run_id, "--storage", maker.storage.url, *NOW, *options).stdout


def test_an_abandoned_run_whose_files_are_all_in_the_tables_is_complete(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
) -> None:
    assert ticklake("verify", *places).exit_code == 3
    assert close(ticklake, maker) == f"Run {maker.run_id} is abandoned at tick 29.\n"
    assert close(ticklake, maker) == f"Run {maker.run_id} was already abandoned at tick 29.\n"
    result = ticklake("verify", *places)
    assert (result.exit_code, f"Run {maker.run_id}: complete" in result.stdout) == (0, True)
    assert "3 batch files, abandoned at tick 29; ticks without a file: none" in result.stdout
    stored = report("verify", *places)["storage"]
    assert (stored["state"], stored["abandoned_by"], stored["last_tick"]) == ("abandoned", "command", 29)


def test_an_abandoned_run_lacks_what_is_only_in_its_files(maker: Any, places: list[str], ticklake: Command) -> None:
    maker.batch(30, 39, cells=1)
    close(ticklake, maker)
    result = ticklake("verify", *places)
    assert (result.exit_code, "organism_data: missing, has a file: 30–39" in result.stdout) == (1, True)


def test_ticks_that_were_never_written_are_named_and_not_missing(
    maker: Any, places: list[str], ticklake: Command
) -> None:
    maker.batch(50, 59, cells=1)
    add_ticks(maker.folder("organism_data"), range(50, 60))
    close(ticklake, maker)
    result = ticklake("verify", *places)
    assert result.exit_code == 0
    assert "Never written before the run was abandoned: 30–49" in result.stdout


def test_a_file_that_is_lost_after_the_run_was_abandoned_is_missing(
    maker: Any, places: list[str], ticklake: Command
) -> None:
    maker.batch(30, 39, cells=1)
    maker.batch(40, 49, cells=1)
    add_ticks(maker.folder("organism_data"), range(40, 50))
    close(ticklake, maker)
    (Path(maker.storage.url) / maker.run_id / "batch_0000000030_0000000039.pb.zst").unlink()
    result = ticklake("verify", *places)
    assert (result.exit_code, "organism_data: missing, no file: 30–39" in result.stdout) == (1, True)


def test_a_run_that_was_abandoned_before_its_first_tick_lacks_nothing(
    maker: Any, ticklake: Command, report: Callable[..., Any]
) -> None:
    maker.metadata()
    maker.lake_folder.mkdir()
    assert "is abandoned before its first tick." in close(ticklake, maker)
    places = ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]
    result = ticklake("verify", *places)
    assert (result.exit_code, "abandoned before its first tick" in result.stdout) == (0, True)
    assert "abandoned before its first tick" in ticklake("status", "--storage", maker.storage.url).stdout


def test_a_file_after_the_end_is_named_until_the_run_is_closed_again(
    maker: Any, places: list[str], ticklake: Command
) -> None:
    close(ticklake, maker)
    maker.batch(30, 39, cells=1)
    assert "1 file with ticks after the end of the run, tick 29" in ticklake("verify", *places).stdout
    assert close(ticklake, maker) == f"Run {maker.run_id} is abandoned at tick 39.\n"


def test_a_run_is_closed_at_a_tick(maker: Any, places: list[str], ticklake: Command) -> None:
    assert "is abandoned at tick 39." in close(ticklake, maker, "--at", "39")
    result = ticklake("verify", *places)
    assert (result.exit_code, "organism_data: missing, no file: 30–39" in result.stdout) == (1, True)
    with pytest.raises(RunEndedBefore):
        close(ticklake, maker, "--at", "29")


def test_a_run_that_writes_is_not_closed_and_a_run_that_is_not_there_is_named(
    maker: Any, places: list[str], ticklake: Command
) -> None:
    with pytest.raises(RunNotSilent):
        ticklake("runs", "close", maker.run_id, *places[:2])
    with pytest.raises(RunNotFound):
        ticklake("runs", "close", "nope", *places[:2])
    assert ticklake("runs", "close", maker.run_id).exit_code == 2


@pytest.mark.parametrize("command", [("end",), ("runs", "close")])
@pytest.mark.parametrize("seconds", ["0", "0.001"])
def test_a_run_that_may_be_alive_is_not_closed_without_a_warning(
    command: tuple[str, ...], seconds: str, maker: Any, places: list[str], ticklake: Command
) -> None:
    written_ago(maker, 2)
    done = ticklake(*command, maker.run_id, *places[:2], "--silent-for", seconds)
    warning = (
        rf"Warning: a file or a message of run {maker.run_id} arrived \d+ seconds ago\. If its producer is alive, .*\n"
    )
    assert done.exit_code == 0 and re.fullmatch(warning, done.stderr)
    with pytest.raises(RunClosed):  # what its producer is told
        keep_open(maker.storage, maker.run_id, [30, 39])
    assert ticklake(*command, maker.run_id, *places[:2], "--silent-for", seconds).stderr == ""


@pytest.mark.parametrize("seconds", ["0", "60"])
def test_a_run_that_was_silent_is_closed_without_a_warning(
    seconds: str, maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
) -> None:
    written_ago(maker, 100)
    done = ticklake("runs", "close", maker.run_id, *places[:2], "--silent-for", seconds)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_wish_for_a_short_silence_is_named_as_it_is(maker: Any, places: list[str], ticklake: Command) -> None:
    written_ago(maker, -1000)  # by a machine whose clock is ahead
    with pytest.raises(RunNotSilent, match=r"arrived 0 seconds ago.*after 0\.25 seconds"):
        ticklake("runs", "close", maker.run_id, *places[:2], "--silent-for", "0.25")


def test_a_file_that_comes_while_the_run_is_closed_is_counted_and_told(maker: Any, places: list[str]) -> None:
    written_ago(maker, 100)

    def clock() -> float:  # is read after the files
        maker.batch(30, 39)
        return time.time()

    ended = close_run(maker.storage, maker.run_id, silent_for=0, clock=clock)
    assert (ended.last_tick, ended.silent_seconds, ended.may_be_alive) == (39, 0.0, True)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_run_that_is_deleted_meanwhile_is_not_closed(seconds: float, maker: Any) -> None:
    with pytest.raises(RunVanished, match="it was deleted, or a disk is not mounted"):
        close_run(maker.storage, maker.run_id, silent_for=seconds)


def written_ago(maker: Any, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(Path(maker.storage.url) / maker.run_id, (moment, moment))


def test_closing_announces_files_and_the_end(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
) -> None:
    maker.batch(30, 39, cells=1)
    arguments = (maker.run_id, *places[:2], "--database", maker.database_url, *NOW)
    done = report("runs", "close", *arguments)
    assert done.pop("silent_seconds") < 60
    assert done == {
        "run": maker.run_id, "state": "abandoned", "last_tick": 39, "recorded": True, "announced": True,
    }  # fmt: skip
    assert report("runs", "close", *arguments)["announced"] is False
    with Database(maker.database_url) as database:
        topics = {one.topic: one.messages for one in database.run(maker.run_id).topics()}
    assert topics == {"batch-topic": 4, "run-topic": 1}


def test_the_state_is_in_runs_and_status(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
) -> None:
    def shown() -> tuple[Any, ...]:
        (listed,), status = report("runs", *places), report("status", *places)
        assert listed["storage"] == status["storage"]
        stored = status["storage"]
        return stored["state"], stored["last_tick"], stored["completed"]

    assert shown() == ("running", None, False)
    assert " running " in ticklake("runs", *places).stdout
    close(ticklake, maker)
    assert shown() == ("abandoned", 29, True)
    assert " abandoned " in ticklake("runs", *places).stdout
    assert "ticks 0–29, abandoned at tick 29" in ticklake("status", *places).stdout
    maker.storage.mark_leaving(maker.run_id, "")
    (listed,) = report("runs", *places)
    assert listed["storage"]["state"] == "deleting"


def test_an_end_by_hand_is_an_end(maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]) -> None:
    ended = report("end", maker.run_id, *places[:2], *NOW)
    assert ended["state"] == "ended"
    assert report("status", *places)["storage"]["state"] == "ended"
    assert close(ticklake, maker) == f"Run {maker.run_id} had already ended at tick 29.\n"


def test_a_deletion_shows_what_would_go_and_asks(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any]
) -> None:
    everything = [maker.run_id, *places, "--database", maker.database_url]
    with pytest.raises(RunStillRunning):
        ticklake("runs", "delete", *everything, "--yes")
    close(ticklake, maker)
    shown = ticklake("runs", "delete", *everything, "--dry-run").stdout
    assert "3 batch files and 2 other files" in shown and "organism_data" in shown
    assert f"Database {maker.database_url}: SIM_20251014_143025_550E8400" in shown
    assert shown.endswith(f"Run {maker.run_id} would be deleted.\n")
    asked = ticklake("runs", "delete", *everything)
    assert (asked.exit_code, "--yes" in asked.stderr) == (2, True)
    assert maker.storage.runs() == [maker.run_id]
    done = report("runs", "delete", *everything, "--yes")
    assert (done["files"], done["dry_run"], [one["name"] for one in done["tables"]]) == (3, False, ["organism_data"])
    assert ticklake("runs", *places, "--database", maker.database_url).stdout == "No runs yet.\n"
    with pytest.raises(RunNotFound):
        ticklake("runs", "delete", *everything, "--yes")


def test_an_archived_run_can_be_read_from_the_archive(
    maker: Any, places: list[str], ticklake: Command, report: Callable[..., Any], tmp_path: Path
) -> None:
    close(ticklake, maker)
    to = [maker.run_id, str(tmp_path / "archive"), *places, "--tables", str(tmp_path / "tables")]
    assert "would be archived to" in ticklake("runs", "archive", *to, "--dry-run").stdout
    assert not (tmp_path / "archive").exists()
    done = report("runs", "archive", *to, "--yes")
    assert (done["copied_files"], done["copied_table_files"] > 0) == (5, True)
    assert ticklake("runs", *places).stdout == "No runs yet.\n"
    there = ["--storage", str(tmp_path / "archive"), "--lake", str(tmp_path / "tables")]
    assert ticklake("verify", *there).exit_code == 0


def test_options_of_the_list_are_not_taken_for_those_of_a_command(places: list[str], ticklake: Command) -> None:
    done = ticklake("runs", *places, "delete", "r")
    assert (done.exit_code, "Write --storage after 'delete'" in done.stderr) == (2, True)


def test_a_link_in_a_run_is_removed_and_not_followed(maker: Any, places: list[str], ticklake: Command) -> None:
    outside = Path(maker.storage.url).parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (Path(maker.storage.url) / maker.run_id / "link").symlink_to(outside)
    ticklake("runs", "delete", maker.run_id, *places, "--yes", "--force")
    assert (outside / "kept").read_text() == "kept"
    assert Storage(maker.storage.url).runs() == []
