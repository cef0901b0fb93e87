"""Watching a folder: what has not changed is not listed again, and nothing that appears is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class CountingStorage(Storage):
    """Counts how often a folder is listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        self.listed.append(folder)
        return super().entries(folder)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(tmp_path: Path) -> CountingStorage:
    put(tmp_path, 0)
    return CountingStorage(tmp_path)


def put(root: Path, number: int, folder: str = "") -> None:
    directory = root / RUN / folder
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"batch_{number}_{number}.pb").touch()


def seen(watch: Watch) -> list[int]:
    return sorted(ticks.start for ticks, _ in watch.look())


def test_a_folder_that_has_settled_is_not_listed_again(storage: CountingStorage, clock: Clock):
    watch = Watch(storage, RUN, clock)
    assert seen(watch) == [0]
    clock.now += 2
    assert seen(watch) == [0], "a change in the same tick of the file system's clock might have been missed"
    clock.now += 2
    assert seen(watch) == []
    assert len(storage.listed) == 2


def test_a_change_is_seen_at_once(storage: CountingStorage, clock: Clock, tmp_path: Path):
    watch = Watch(storage, RUN, clock)
    for _ in range(3):
        seen(watch)
        clock.now += 2
    assert seen(watch) == []
    put(tmp_path, 1)
    assert seen(watch) == [0, 1]


def test_a_change_that_leaves_no_stamp_is_found_in_the_end(storage: CountingStorage, clock: Clock, tmp_path: Path):
    watch = Watch(storage, RUN, clock)
    for _ in range(3):
        seen(watch)
        clock.now += 2
    stamp = (tmp_path / RUN).stat().st_mtime_ns
    put(tmp_path, 1)
    os.utime(tmp_path / RUN, ns=(stamp, stamp))
    assert seen(watch) == []
    clock.now += 60
    assert seen(watch) == [0, 1]


def test_only_the_folder_that_changed_is_listed(storage: CountingStorage, clock: Clock, tmp_path: Path):
    put(tmp_path, 5, "000/000")
    put(tmp_path, 6, "000/001")
    watch = Watch(storage, RUN, clock)
    for _ in range(3):
        seen(watch)
        clock.now += 2
    storage.listed.clear()
    put(tmp_path, 7, "000/001")
    assert seen(watch) == [6, 7]
    assert storage.listed == [f"{RUN}/000/001"]


def test_a_look_that_was_not_taken_to_its_end_is_not_remembered(storage: CountingStorage, clock: Clock):
    watch = Watch(storage, RUN, clock)
    next(watch.look())
    clock.now += 10
    assert seen(watch) == [0]


def test_a_folder_that_takes_long_to_list_is_listed_rarely(storage: CountingStorage, clock: Clock, tmp_path: Path):
    watch = Watch(storage, RUN, clock)
    for _ in watch.look():
        clock.now += 3  # the look takes three seconds
    put(tmp_path, 1)
    assert watch.whole
    clock.now += 20
    assert (seen(watch), watch.whole) == ([], False), "what has changed was left out"
    clock.now += 10
    assert (seen(watch), watch.whole) == ([0, 1], True)


def test_a_storage_that_is_gone_is_an_error_and_not_an_empty_folder(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        list(Watch(Storage(tmp_path), RUN).look())


def test_names_are_given_below_the_runs_folder(tmp_path: Path):
    put(tmp_path, 3, "000/000")
    assert list(Watch(Storage(tmp_path), RUN).look()) == [(TickRange(3, 3), "000/000/batch_3_3.pb")]


def test_an_object_store_is_listed_every_time(clock: Clock):
    storage = Storage("memory://watched")
    storage._folder.create(f"{RUN}/batch_1_1.pb", b"x")  # type: ignore[attr-defined]
    watch = Watch(storage, RUN, clock)
    assert [seen(watch), seen(watch)] == [[1], [1]]


def test_a_look_whose_files_could_not_be_dealt_with_is_not_remembered(storage: CountingStorage, clock: Clock):
    watch = Watch(storage, RUN, clock)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), watch.looking() as files:
            assert [ticks.start for ticks, _ in files] == [0]
            raise ZeroDivisionError
        assert not watch.whole
        clock.now += 2
    with watch.looking() as files:
        assert len(list(files)) == 1
    assert watch.whole
