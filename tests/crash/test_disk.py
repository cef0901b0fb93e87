"""The model of a disk that the power cuts are tried on: what it keeps, what it may lose, what strace's lines mean."""

from __future__ import annotations

import re
from pathlib import Path

import disk
import pytest
from disk import ROOT, Cut, Event, Folder, Mark, Naming, Resize, Sync, Write
from recording import Reader, Unmodelled

NAMED: list[Event] = [Naming(((ROOT, "a", 1),)), Write(1, 0, b"old"), Sync(1, 2), Sync(ROOT, 2)]


def after(events: list[Event], style: str = "strict", seed: int = 0) -> dict[str, bytes]:
    folders, files = disk.image(events, Cut(len(events), style, seed))
    return {name: files.get(inode, b"") for name, inode in folders[ROOT].items()}


def outcomes(events: list[Event], style: str) -> list[dict[str, bytes]]:
    return [after(events, style, seed) for seed in range(200)]


def test_what_was_synced_stays_whatever_the_style() -> None:
    for style in disk.STYLES:
        assert {tuple(found.items()) for found in outcomes(NAMED, style)} == {(("a", b"old"),)}


def test_data_that_was_not_synced_is_lost_and_so_is_a_name() -> None:
    assert after([*NAMED, Write(1, 3, b" new")]) == {"a": b"old"}
    assert after([Naming(((ROOT, "a", 1),)), Write(1, 0, b"old"), Sync(1, 2)]) == {}


def test_a_file_whose_name_alone_was_synced_is_empty() -> None:
    assert after([Naming(((ROOT, "a", 1),)), Write(1, 0, b"old"), Sync(ROOT, 2)]) == {"a": b""}


def test_a_sync_covers_only_what_had_happened_when_it_began() -> None:
    assert after([Naming(((ROOT, "a", 1),)), Sync(ROOT, 1), Write(1, 0, b"x"), Sync(1, 2)]) == {"a": b""}


def test_a_rename_happens_to_both_names_or_to_none() -> None:
    moved: list[Event] = [*NAMED, Naming(((ROOT, "a", None), (ROOT, "b", 1)))]
    assert after(moved) == {"a": b"old"}
    assert after([*moved, Sync(ROOT, 5)]) == {"b": b"old"}


def test_a_prefix_ends_in_the_middle_of_a_write_where_a_block_begins() -> None:
    long: list[Event] = [*NAMED, Write(1, 3, b"x" * 10_000), Write(1, 10_003, b"y")]
    lengths = {len(found["a"]) for found in outcomes(long, "prefix")}
    assert {3, 4096, 10_003, 10_004} <= lengths
    assert any(size % 4096 == 512 for size in lengths)
    assert all(size in (3, 10_003, 10_004) or size % 512 == 0 for size in lengths)


def test_scattered_blocks_leave_holes_of_zeros() -> None:
    long: list[Event] = [*NAMED, Write(1, 3, b"x" * 10_000)]
    assert any(b"\0" * 512 in found["a"] and found["a"].endswith(b"x") for found in outcomes(long, "scattered"))


def test_a_truncation_that_was_not_synced_may_or_may_not_have_happened() -> None:
    assert {found["a"] for found in outcomes([*NAMED, Resize(1, 1)], "scattered")} == {b"o", b"old"}


def test_a_file_with_two_names_is_built_as_one(tmp_path: Path) -> None:
    events: list[Event] = [
        *NAMED, Folder(2), Naming(((ROOT, "f", 2),)), Naming(((2, "b", 1),)), Sync(ROOT, 7), Sync(2, 7),
    ]  # fmt: skip
    disk.build(tmp_path / "root", *disk.image(events, Cut(len(events), "strict")))
    assert (tmp_path / "root/a").samefile(tmp_path / "root/f/b")


def test_lines_of_strace_become_events_also_where_threads_interrupt_each_other() -> None:
    reader = Reader("/r", "/marks")
    for line in (
        'openat(AT_FDCWD<x>, "/r/a", O_WRONLY|O_CREAT|O_EXCL) = 3</r/a>',
        'write(3</r/a>, "hello", 5) = 5',
        "fsync(3</r/a> <unfinished ...>",
        'write(3</r/a>, "!", 1) = 1',
        "<... fsync resumed>) = 0",
        'write(9</marks>, "safe\n", 5) = 5',
        'pwrite64(3</r/a>, "J", 1, 0) = 1',
        'link("/r/a", "/r/b") = 0',
        'unlink("/r/a") = 0',
        'unlink("/r/a") = -1 ENOENT (No such file or directory)',
        "fsync(4</r>) = 0",
        'write(5</elsewhere>, "x", 1) = 1',
    ):
        reader.take(_as_strace_writes(line))
    assert reader.events == [
        Naming(((ROOT, "a", 1),)), Write(1, 0, b"hello"), Write(1, 5, b"!"), Sync(1, 2), Mark("safe"),
        Write(1, 0, b"J"), Naming(((ROOT, "b", 1),)), Naming(((ROOT, "a", None),)), Sync(ROOT, 8),
    ]  # fmt: skip


def test_what_the_model_does_not_know_is_refused() -> None:
    reader = Reader("/r", "/marks")
    with pytest.raises(Unmodelled, match="fallocate"):
        reader.take(_as_strace_writes("fallocate(3</r/a>, 0, 0, 100) = 0"))


def _as_strace_writes(line: str) -> str:
    """With every byte of a text and of a path as its number, and a thread of its own for what is interrupted."""
    line = re.sub(r'"([^"]*)"', lambda found: f'"{_numbers(found[1])}"', line)
    line = re.sub(r"(?<=[\dD])<([^>]*)>", lambda found: f"<{_numbers(found[1])}>", line)
    return f"{1 if 'fsync' in line else 2} {line}"


def _numbers(text: str) -> str:
    return "".join(f"\\x{ord(character):02x}" for character in text)


def test_cuts_are_the_same_for_the_same_seed() -> None:
    from powercut import chosen

    events: list[Event] = [*NAMED, Mark("m")] * 20
    assert chosen(events, 30, 1) == chosen(events, 30, 1) != chosen(events, 30, 2)
