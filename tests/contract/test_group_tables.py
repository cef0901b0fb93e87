"""A consumer group fills one table, on every database: members that would fill another one are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from ticklake.cli import cli
from ticklake.coordination.groups import bind, release
from ticklake.coordination.target import NO_TABLE, Target
from ticklake.errors import GroupFillsAnotherTable, GroupFillsNothing
from ticklake.topics import Run

ONE, OTHER = Target("1", "file:///a", "here"), Target("2", "file:///b", "here")
Fill = Callable[..., None]


@pytest.fixture
def fill(run: Run) -> Fill:
    def fill(table: Target, kind: str = "OrganismIndexer", group: str = "g", topic: str = "batch-topic") -> None:
        bind(run, topic, group, kind, table, lambda _: None)

    return fill


def test_members_of_a_group_fill_one_table(fill: Fill):
    fill(ONE)
    fill(ONE)
    with pytest.raises(GroupFillsAnotherTable, match=r"file:///a on here.*groups release batch-topic g"):
        fill(OTHER)
    fill(OTHER, group="another")
    fill(OTHER, topic="another")


def test_a_table_that_was_moved_is_the_same_table(fill: Fill):
    fill(ONE)
    fill(ONE._replace(location="file:///moved"))


def test_a_table_that_was_made_anew_in_its_place_takes_over(fill: Fill):
    fill(ONE)
    fill(ONE._replace(table_id="3"))
    with pytest.raises(GroupFillsAnotherTable):
        fill(OTHER)


def test_the_same_path_on_another_machine_is_another_table(fill: Fill):
    fill(ONE)
    with pytest.raises(GroupFillsAnotherTable):
        fill(ONE._replace(table_id="3", host="there"))


def test_indexers_that_write_no_table_share_a_group_only_with_their_like(fill: Fill):
    fill(NO_TABLE, "DummyIndexer")
    fill(NO_TABLE, "DummyIndexer")
    for other in (lambda: fill(NO_TABLE, "OwnIndexer"), lambda: fill(ONE)):
        with pytest.raises(GroupFillsAnotherTable, match="no table, for DummyIndexer"):
            other()


def test_a_group_can_be_handed_over(fill: Fill, run: Run):
    fill(ONE)
    assert release(run, "batch-topic", "g") == ONE
    fill(OTHER)
    assert release(run, "batch-topic", "nobody") is None


def test_of_two_that_start_at_the_same_time_one_is_refused(fill: Fill):
    refused: list[str] = []
    start = threading.Barrier(2)

    def begin(table: Target) -> None:
        start.wait()
        try:
            fill(table)
        except GroupFillsAnotherTable:
            refused.append(table.table_id)

    threads = [threading.Thread(target=begin, args=(table,)) for table in (ONE, OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1


def test_the_command_hands_a_group_over(fill: Fill, run: Run, database_url: str):
    where = ("batch-topic", "g", "--database", database_url, "--run", run.id)
    fill(ONE)
    done = CliRunner().invoke(cli, ["groups", "release", *where], catch_exceptions=False)
    assert done.exit_code == 0 and "file:///a" in done.stdout
    with pytest.raises(GroupFillsNothing):
        CliRunner().invoke(cli, ["groups", "release", *where], catch_exceptions=False, standalone_mode=False)
    fill(OTHER)
