"""Names from outside, through every way in: none leaves its directory, none reaches SQL, a shell or a format string.

A name may be refused or be used as a name; either way nothing outside the places of the run is read, made or changed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

import ticklake
from ticklake import BatchInfo, Database, RunCompleted, SimulationMetadata, Table
from ticklake.cli import cli
from ticklake.config.options import NodeOptions
from ticklake.errors import TickLakeError
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.queries import query
from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch

RUN, TABLE, SECRET = "20251014-143025-550e8400", "organism_data", "the-secret-that-lies-outside"
SCHEMA = pa.schema([("tick_number", pa.int64())])
HOSTILE = [
    "",
    ".",
    "..",
    "../outside",
    "../../outside/secret",
    f"{RUN}/../../../outside/secret",
    "%2e%2e/%2e%2e/outside/secret",
    "..%2f..%2foutside%2fsecret",
    "..\\..\\outside\\secret",
    "/etc/passwd",
    "file:///etc/passwd",
    "~root",
    ".hidden",
    "nul\x00byte",
    "line\nbreak",
    "\x1b[2Jescape",
    "\u202egnp.exe",
    "\ud800",
    "$(touch taken)",
    "`touch taken`",
    "; touch taken #",
    "| touch taken",
    "x' OR '1'='1",
    "'; DROP TABLE topic_messages; --",
    '"; DROP TABLE topic_messages; --',
    '" UNION SELECT * FROM pg_shadow --',
    "%s %(topic)s :topic ?1",
    "{0} {self.__class__} {run_id!r:>999999}",
    "*",
    "--help",
    "<script>alert(1)</script>",
    "a" * 5000,
]


class Place:
    """The places of a run inside one folder, and a secret beside them."""

    def __init__(self, root: Path) -> None:
        self.root, self.inside = root, root / "inside"
        self.url = f"sqlite:///{self.inside / 'db'}"
        self.storage = Storage(self.inside / "storage")
        self.lake = Lake(self.inside / "lake")
        write_deltalake(str(self.lake.location(RUN, TABLE)), pa.table({"tick_number": pa.array([1], pa.int64())}))
        self.storage.write_metadata(SimulationMetadata(simulation_run_id=RUN))
        (root / "outside").mkdir()
        (root / "outside" / "secret").write_text(SECRET)
        (root / "working").mkdir()

    @property
    def catalog(self) -> Catalog:
        return Catalog(Path(str(self.lake.root)))

    def beside(self) -> dict[str, str]:
        """Everything that lies outside the run's places."""
        files = (path for path in self.root.rglob("*") if not path.is_relative_to(self.inside))
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in files}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.chdir(tmp_path / "working")
    return made


def with_topic(place: Place, name: str, use: str) -> None:
    with Database(place.url) as database:
        run = database.run(name if use == "run" else RUN)
        topic, group = (name if use == "topic" else "t"), (name if use == "group" else "g")
        with run.writer(topic) as writer, run.reader(topic, group=group) as reader:
            writer.send(BatchInfo(storage_key=name.encode(errors="replace").decode()))
            message = reader.poll(5)
            assert message is not None and reader.ack(message)


def in_topics(place: Place, name: str, ask: Callable[[Any], object]) -> object:
    with Database(place.url) as database:
        return ask(database.run(RUN))


