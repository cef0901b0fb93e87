"""Replacing ticks of a finished run: no row is removed that no good file can bring back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.crash.in_process import InProcess

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.environment import EnvironmentIndexer
from ticklake.indexers.finished import FinishedRun, Progress
from ticklake.ticks import TickRange


def index(maker: Any, ticks: TickRange | None = None, *, replace: bool = False) -> Progress:
    spark: Any = InProcess()
    resources = IndexerResources(maker.storage, maker.lake, spark=lambda: spark)
    work = FinishedRun(resources, maker.run_id, [EnvironmentIndexer], ticks).prepare()
    if replace:
        work.remove()
    work.start()
    while not work.wait(1.0):
        pass
    (progress,) = work.progress()
    return progress


@pytest.fixture
def file(maker: Any) -> Path:
    """The second of three files of ten ticks, which are all indexed."""
    maker.metadata()
    maker.batches(3, ticks=10)
    index(maker)
    (found,) = Path(maker.storage.url, maker.run_id).glob("batch_*10_*19*")
    return found


@pytest.mark.parametrize("ticks", [None, TickRange(5, 24)])
def test_ticks_whose_file_is_gone_stay(maker: Any, file: Path, ticks: TickRange | None) -> None:
    file.unlink()
    done = index(maker, ticks, replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert done.kept == [TickRange(10, 19)]
    assert done.ticks == (20 if ticks is None else 10)


def test_ticks_whose_file_is_damaged_stay_and_the_file_is_named(maker: Any, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])
    done = index(maker, replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert (done.kept, done.ticks) == ([TickRange(10, 19)], 20)
    assert [Path(key).name for key in done.failed] == [file.name]


def test_ticks_that_good_files_have_are_replaced(maker: Any, file: Path) -> None:
    done = index(maker, replace=True)
    assert (done.ticks, done.kept, done.failed) == (30, [], {})
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
