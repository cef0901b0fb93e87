"""Scenes with a full account, in the length that a normal run has time for, and the account itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import reverted
from account import Account
from post_child import Journal

SCENES = Path(__file__).with_name("scenes.py")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def play(*options: str) -> None:
    done = subprocess.run([sys.executable, SCENES, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("database", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"])
def test_every_message_of_several_publishers_is_delivered_to_every_group(database: str) -> None:
    play("--scene", "post", "--acts", "3", "--seed", "2", "--database", database)


def test_good_files_are_indexed_once_and_nothing_of_bad_ones() -> None:
    play("--scene", "harvest", "--acts", "1", "--only", "kill", "--seed", "1", "--database", "sqlite")


def test_a_message_that_nobody_can_handle_stops_no_other() -> None:
    play("--scene", "books", "--acts", "2", "--seed", "1", "--database", "postgres")


def test_every_acknowledged_event_is_in_the_table_once_whenever_its_indexer_dies() -> None:
    play("--scene", "events", "--acts", "3", "--seed", "5", "--database", "sqlite")


@pytest.mark.slow
def test_many_deaths_of_an_event_indexer_lose_nothing_and_repeat_nothing() -> None:
    play("--scene", "events", "--acts", "24", "--seed", "100", "--database", "sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("scene", ["post", "harvest", "books"])
def test_many_acts_lose_nothing_and_repeat_nothing(scene: str, database: str) -> None:
    play("--scene", scene, "--acts", "24", "--seed", "100", "--database", database)


def test_the_account_names_what_was_lost_and_what_nobody_sent(tmp_path: Path) -> None:
    sent, read = Journal(tmp_path / "p1.sent"), Journal(tmp_path / "r1.g.read")
    sent.write("try", 0, 4)
    sent.write("sent", 0, 3)
    sent.write("undone", 3, 1)
    read.write("got", [("p1:0", 1), ("p1:1", 1), ("p1:1", 1), ("p1:3", 1)])
    read.write("ack", [("p1:0", 1), ("p1:0", 2)])
    account = Account()
    account.groups["g"]
    assert list(account.read(tmp_path).complaints()) == [
        "group g: 1 of 3 were never delivered, such as p1:2",
        "group g: 1 were delivered that nobody had sent, such as p1:3",
        "group g: 1 were claimed twice as the same version, such as p1:1",
        "group g: 1 were acknowledged too often, such as p1:0",
    ]
    assert account.owed("g") == (1, 2)


def test_a_group_that_is_set_back_is_owed_all_that_is_still_there(tmp_path: Path) -> None:
    sent, read = Journal(tmp_path / "p1.sent"), Journal(tmp_path / "r1.g.read")
    sent.write("try", 0, 3)
    sent.write("sent", 0, 3)
    read.write("got", [("p1:0", 1), ("p1:1", 1), ("p1:2", 1)])
    read.write("ack", [("p1:0", 1), ("p1:1", 1), ("p1:2", 1)])
    account = Account()
    account.groups["g"]
    assert not list(account.read(tmp_path).complaints())
    account.removed["p1:0"] = 0.0
    account.groups["g"].reset(begun=10.0**9, ended=10.0**9, since=float("-inf"))
    assert account.lost("g") == {"p1:1", "p1:2"}


@pytest.mark.parametrize("one", reverted.known(), ids=lambda one: one.name)
def test_every_fix_can_still_be_reverted(one: reverted.Reverted, tmp_path: Path) -> None:
    """The patch applies, and what it names can be played. `reverted.py` shows that each bug is found."""
    assert one.apply(tmp_path) == ""
    assert one.command.startswith(("scenes.py --scene ", "pytest tests/"))