WAYS: dict[str, Callable[[Place, str], object]] = {
    "storage, write metadata": lambda p, n: p.storage.write_metadata(SimulationMetadata(simulation_run_id=n)),
    "storage, write an end": lambda p, n: p.storage.write_completion(RunCompleted(simulation_run_id=n)),
    "storage, write a batch": lambda p, n: p.storage.write_batch(n, []),
    "storage, read metadata": lambda p, n: p.storage.read_metadata(n),
    "storage, read a key": lambda p, n: p.storage.open(n).read(),
    "storage, read a key of a run": lambda p, n: p.storage.open(f"{RUN}/{n}").read(),
    "storage, a batch by its key": lambda p, n: p.storage.batch(n),
    "storage, is it there": lambda p, n: p.storage.exists(f"{RUN}/{n}"),
    "storage, list": lambda p, n: p.storage.batches(n),
    "storage, go on after": lambda p, n: p.storage.batches(RUN, after=n),
    "storage, watch": lambda p, n: list(Watch(p.storage, n).look()),
    "lake, write a run": lambda p, n: p.lake.ledger(n, Table("t", SCHEMA, ("tick_number",))),
    "lake, write a table": lambda p, n: p.lake.ledger(RUN, Table(n, SCHEMA, ("tick_number",))),
    "lake, a table's directory": lambda p, n: Path(str(p.lake.location(RUN, n))).mkdir(parents=True),
    "lake, open a run": lambda p, n: p.catalog.open(n, TABLE).to_pyarrow_table(),
    "lake, open a table": lambda p, n: p.catalog.open(RUN, n).to_pyarrow_table(),
    "lake, facts": lambda p, n: p.catalog.facts(RUN, n),
    "read, a run": lambda p, n: ticklake.read(n, TABLE, lake=Path(str(p.lake.root))).to_arrow(),
    "read, a table": lambda p, n: ticklake.read(RUN, n, lake=Path(str(p.lake.root))).to_arrow(),
    "read, a column": lambda p, n: ticklake.read(RUN, TABLE, columns=[n], lake=Path(str(p.lake.root))).to_arrow(),
    "sql, a run": lambda p, n: query(p.catalog, "SELECT 1", n).__enter__(),
    "sql, a table": lambda p, n: query(p.catalog, f"FROM '{n}'").__enter__(),
    "topics, a run": lambda p, n: with_topic(p, n, "run"),
    "topics, a topic": lambda p, n: with_topic(p, n, "topic"),
    "topics, a group": lambda p, n: with_topic(p, n, "group"),
    "topics, browse": lambda p, n: in_topics(p, n, lambda run: run.browse(n, group=n)),
    "topics, reset": lambda p, n: in_topics(p, n, lambda run: run.groups.reset(n, n, n)),
    "topics, claims": lambda p, n: in_topics(p, n, lambda run: run.claims.list(topic=n, group=n, message_id=n)),
    "topics, prune": lambda p, n: in_topics(p, n, lambda run: run.remove_outdated(n, max_count=1)),
    "node, its name": lambda p, n: NodeOptions(name=n),
}
REFUSALS = (TickLakeError, ValueError)
TOLD = TickLakeError | OSError | UnicodeEncodeError | SystemExit
"""What `main` tells in a line."""


@pytest.mark.parametrize("way", WAYS)
def test_a_name_stays_where_it_belongs(place: Place, way: str) -> None:
    stays(place, WAYS[way])


@pytest.mark.parametrize(
    "way",
    [
        way if way in ("topics, a run", "topics, browse") else pytest.param(way, marks=pytest.mark.slow)
        for way in WAYS
        if way.startswith("topics")
    ],
)
def test_a_name_stays_where_it_belongs_on_postgres(place: Place, postgres_url: str, way: str) -> None:
    place.url = postgres_url
    stays(place, WAYS[way])


def stays(place: Place, way: Callable[[Place, str], object]) -> None:
    before = place.beside()
    for name in HOSTILE:
        try:
            told = repr(way(place, name))
        except REFUSALS as refusal:
            told = str(refusal)
        assert SECRET not in told, name
        assert "root:" not in told, name
        assert place.beside() == before, name
    assert place.catalog.tables(RUN)[-1:] == [TABLE]


