"""A place that nothing here can use is refused in one line, wherever it is named, before anything is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ticklake import Database, Storage, read
from ticklake.checks.places import local_path
from ticklake.cli import cli
from ticklake.config import load
from ticklake.errors import BadValue, StorageLibraryMissing, UnknownDatabase, UnsupportedPlace
from ticklake.events import IndexerQueue
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.node.instance import Instance
from ticklake.services.compaction import CompactionService

RUN = "20251014-143025-550e8400"
NOWHERE = [
    "s3://bucket/lake",
    "S3://bucket/lake",
    "s3:/bucket/lake",
    "s3:bucket",
    " s3://bucket/lake",
    "./s3://bucket/lake",
    "s3a://bucket/lake",
    "gs://bucket/lake",
    "abfss://container@account/lake",
    "hdfs:",
    "hdfs://name/lake",
    "https://host/lake",
    "memory://lake",
    "simplecache::s3://bucket/lake",
    "file://host/lake",
    "file:lake",
    "file:///lake?x=1",
    "C:\\data\\lake",
    "C:/data/lake",
    "\\\\server\\lake",
    "nul\0byte",
    "",
    "  ",
]
# What a storage can be that a directory cannot: an object store, if its library is installed.
STORES = ("s3://bucket/lake", " s3://bucket/lake", "S3://bucket/lake", "gs://bucket/lake", "memory://lake")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is refused leaves nothing behind."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", NOWHERE)
@pytest.mark.parametrize(
    "use",
    [
        Lake,
        Catalog,
        CompactionService,
        IndexerQueue,
        lambda place: Instance(place, "node"),
        lambda place: read(RUN, "organism_data", lake=place),
        lambda place: read(f"{place}/{RUN}", "organism_data") if place.strip() else Lake(place),
        lambda place: Database(f"sqlite:///{place}"),
    ],
    ids=["Lake", "Catalog", "CompactionService", "IndexerQueue", "Instance", "read lake", "read run", "Database"],
)
def test_what_is_no_directory_of_this_machine_is_refused(use: Callable[[str], object], place: str) -> None:
    with pytest.raises((UnsupportedPlace, UnknownDatabase)) as refused:
        use(place)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("place", [place for place in NOWHERE if place not in STORES])
def test_a_storage_is_a_directory_or_a_known_object_store(place: str) -> None:
    with pytest.raises(UnsupportedPlace):
        Storage(place)


@pytest.mark.parametrize("url", ["s3://", "gs:///", "memory:"])
def test_an_object_store_needs_a_bucket(url: str) -> None:
    with pytest.raises(UnsupportedPlace):
        Storage(url)


@pytest.mark.parametrize("url", ["s3://bucket/runs", "S3://bucket/runs", "gs://bucket/runs"])
def test_a_store_without_its_library_says_which(url: str) -> None:
    with pytest.raises(StorageLibraryMissing, match=r"s3fs|gcsfs"):
        Storage(url)


def test_passwords_in_places_are_not_repeated() -> None:
    with pytest.raises(UnsupportedPlace) as refused:
        Lake("s3://key:secret@bucket/lake")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("lake", "lake"),
        ("/srv/lake", "/srv/lake"),
        ("./s3:/lake", "s3:/lake"),
        ("file:///srv/my%20lake", "/srv/my lake"),
        ("FILE:///srv/lake", "/srv/lake"),
        ("file://localhost/srv/lake", "/srv/lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("~/lake", str(Path.home() / "lake")),
        ("runs/a:b", "runs/a:b"),
    ],
)
def test_a_directory_of_this_machine_is_a_path_or_a_file_url(place: str, path: str) -> None:
    assert local_path(place, "A lake") == Path(path)


@pytest.mark.parametrize("name", ["a%20b", "50%ff", "a\\b", os.fsdecode(b"l\xe9ke")])
@pytest.mark.parametrize("use", [Lake, Catalog, CompactionService])
def test_a_lake_that_delta_would_look_for_elsewhere_is_refused(
    tmp_path: Path, use: Callable[[Path], object], name: str
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UnsupportedPlace) as refused:
        use(tmp_path / name)
    assert str(refused.value).isprintable()


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        elif command is not None:
            yield (*before, name), command


PLACES = ("--storage", "--lake", "--database", "--directory")
OPTIONS = [
    (" ".join(path), option.opts[0])
    for path, command in commands(cli)
    for option in command.params
    if isinstance(option, click.Option) and option.opts[0] in PLACES
]


MORE = {
    "claims release": ["--stuck"],
    "dead-letters discard": ["--all"],
    "dead-letters replay": ["--all"],
    "groups reset": ["--to", "earliest"],
    "topics send": ["--json", "{}"],
    "index-events": ["--events", __file__],  # any file: it is not read before the places are known
}


def arguments(command: click.Command) -> list[str]:
    return [
        RUN if argument.name and "run" in argument.name else "x"
        for argument in command.params
        if isinstance(argument, click.Argument) and argument.required
    ]


@pytest.mark.parametrize("place", ["ftp://host/lake", "s3:/bucket", "D:\\lake"])
@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_command_refuses_a_place_that_it_cannot_use(
    name: str, option: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TICKLAKE_STORAGE", "TICKLAKE_LAKE", "TICKLAKE_DATABASE"):
        monkeypatch.delenv(variable, raising=False)
    command = {" ".join(path): command for path, command in commands(cli)}[name]
    elsewhere = {"--storage": tmp_path / "s", "--lake": tmp_path / "l", "--database": f"sqlite:///{tmp_path}/d"}
    for folder in ("s", "l", "d"):
        (tmp_path / folder).mkdir()
    given = [
        f"{one}={place if one == option else elsewhere[one]}"
        for one in (parameter.opts[0] for parameter in command.params)
        if one == option or one in elsewhere
    ]
    done = CliRunner().invoke(cli, [*name.split(), *given, *arguments(command), *MORE.get(name, [])])
    if (name, option) == ("doctor", "--database"):  # one finding among others
        assert done.exit_code == 1
        return
    assert isinstance(done.exception, UnsupportedPlace | UnknownDatabase), (done.output, repr(done.exception))


def test_init_refuses_a_url() -> None:
    done = CliRunner().invoke(cli, ["init", "s3://bucket/node"])
    assert isinstance(done.exception, UnsupportedPlace)


@pytest.mark.parametrize("place", ["ftp://host/x", "s3:/bucket", "D:/lake", "hdfs:"])
@pytest.mark.parametrize(
    "text",
    [
        'resources.x {{ class = Lake, path = "{place}" }}',
        'resources.x {{ class = Lake, path = "${{PLACE}}" }}',
        'resources.x {{ class = Storage, path = "{place}" }}',
        'resources.x {{ class = Database, url = "{place}" }}',
        'resources.x {{ class = Database, url = "sqlite:///{place}" }}',
        'resources.x {{ class = Topic, url = "{place}" }}',
        'node.directory = "{place}"',
    ],
)
def test_every_key_of_a_configuration_refuses_it_too(
    text: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", place)
    file = tmp_path / "node.conf"
    file.write_text(text.format(place=place))
    with pytest.raises(BadValue, match=r"node.conf:1: .*(not supported|must be sqlite:///|Windows)"):
        load(file)


def test_a_lake_in_a_bucket_is_refused_by_check_and_a_file_url_is_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    file.write_text('resources.x { class = Lake, path = "s3://bucket/lake" }')
    with pytest.raises(BadValue, match="s3 is not supported"):
        load(file)
    file.write_text('resources.x { class = Lake, path = "file:///srv/lake" }')
    assert load(file).resources["x"].options.path == "/srv/lake"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        ["index", RUN, "--storage", "s", "--lake", "s3://bucket/lake"],
        pytest.param(["status", "--storage", "s3://bucket/runs"], marks=pytest.mark.slow),
        pytest.param(["runs", "--storage", "nosuch://bucket/runs"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_the_command_itself_says_it_in_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "from ticklake.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
