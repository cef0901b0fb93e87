"""The list of runs opens a SQLite file again only after a write, and still notices what has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ticklake import BatchInfo, Database
from ticklake.database.sqlite.stamps import Listing

LONG_AGO = 1_700_000_000


def settle(path: Path, time: float = LONG_AGO) -> None:
    """Lets a file look as if it had been written a while ago."""
    os.utime(path, (time, time))


def test_only_files_that_were_written_to_are_read_again(tmp_path: Path) -> None:
    read: list[Path] = []

    def ids(path: Path) -> list[str]:
        read.append(path)
        return path.read_text().split()

    listing = Listing(ids)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    settle(paths[0])
    settle(paths[1])
    assert [listing.ids(path) for path in paths] == [["a"], ["b"], ["c"]]
    assert [listing.ids(path) for path in paths] == [["a"], ["b"], ["c"]]
    assert read == [*paths, paths[2]], "the third one was written just now"
    paths[0].write_text("other")
    settle(paths[0], LONG_AGO + 1)
    assert listing.ids(paths[0]) == ["other"]
    replaced = tmp_path / "new"
    replaced.write_text("x")
    settle(replaced)
    replaced.replace(paths[1])
    assert listing.ids(paths[1]) == ["x"], "another file of the same size and time"


def test_a_file_that_has_no_run_yet_is_read_again(tmp_path: Path) -> None:
    found: list[str] = []
    listing = Listing(lambda _: list(found))
    (tmp_path / "a").touch()
    settle(tmp_path / "a")
    assert listing.ids(tmp_path / "a") == []
    found.append("a")
    assert listing.ids(tmp_path / "a") == ["a"]


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    listing = Listing(lambda path: [path.name])
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.touch()
        settle(path)
        listing.ids(path)
    assert listing.among(reversed(paths)) == paths
    assert listing.among(paths[1:]) == paths[1:]
    assert list(listing._known) == paths[1:]


@pytest.mark.warns("is damaged")
def test_a_run_that_is_damaged_or_deleted_later_is_not_listed_any_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}"
    with Database(url) as database:
        for name in ("one", "other", "third"):
            database.run(name).writer("t").send(BatchInfo())
    files = sorted(tmp_path.glob("*.sqlite"))
    for file in files:
        settle(file)
    with Database(url) as database:
        assert database.runs() == database.runs() == ["one", "other", "third"]
        next(file for file in files if "third" in file.name.lower()).unlink()
        damaged = next(file for file in files if "other" in file.name.lower())
        damaged.write_bytes(b"this is no database, it is a text of more than one page" * 100)
        assert database.runs() == ["one"]
        assert len(database.damaged) == 1
