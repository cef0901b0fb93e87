"""Scenes with a full account, in the length that a normal run has time for, and the account itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reverted
from account import Account
from post_child import Journal

SCENES = Path(__file__).with_name("scenes.py")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def write(journal: Path, *lines: object) -> None:
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


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


@pytest.mark.long
def test_many_deaths_of_an_event_indexer_lose_nothing_and_repeat_nothing() -> None:
    play("--scene", "events", "--acts", "24", "--seed", "100", "--database", "sqlite")


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("scene", ["post", "harvest", "books"])
def test_many_acts_lose_nothing_and_repeat_nothing(scene: str, database: str) -> None:
    play("--scene", scene, "--acts", "24", "--seed", "100", "--database", database)


def test_the_account_names_what_was_lost_and_what_nobody_sent(tmp_path: Path) -> None:
    sent, read = Journal(tmp_path / "p1.sent"), Journal(tmp_path / "r1.g.read")
    sent.write("try", 0, 4)
    sent.write("sent", 0, 3)
    sent.write("undone", 3, 1)
    read.write("got", 0.0, [("p1:0", 1), ("p1:1", 1), ("p1:1", 1), ("p1:3", 1)])
    read.write("ack", 0.0, [("p1:0", 1), ("p1:0", 2)])
    account = Account()
    account.groups["g"]
    assert list(account.read(tmp_path).complaints()) == [
        "group g: 1 of 3 were never delivered, such as p1:2",
        "group g: 1 were delivered that nobody had sent, such as p1:3",
        "group g: 1 were claimed twice as the same version, such as p1:1",
        "group g: 1 were acknowledged too often, such as p1:0",
        "group g: 1 were never acknowledged, such as p1:1",
    ]
    assert account.owed("g") == (1, 2)


def test_a_group_that_is_set_back_is_owed_all_that_is_still_there(tmp_path: Path) -> None:
    sent, read = Journal(tmp_path / "p1.sent"), Journal(tmp_path / "r1.g.read")
    sent.write("try", 0, 3)
    sent.write("sent", 0, 3)
    read.write("got", 0.0, [("p1:0", 1), ("p1:1", 1), ("p1:2", 1)])
    read.write("ack", 0.0, [("p1:0", 1), ("p1:1", 1), ("p1:2", 1)])
    account = Account()
    account.groups["g"]
    assert not list(account.read(tmp_path).complaints())
    account.removed["p1:0"] = 0.0
    account.groups["g"].reset(begun=10.0**9, ended=10.0**9, since=float("-inf"))
    assert account.lost("g") == {"p1:1", "p1:2"}


def test_the_account_allows_again_only_what_a_crash_may_have_undone(tmp_path: Path) -> None:
    """A send that was answered has synced the first delivery, and nothing has synced the second before the crash."""
    write(tmp_path / "p1.sent", (1.0, "try", 0, 2), (1.1, "sent", 0, 2), (3.0, "try", 2, 1), (3.1, "sent", 2, 1))
    first, second = [("p1:0", 1)], [("p1:1", 1), ("p1:2", 1)]
    write(tmp_path / "r1.g.read", (2.0, "got", 1.9, first), (2.5, "ack", 2.4, first))
    write(tmp_path / "r2.g.read", (3.2, "got", 2.9, second), (3.3, "ack", 3.2, second))
    every = [("p1:0", 1), *second]
    write(tmp_path / "r3.g.read", (6.0, "got", 5.5, every), (6.1, "ack", 6.0, every))
    account = Account(downtimes=[(4.0, 5.0)])
    account.groups["g"]
    assert list(account.read(tmp_path).complaints()) == [
        "group g: 1 were claimed twice as the same version, such as p1:0",
        "group g: 1 were acknowledged too often, such as p1:0",
    ]
    write(tmp_path / "r4.g.read", (7.0, "got", 6.9, [("p1:1", 1)]), (7.1, "ack", 7.0, [("p1:1", 1)]))
    assert "such as p1:0, p1:1" in "".join(account.read(tmp_path).complaints())


def test_an_ack_that_a_crash_may_have_undone_leaves_its_message_open(tmp_path: Path) -> None:
    write(tmp_path / "p1.sent", (1.0, "try", 0, 1), (1.1, "sent", 0, 1))
    write(tmp_path / "r1.g.read", (2.0, "got", 1.9, [("p1:0", 1)]), (2.1, "ack", 2.0, [("p1:0", 1)]))
    account = Account().read(tmp_path)
    assert account.owed("g") == (0, 0)
    account.downtimes.append((3.0, 4.0))
    assert account.owed("g") == (0, 1)


def test_the_account_names_what_was_given_up_after_its_delivery(tmp_path: Path) -> None:
    """What a reader got last it may have acknowledged before it was killed. What it got before that it has not."""
    write(tmp_path / "p1.sent", (1.0, "try", 0, 2), (1.1, "sent", 0, 2))
    write(tmp_path / "r1.g.read", (2.0, "got", 1.9, [("p1:0", 1)]), (3.0, "got", 2.9, [("p1:1", 1)]))
    account = Account()
    account.groups["g"]
    assert list(account.read(tmp_path).complaints()) == ["group g: 1 were never acknowledged, such as p1:0"]


@pytest.mark.parametrize("one", reverted.known(), ids=lambda one: one.name)
def test_every_fix_can_still_be_reverted(one: reverted.Reverted, tmp_path: Path) -> None:
    """The patch applies, and what it names can be played. `reverted.py` shows that each bug is found."""
    assert one.apply(tmp_path) == ""
    assert one.command.startswith(("scenes.py --scene ", "pytest tests/"))
