"""A consumer group fills one table, on every database: members that would fill another one are refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ticklake import BatchInfo, Database
from ticklake.cli import cli
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.groups import bind, unbind
from ticklake.coordination.target import NO_TABLE, IdAt, Target
from ticklake.errors import GroupFillsAnotherTable, GroupFillsNothing, TableCopied
from ticklake.topics import Run

ONE, OTHER = Target("1", "file:///a", "here"), Target("2", "file:///b", "here")
Fill = Callable[..., None]


@pytest.fixture
def second(database_url: str) -> Iterator[Database]:
    """The database as another process sees it."""
    with Database(database_url) as database:
        yield database


@pytest.fixture
def fill(run: Run) -> Fill:
    def fill(table: Target, kind: str = "OrganismIndexer", group: str = "g", topic: str = "batch-topic") -> None:
        bind(run, topic, group, kind, table, lambda *_: None)

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


def test_whoever_gave_a_machine_another_name_is_told_both_names(fill: Fill):
    fill(ONE)
    with pytest.raises(GroupFillsAnotherTable, match=r"file:///a on here; this is there.*groups release"):
        fill(ONE._replace(table_id="3", host="there"))


def bind_group(run: Run, table: Target, id_at: IdAt) -> None:
    bind(run, "batch-topic", "g", "OrganismIndexer", table, id_at)


def register(run: Run, table: Target, id_at: IdAt) -> None:
    Coordinator(run, "OrganismIndexer", step=1, table=table).register(id_at)


@pytest.mark.parametrize("start", [bind_group, register])
def test_a_place_that_does_not_answer_keeps_nobody_from_the_database(
    run: Run, second: Database, start: Callable[[Run, Target, IdAt], None]
):
    asked, answer = threading.Event(), threading.Event()

    def hang(*_: str) -> None:
        asked.set()
        answer.wait(60)

    start(run, ONE, lambda *_: None)
    moved = ONE._replace(location="file:///moved")
    starting = threading.Thread(target=lambda: start(run, moved, hang))
    starting.start()
    try:
        assert asked.wait(60)
        with second.run(run.id).writer("batch-topic") as writer:
            writer.send(BatchInfo(simulation_run_id=run.id, storage_key="k"))
        assert not answer.is_set() and starting.is_alive()
    finally:
        answer.set()
        starting.join()
    start(run, moved, pytest.fail)


@pytest.mark.parametrize(("start", "error"), [(bind_group, GroupFillsAnotherTable), (register, TableCopied)])
def test_a_table_that_was_moved_while_its_old_place_was_looked_at_is_looked_for_again(
    run: Run, tmp_path: Path, start: Callable[[Run, Target, IdAt], None], error: type[Exception]
):
    places = [tmp_path / name for name in "abc"]
    for place in places:
        place.mkdir()
    one, other, third = (Target.at("1", place.as_uri()) for place in places)
    looks: list[str] = []

    def id_at(place: str, _: str) -> str | None:
        looks.append(place)
        if len(looks) == 1:
            start(run, other, lambda *_: None)
        return "1" if place == other.location else None

    start(run, one, lambda *_: None)
    with pytest.raises(error, match="a copy"):
        start(run, third, id_at)
    assert looks == [one.location, other.location]


def test_indexers_that_write_no_table_share_a_group_only_with_their_like(fill: Fill):
    fill(NO_TABLE, "DummyIndexer")
    fill(NO_TABLE, "DummyIndexer")
    for other in (lambda: fill(NO_TABLE, "OwnIndexer"), lambda: fill(ONE)):
        with pytest.raises(GroupFillsAnotherTable, match="no table, for DummyIndexer"):
            other()


def test_a_group_can_be_handed_over(fill: Fill, run: Run):
    fill(ONE)
    assert unbind(run, "batch-topic", "g") == ONE
    fill(OTHER)
    assert unbind(run, "batch-topic", "nobody") is None


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
    again = CliRunner().invoke(cli, ["groups", "release", *where, "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["group"] == "g" and "file:///" in again.stdout
