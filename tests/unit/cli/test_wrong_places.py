"""A place that is not there, or that is empty, through every option that names one: a command creates nothing in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from ticklake.cli import cli
from ticklake.config.templates import write_starter
from ticklake.errors import TickLakeError
from ticklake.events import IndexerQueue

Words = tuple[str, ...]

ELSEWHERE = {"demo", "init", "ui", "run"}
"""They create a directory that is named, or serve until they are stopped."""

CREATED = {
    *((command, place) for command in ("index", "analyze") for place in ("--lake", "--database")),
    ("index-events", "--lake"),
}
"""What a command is there to create: tables, and the place where processes agree who does what."""

PUBLISHING = {(("reconcile",), "--lake")}
"""The messages are right, whatever tables there are."""

PLACES = ("--config", "--storage", "--lake", "--database", "--events", "file")
VALUES = {"topic": "batch-topic", "group": "g", "query": "SELECT 1", "--to": "earliest", "--type": "BatchInfo"}
FLAGS = {"--apply", "--retry-failed", "--all", "--stuck", "--once", "--force", "--replace", "--ended"}


def commands(group: click.Group = cli, words: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, word))
        if word not in ELSEWHERE and (not isinstance(command, click.Group) or command.invoke_without_command):
            yield (*words, word), command


def places() -> Iterator[Any]:
    for words, command in commands():
        for parameter in command.params:
            if parameter.opts[0] in PLACES and (words[-1], parameter.opts[0]) not in CREATED:
                yield pytest.param(words, command, parameter, id=f"{' '.join(words)} {parameter.opts[0]}")


@pytest.fixture
def good(maker: Any, tmp_path: Path) -> dict[str, str]:
    """The places of a run with files, one of them not announced, a table, messages and an event queue."""
    maker.metadata()
    maker.publish(maker.batch(0, 9, cells=1))
    maker.batch(10, 19, cells=1)
    ticks = pa.table({"tick_number": pa.array(range(10), pa.int64())})
    write_deltalake(maker.folder("organism_data"), ticks)
    with IndexerQueue(tmp_path / "events.db"):
        pass
    return {
        "--storage": maker.storage.url,
        "--lake": str(maker.lake.root),
        "--database": maker.database_url,
        "--events": str(tmp_path / "events.db"),
        "file": str(write_starter(tmp_path / "good")),
        "run": maker.run_id,
        "--run": maker.run_id,
        **VALUES,
    }


def line(command: click.Command, wrong: click.Parameter, value: str, good: dict[str, str]) -> list[str]:
    """Arguments that do all that the command can do, with the wrong value in one place."""
    given: list[str] = []
    for one in command.params:
        name = one.opts[0]
        text = value if one is wrong else good.get(name)
        if isinstance(one, click.Argument):
            given += [text] if text and not name.startswith("message") else []
        elif getattr(one, "is_flag", False):
            given += [name] if name in FLAGS else []
        elif wrong.opts[0] == "--config" and name in PLACES:
            given += [f"{name}={value}"] if one is wrong else []
        elif text and (one is wrong or name != "--config"):
            given.append(f"{name}={text}")
    return given


def tree(root: Path) -> dict[str, str]:
    """Everything below, with what is in it; the shared memory of SQLite's readers is nobody's content."""
    files = (path for path in sorted(root.rglob("*")) if not path.name.endswith(("-shm", "-wal")))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in files}


@pytest.mark.parametrize("there", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["missing", "empty"])
@pytest.mark.parametrize(("words", "command", "wrong"), list(places()))
def test_nothing_is_created_in_a_place_that_was_named_by_mistake(
    good: dict[str, str], tmp_path: Path, words: Words, command: click.Command, wrong: click.Parameter, there: bool
):
    place = tmp_path / "typo"
    if there:
        place.mkdir()
    if there and wrong.opts[0] in ("--config", "file"):
        place = write_starter(place)  # a good configuration, none of whose places are there
    value = f"sqlite:///{place}" if wrong.opts[0] == "--database" else str(place)
    before = tree(tmp_path)
    done = CliRunner().invoke(cli, [*words, *line(command, wrong, value, good)], env={"COLUMNS": "200"})
    assert isinstance(done.exception, TickLakeError | OSError | SystemExit | None), done.exception
    elsewhere = {"database"} if (words, wrong.opts[0]) in PUBLISHING else set()
    changed = {name for name, content in tree(tmp_path).items() if before.get(name) != content}
    assert {name for name in changed if not elsewhere & set(Path(name).parts)} == set(), done.output
