"""A copy of a lake has its tables' ids. Two copies never share a run, on any database; a moved lake goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess

from ticklake import Database
from ticklake.coordination.groups import unbind
from ticklake.errors import GroupFillsAnotherTable, TableCopied
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.lake.verify.coverage import covered
from ticklake.topics import Run

Fill = Callable[[Lake], None]


@pytest.fixture
def made(maker: Any, run: Run) -> Any:
    maker.run_id = run.id
    maker.metadata()
    return maker


@pytest.fixture
def announce(made: Any, run: Run) -> Callable[[int], None]:
    def announce(number: int) -> None:
        with run.writer("batch-topic") as writer:
            writer.send(made.batch(number * 10, number * 10 + 9))

    return announce


@pytest.fixture(params=["coordinator", "topic"])
def fill(request: pytest.FixtureRequest, made: Any, database: Database) -> Fill:
    """Indexes what is there, with a coordinator or from the topic."""

    def share(lake: Lake) -> None:
        resources = IndexerResources(made.storage, lake, database, spark=InProcess)  # type: ignore[arg-type]
        work = FinishedRun(resources, made.run_id, [EnvironmentIndexer]).prepare()
        work.start()
        while not work.wait(1.0):
            pass

    def listen(lake: Lake) -> None:
        resources = IndexerResources(made.storage, lake, database, spark=InProcess)  # type: ignore[arg-type]
        MetadataIndexer("metadata-indexer", resources).write(made.run_id)
        EnvironmentIndexer("e", resources, IndexerOptions(made.run_id, until_caught_up=True)).run()

    return share if request.param == "coordinator" else listen


def ticks_of(lake: Lake, run_id: str) -> int:
    return len(covered(lake.location(run_id, "environment_data")).ticks)


@pytest.mark.warns("TableCopied")
def test_a_copy_of_a_lake_is_refused_and_both_places_are_named(
    made: Any, announce: Callable[[int], None], fill: Fill, tmp_path: Path
):
    announce(0)
    fill(made.lake)
    copy = Lake(shutil.copytree(made.lake_folder, tmp_path / "copy"))
    announce(1)
    places = rf"{made.lake.root}/.* on .*{copy.root}/|{copy.root}/.*{made.lake.root}/.* on "
    with pytest.raises((GroupFillsAnotherTable, TableCopied), match=places):
        fill(copy)
    fill(made.lake)
    assert (ticks_of(made.lake, made.run_id), ticks_of(copy, made.run_id)) == (20, 10)


@pytest.mark.warns("TableCopied")
def test_a_lake_that_was_moved_goes_on_and_a_copy_in_its_old_place_is_refused(
    made: Any, announce: Callable[[int], None], fill: Fill, tmp_path: Path
):
    announce(0)
    fill(made.lake)
    moved = Lake(made.lake_folder.rename(tmp_path / "moved"))
    announce(1)
    fill(moved)
    shutil.copytree(Path(str(moved.root)), made.lake_folder)
    with pytest.raises((GroupFillsAnotherTable, TableCopied)):
        fill(made.lake)
    assert ticks_of(moved, made.run_id) == 20


def test_a_lake_reached_by_another_path_is_the_same_lake(
    made: Any, announce: Callable[[int], None], fill: Fill, tmp_path: Path
):
    announce(0)
    fill(made.lake)
    (tmp_path / "link").symlink_to(made.lake_folder)
    announce(1)
    fill(Lake(tmp_path / "link"))
    assert ticks_of(made.lake, made.run_id) == 20


def test_a_lake_made_anew_in_the_place_of_its_copied_original_is_no_obstacle(
    made: Any, announce: Callable[[int], None], fill: Fill, tmp_path: Path
):
    announce(0)
    fill(made.lake)
    copy = Lake(shutil.copytree(made.lake_folder, tmp_path / "copy"))
    (made.folder("environment_data") / "_delta_log").rename(tmp_path / "gone")
    announce(1)
    fill(copy)
    assert ticks_of(copy, made.run_id) == 20


@pytest.mark.parametrize("fill", ["topic"], indirect=True)
def test_a_group_can_be_handed_over_to_a_copy(
    made: Any, announce: Callable[[int], None], fill: Fill, tmp_path: Path, run: Run
):
    announce(0)
    fill(made.lake)
    copy = Lake(shutil.copytree(made.lake_folder, tmp_path / "copy"))
    announce(1)
    unbind(run, "batch-topic", "e")
    fill(copy)
    assert (ticks_of(made.lake, made.run_id), ticks_of(copy, made.run_id)) == (10, 20)
