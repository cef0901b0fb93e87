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


def as_links(run: Path) -> str:
    for file in put_aside(run, run.parents[1] / "elsewhere").iterdir():
        (run / file.name).symlink_to(file)
    return "batch_0000000040_0000000049.pb.zst"


def in_a_folder_that_is_no_text(run: Path) -> str:
    folder = Path(os.fsdecode(os.fsencode(run) + b"/bad\xff"))
    put_aside(run, folder)
    return "bad\\udcff"


WAYS = [in_a_folder_with_a_space, in_a_folder_below, in_a_linked_folder, as_links, in_a_folder_that_is_no_text]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_passed_over_is_named(maker: Any, run: Path, ticklake: Command, way: Callable[[Path], str]) -> None:
    name = f"{maker.run_id}/{way(run)}"
    maker.lake.root.mkdir()
    assert name in maker.storage.passed_over(maker.run_id)
    with pytest.raises(FilesPassedOver) as refused:
        end_run(maker.storage, maker.run_id, silent_for=0)
    assert name in str(refused.value)
    assert maker.storage.read_completion(maker.run_id) is None
    with pytest.raises(FilesPassedOver):
        end_run(maker.storage, maker.run_id, last_tick=39, silent_for=0)
    result = ticklake("verify", maker.run_id, "--storage", maker.storage.url, "--lake", maker.lake.root, "--ended")
    assert result.exit_code == 1
    assert name in result.stdout
    verdict = Completeness(maker.run_id, maker.storage, Catalog(maker.lake.root), ended=True).verify()
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


def test_an_object_store_names_them_too() -> None:
    storage = Storage("memory://passed-over")
    folder: Any = storage._folder
    folder._fs.pipe_file("/passed-over/run/part 2/batch_0_9.pb", b"x")
    folder._fs.pipe_file("/passed-over/run/good/batch_0_9.pb", b"x")
    assert storage.passed_over("run") == ["run/part 2"]
    assert [file.key for file in storage.every_batch("run")] == ["run/good/batch_0_9.pb"]
