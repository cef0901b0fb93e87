"""The place of a table: what it is called, what is in it, and that it travels."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from ticklake.checks.places import UnsupportedPlace
from ticklake.lake.delta import LakeRoot, Location
from ticklake.lake.errors import RunFolderUnreadable


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return LakeRoot.of(tmp_path / "lake").location("run", "cells")


def test_a_location_is_shown_as_its_path_and_knows_its_run_and_name(location: Location, tmp_path: Path):
    assert f"{location}" == str(tmp_path / "lake" / "run" / "cells")
    assert (location.run_id, location.name) == ("run", "cells")
    assert location.url == (tmp_path / "lake" / "run" / "cells").as_uri()
    assert str(location.file("a.parquet")) == f"{location}/a.parquet"
    assert str(location.log_file("0.json")) == f"{location.log}/0.json" == f"{location}/_delta_log/0.json"


def test_a_location_and_its_files_are_values_that_can_be_sent_to_a_worker(location: Location):
    for value in (location, location.file("a.parquet")):
        there = pickle.loads(pickle.dumps(value))
        assert there == value and len({there, value}) == 1 and str(there) == str(value)


def test_a_location_is_found_again_by_its_url_and_by_its_path(location: Location):
    assert Location.of(location.url) == Location.of(str(location)) == location
    for place in ("s3://bucket/table", ""):
        with pytest.raises(UnsupportedPlace):
            Location.of(place)


def test_a_folder_and_a_link_to_it_are_the_same_place(location: Location, tmp_path: Path):
    location.make()
    (tmp_path / "link").symlink_to(str(location))
    assert location.is_same(Location.of(tmp_path / "link"))
    assert not location.is_same(Location.of(tmp_path))
    assert not location.is_same(Location.of(tmp_path / "missing"))


def test_a_table_exists_as_soon_as_it_has_a_log(location: Location):
    assert not location.exists() and not location.may_exist() and location.log_names() == []
    location.make()
    assert not location.exists() and location.names() == []
    location.make_log()
    assert location.exists() and location.may_exist() and not location.has_commits()
    Path(location.log, "0.json").touch()
    assert location.has_commits() and location.log_names() == ["0.json"]


def test_a_table_behind_a_link_to_nothing_may_exist(location: Location, tmp_path: Path):
    Path(str(location)).parent.mkdir(parents=True)
    Path(str(location)).symlink_to(tmp_path / "unmounted")
    assert location.may_exist() and not location.exists()


def test_files_are_read_measured_and_removed(location: Location):
    location.make()
    file = location.file("flush-0.parquet")
    with pytest.raises(FileNotFoundError):
        file.facts()
    data = os.urandom(3_000_000)
    Path(str(file)).write_bytes(data)
    os.utime(str(file), ns=(5, 1_500_000_000))
    assert file.exists() and file.read() == b"".join(file.blocks()) == data
    assert (file.facts().size, file.facts().written) == (3_000_000, 1.5)
    assert (location.bytes_of("flush-"), location.bytes_of("other-")) == (3_000_000, 0)
    file.remove()
    file.remove()
    assert not file.exists() and location.names() == []


def test_a_root_lists_runs_and_what_may_be_tables(tmp_path: Path):
    root = LakeRoot.of(tmp_path / "lake")
    assert not root.exists()
    root.location("run", "cells").make()
    (tmp_path / "lake" / "notes.txt").touch()
    assert root.exists() and sorted(root.names()) == ["notes.txt", "run"]
    assert root.names_in("run") == ["cells"]
    assert root.names_in("missing") == root.names_in("notes.txt") == root.names_in("../lake") == []
    (tmp_path / "lake" / "gone").symlink_to(tmp_path / "unmounted")
    with pytest.raises(RunFolderUnreadable):
        root.names_in("gone")


@pytest.mark.parametrize("deep", [True, False])
def test_a_folder_with_very_many_folders_is_not_searched_to_its_end(
    tmp_path: Path, deep: bool, monkeypatch: pytest.MonkeyPatch
):
    place = tmp_path / "lake" / "run" / "cells"
    for number in range(1200):
        (place / f"{number % 40 if deep else number}" / f"{number}").mkdir(parents=True)
    (place / "_delta_log").mkdir()
    opened: list[object] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *path: opened.append(path) or scan(*path))
    assert not Location.of(place).lacks_log()
    assert len(opened) < 1002


def test_parquet_files_are_found_in_folders_but_not_in_the_log(tmp_path: Path):
    place = tmp_path / "cells"
    (place / "_delta_log").mkdir(parents=True)
    (place / "_delta_log" / "odd").mkdir()
    (place / "_delta_log" / "odd" / "x.parquet").touch()
    (place / "folder.parquet").mkdir()
    assert not Location.of(place).lacks_log()
    (place / "day=1" / "hour=2").mkdir(parents=True)
    (place / "day=1" / "hour=2" / "part.parquet").touch()
    assert Location.of(place).lacks_log()
