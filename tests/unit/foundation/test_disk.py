from __future__ import annotations

import os
from pathlib import Path

import pytest

from ticklake import disk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories and files that were synced, in order."""
    paths: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_every_directory_that_is_made_is_synced_with_its_name(tmp_path: Path, synced: list[Path]):
    disk.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


@pytest.mark.parametrize(("shared", "levels"), [(1, ["a/b"]), (2, ["a", "a/b"]), (3, [".", "a", "a/b"])])
def test_a_directory_that_another_process_may_have_just_made_is_synced_again(
    tmp_path: Path, synced: list[Path], shared: int, levels: list[str]
):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    disk.make_directory(tmp_path / "a" / "b" / "c", shared=shared)
    assert synced == [tmp_path / level for level in levels]


def test_a_file_can_be_synced_by_its_name_in_an_open_directory(tmp_path: Path, synced: list[Path]):
    (tmp_path / "file").write_bytes(b"x")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        disk.sync("file", within=folder)
    finally:
        os.close(folder)
    assert synced == [tmp_path / "file"]


def test_a_lock_is_held_by_one_or_shared_until_its_file_is_closed(tmp_path: Path):
    path = tmp_path / "lock"
    with path.open("wb") as first:
        assert disk.try_lock(first)
        with path.open("rb") as second:
            assert not disk.try_lock(second)
            assert not disk.try_lock(second, shared=True)
    with path.open("rb") as first, path.open("rb") as second:
        assert disk.try_lock(first, shared=True)
        assert disk.try_lock(second, shared=True)
        assert not disk.try_lock(second)