def arguments(
    group: click.Group = cli, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """Every text that a command takes, but for places: these are the user's own to choose."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        if isinstance(command, click.Group):
            yield from arguments(command, (*words, word))
        elif command is not None and word not in ELSEWHERE:
            yield from (((*words, word), one) for one in command.params if one.type is click.STRING and takes(one))


ELSEWHERE = {"run", "ui", "demo", "init", "index"}  # they start servers or a Spark, or make a folder that is named
PLACES = {"--storage", "--lake", "--database", "--config", "--node", "--master"}


def takes(parameter: click.Parameter) -> bool:
    return parameter.opts[0] not in PLACES and not getattr(parameter, "is_flag", False)


@pytest.mark.parametrize(
    ("words", "parameter"), [pytest.param(*found, id=f"{' '.join(found[0])} {found[1].name}") for found in arguments()]
)
def test_an_argument_stays_what_it_is(place: Place, words: tuple[str, ...], parameter: click.Parameter) -> None:
    with_topic(place, "k", "key")
    command: Any = cli
    for word in words:
        command = command.get_command(click.Context(command), word)
    known = {"--storage": place.storage.url, "--lake": str(place.lake.root), "--database": place.url}
    before = place.beside()
    for name in (name for name in HOSTILE[1::2] if "\0" not in name):  # which no argument can have
        done = CliRunner().invoke(cli, [*words, *line(command, parameter, name, known)])
        assert isinstance(done.exception, TOLD | None), (name, done.exception)
        told = done.output + str(done.exception or "")
        assert SECRET not in told and "root:x" not in told, name
        assert place.beside() == before, name
    with Database(place.url) as database:
        assert RUN in database.runs()


def line(command: click.Command, hostile: click.Parameter, name: str, known: dict[str, str]) -> list[str]:
    """The command's arguments: good ones, and the name in one place."""
    given = [f"{option}={value}" for option, value in known.items() if any(option in p.opts for p in command.params)]
    if any(parameter.name == "once" for parameter in command.params):
        given.append("--once")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (parameter is hostile or parameter.required):
            given.append(f"{parameter.opts[0]}={name if parameter is hostile else '{}'}")
    return [*given, "--", *(name if p is hostile else RUN for p in command.params if isinstance(p, click.Argument))]


NO_DATABASE = [
    "",
    "sqlite",
    "sqlite:///",
    "file:///etc/passwd",
    "sqlite:///no; touch taken",
    "postgresql://$(touch taken)@/",
    "postgresql://h:1/'; DROP TABLE x; --",
    "jdbc:h2:mem",
    "\x00://",
    "x" * 5000,
]


@pytest.mark.parametrize("url", NO_DATABASE)
def test_a_database_that_is_none_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["topics", "tail", "t", f"--database={url}", f"--run={RUN}"])
    assert done.exit_code
    assert isinstance(done.exception, TickLakeError | SystemExit), repr(done.exception)
    assert not list(tmp_path.rglob("taken"))


def test_only_plain_names_are_tables_whatever_lies_in_the_lake(tmp_path: Path) -> None:
    for name in ('x" AS SELECT 1; --', "$(touch taken)", ".hidden", "a b", "ok"):
        write_deltalake(tmp_path / RUN / name, pa.table({"tick_number": pa.array([1], pa.int64())}))
    assert Catalog(tmp_path).tables(RUN) == ["ok"]
    with query(
        Catalog(tmp_path), "SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary"
    ) as result:
        assert list(result.rows) == [("ok",)]


@pytest.mark.parametrize(
    "table",
    [b"\x1b[2J", *(pytest.param(one, marks=pytest.mark.slow) for one in (b"\xff\xfe", b"line\nbreak", b"\xc2\x9b2J"))],
)
def test_an_error_is_one_line_that_a_terminal_can_show(table: bytes, tmp_path: Path) -> None:
    """The command itself, with names that would clear the screen or are no text."""
    arguments = [b"sql", b'FROM "' + table + b'"', b"--lake", str(tmp_path).encode()]
    command = [sys.executable, "-c", "from ticklake.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.isprintable()
