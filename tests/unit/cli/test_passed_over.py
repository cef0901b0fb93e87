"""Batch files in folders that storage does not look into: `verify`, `end` and the doctor name them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ticklake.completeness import Completeness, end_run
from ticklake.doctor import Subject, examine
from ticklake.errors import FilesPassedOver
from ticklake.lake.read.catalog import Catalog
from ticklake.storage import Storage

Command = Callable[..., Result]


@pytest.fixture
def run(maker: Any) -> Path:
    """A run of 40 ticks in its own folder, and 20 more beside it."""
    maker.metadata()
    maker.batches(6, ticks=10)
    return Path(maker.storage.url) / maker.run_id


def put_aside(run: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in [*run.glob("batch_*40_*"), *run.glob("batch_*50_*")]:
        file.rename(folder / file.name)
    return folder


def in_a_folder_with_a_space(run: Path) -> str:
    put_aside(run, run / "part 2" / "deep")
    return "part 2"


def in_a_folder_below(run: Path) -> str:
    put_aside(run, run / "good" / "ünsafe")
    return "good/ünsafe"


def in_a_linked_folder(run: Path) -> str:
    (run / "linked").symlink_to(put_aside(run, run.parents[1] / "elsewhere"))
    return "linked"


def in_a_link_in_a_folder_with_a_space(run: Path) -> str:
    (run / "part 2").mkdir()
    (run / "part 2" / "more").symlink_to(put_aside(run, run.parents[1] / "elsewhere"))
    return "part 2"


def behind_a_second_link(run: Path) -> str:
    outside = run.parents[1] / "outside"
    outside.mkdir()
    (outside / "deep").symlink_to(put_aside(run, run.parents[1] / "elsewhere"))
    (outside / "round").symlink_to(outside)
    (run / "linked").symlink_to(outside)
    return "linked"


def behind_a_link_to_nothing(run: Path) -> str:
    """The disk that it leads to may be away."""
    (run / "disk2").symlink_to(run.parents[1] / "not-mounted")
    return "disk2"


def behind_a_link_in_a_circle(run: Path) -> str:
    (run / "my notes").mkdir()
    (run / "my notes" / "circle").symlink_to(run / "my notes" / "circle")
    return "my notes"


def in_a_folder_that_nobody_may_read(run: Path) -> str:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (run / "part 2" / "closed").mkdir(parents=True, mode=0)
    return "part 2"


def as_a_pipe(run: Path) -> str:
    os.mkfifo(run / "batch_0000000060_0000000069.pb")
    return "batch_0000000060_0000000069.pb"


def as_links(run: Path) -> str:
    for file in put_aside(run, run.parents[1] / "elsewhere").iterdir():
        (run / file.name).symlink_to(file)
    return "batch_0000000040_0000000049.pb.zst"


def in_a_folder_that_is_no_text(run: Path) -> str:
    folder = Path(os.fsdecode(os.fsencode(run) + b"/bad\xff"))
    put_aside(run, folder)
    return "bad\\udcff"


WAYS = [
    in_a_folder_with_a_space,
    in_a_folder_below,
    in_a_linked_folder,
    in_a_link_in_a_folder_with_a_space,
    behind_a_second_link,
    behind_a_link_to_nothing,
    behind_a_link_in_a_circle,
    in_a_folder_that_nobody_may_read,
    as_a_pipe,
    as_links,
    in_a_folder_that_is_no_text,
]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_passed_over_is_named(maker: Any, run: Path, ticklake: Command, way: Callable[[Path], str]) -> None:
    name = f"{maker.run_id}/{way(run)}"
    maker.lake_folder.mkdir()
    assert name in maker.storage.passed_over(maker.run_id)
    with pytest.raises(FilesPassedOver) as refused:
        end_run(maker.storage, maker.run_id, silent_for=0)
    assert name in str(refused.value)
    assert maker.storage.read_completion(maker.run_id) is None
    with pytest.raises(FilesPassedOver):
        end_run(maker.storage, maker.run_id, last_tick=39, silent_for=0)
    result = ticklake("verify", maker.run_id, "--storage", maker.storage.url, "--lake", maker.lake_folder, "--ended")
    assert result.exit_code == 1
    assert name in result.stdout
    verdict = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder), ended=True).verify()
    assert not verdict.flawless
    found = [one for one in examine(Subject(storages=(Path(maker.storage.url),))) if one.check == "passed-over files"]
    assert [one.level for one in found] == ["warning"]
    assert any(name in detail for detail in found[0].details)


def test_what_is_hidden_or_no_batch_file_is_nobodys_business(maker: Any, run: Path) -> None:
    put_aside(run, run / ".snapshot" / "part 2")
    (run / "my notes").mkdir()
    (run / "my notes" / "read me.txt").touch()
    (run / "notes").symlink_to(run / "my notes")
    (run / "round").symlink_to(run)
    assert maker.storage.passed_over(maker.run_id) == [f"{maker.run_id}/round"]
    (run / "round").unlink()
    assert maker.storage.passed_over(maker.run_id) == []
    assert end_run(maker.storage, maker.run_id, silent_for=0).last_tick == 39


def test_a_place_with_too_many_names_to_search_is_named(maker: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a place", "b place"):
        (run / folder).mkdir()
        for number in range(6):
            (run / folder / f"{number}.txt").touch()
    assert maker.storage.passed_over(maker.run_id) == []
    monkeypatch.setattr("ticklake.storage.search.MAX_NAMES", 11)
    assert len(maker.storage.passed_over(maker.run_id)) == 1
    monkeypatch.setattr("ticklake.storage.search.MAX_NAMES", 5)
    assert maker.storage.passed_over(maker.run_id) == [f"{maker.run_id}/a place", f"{maker.run_id}/b place"]


def test_links_to_one_place_cost_one_search(maker: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "my notes").mkdir()
    for number in range(6):
        (run / "my notes" / f"{number}.txt").touch()
        (run / f"link{number}").symlink_to(run / "my notes")
    monkeypatch.setattr("ticklake.storage.search.MAX_NAMES", 6)
    assert maker.storage.passed_over(maker.run_id) == []


@pytest.mark.parametrize("name", ["linked", "my run"])
def test_a_run_that_is_not_one_because_of_its_folder_is_named(maker: Any, run: Path, name: str) -> None:
    if name == "linked":
        moved = run.rename(run.parents[1] / "elsewhere")
        run.symlink_to(moved)
        assert maker.storage.passed_over(maker.run_id) == [maker.run_id]
    else:
        run.rename(run.parent / name)
    (run.parent / "notes here").mkdir()
    expected = maker.run_id if name == "linked" else name
    assert maker.storage.runs() == []
    assert maker.storage.passed_over_runs() == [expected]
    found = [one for one in examine(Subject(storages=(Path(maker.storage.url),))) if one.check == "passed-over files"]
    assert [(one.level, one.details) for one in found] == [("warning", (expected,))]


def test_an_object_store_names_them_too() -> None:
    storage = Storage("memory://passed-over")
    folder: Any = storage._folder
    folder._fs.pipe_file("/passed-over/run/part 2/batch_0_9.pb", b"x")
    folder._fs.pipe_file("/passed-over/run/good/batch_0_9.pb", b"x")
    folder._fs.pipe_file("/passed-over/my run/batch_0_9.pb", b"x")
    folder._fs.pipe_file("/passed-over/my notes/a.txt", b"x")
    assert storage.passed_over("run") == ["run/part 2"]
    assert storage.passed_over_runs() == ["my run"]
    assert [file.key for file in storage.every_batch("run")] == ["run/good/batch_0_9.pb"]
