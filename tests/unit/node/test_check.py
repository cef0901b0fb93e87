"""`config check` and `run` are of one opinion: check builds what run builds, and creates nothing."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ticklake import Database
from ticklake.cli import cli
from ticklake.cli.pipeline.run import build
from ticklake.config.bindings import USAGES
from ticklake.config.classes import SERVICES
from ticklake.config.hocon.document import read
from ticklake.config.templates import REFERENCE, STARTER
from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import (
    BindingMissing,
    GroupFillsTwoTables,
    PostgresMissing,
    SourceMissing,
    TickLakeError,
    TokenMissing,
    TokenTooShort,
    TwoProducers,
    TwoSources,
    UnknownIndexer,
    UnsafeRunId,
)
from ticklake.indexers.base import Indexer, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.lake import Lake
from ticklake.node.node import Node
from ticklake.storage.files import Storage

RUN = "20251014-143025-550e8400"
PLACES = """
    d { class = Database, path = d }, t { class = Topic, database = d }
    s { class = Storage, path = s }, q { class = Queue }
"""
TOPIC, COORDINATOR = 'topic = "topic-read:t?consumerGroup=g"', 'coordinator = "db-coordinator:d"'
OWN = """
import pyarrow as pa
from ticklake import BatchIndexer, Table
from ticklake.indexers.components import Components
class Counting(BatchIndexer):
    def components(self):
        return Components()
class WithoutRows(BatchIndexer):
    table = Table("ticks_seen", key=("tick_number",), schema=pa.schema([("tick_number", pa.int64())]))
class Fine(WithoutRows):
    @staticmethod
    def rows(ticks, world):
        return ticks.select(["tick_number"])
class NoIndexer:
    pass
"""


def service(kind: str, *bindings: str, options: str = "", more: str = "") -> str:
    return f"""resources {{ {PLACES} {more} }}
        services.x {{ class = "{kind}", resources {{ {", ".join(bindings)} }}, options {{ {options} }} }}"""


def two(kind: str, more: str, options: str = "") -> str:
    """An environment indexer and another one, which read as one consumer group."""
    other = f'services.y {{ class = "{kind}", resources {{ {TOPIC} }}, options {{ {options} }} }}'
    return service("EnvironmentIndexer", TOPIC, options=f'run_id = "{RUN}"', more=more) + "\n" + other


LAKE = "l { class = Lake, path = l }"
OTHER_LAKE = "m { class = Lake, path = m }"
WRONG = {
    "an indexer without a lake": (service("EnvironmentIndexer", TOPIC), BindingMissing),
    "metadata without a lake": (service("MetadataIndexer", TOPIC), BindingMissing),
    "an own indexer with a table and no lake": (service("own:Fine", TOPIC), BindingMissing),
    "one of two lakes": (service("EnvironmentIndexer", TOPIC, more=LAKE + OTHER_LAKE), BindingMissing),
    "nothing to read from": (service("EnvironmentIndexer", more=LAKE), SourceMissing),
    "nothing to count": (service("DummyIndexer"), SourceMissing),
    "metadata from nowhere": (service("MetadataIndexer", more=LAKE), SourceMissing),
    "metadata from a coordinator": (service("MetadataIndexer", COORDINATOR, more=LAKE), SourceMissing),
    "two to read from": (service("OrganismIndexer", TOPIC, COORDINATOR, more=LAKE), TwoSources),
    "two to count": (service("DummyIndexer", TOPIC, COORDINATOR), TwoSources),
    "no such module": (service("nowhere:Indexer", TOPIC, more=LAKE), UnknownIndexer),
    "a module that is no Python": (service("broken:Indexer", TOPIC, more=LAKE), UnknownIndexer),
    "a module that raises": (service("raising:Indexer", TOPIC, more=LAKE), UnknownIndexer),
    "a module that exits": (service("leaving:Indexer", TOPIC, more=LAKE), UnknownIndexer),
    "no such class": (service("own:Indexer", TOPIC, more=LAKE), UnknownIndexer),
    "no indexer": (service("own:NoIndexer", TOPIC, more=LAKE), UnknownIndexer),
    "a table without rows": (service("own:WithoutRows", TOPIC, more=LAKE), UnknownIndexer),
    "a run id that is none": (service("DummyIndexer", TOPIC, options='run_id = "../x"'), UnsafeRunId),
    "a run of compaction": (service("CompactionService", more=LAKE, options='run_id = "a/b"'), UnsafeRunId),
    "two simulations": (
        f"resources {{ {PLACES} }}, services {{ simulation {{ }}, simulation-2 {{ }} }}",
        TwoProducers,
    ),
    "one group for two tables": (two("OrganismIndexer", more=LAKE), GroupFillsTwoTables),
    "one group for a table and none": (two("DummyIndexer", more=LAKE), GroupFillsTwoTables),
    "an address for all": (service("DummyIndexer", TOPIC) + '\nnode.http { host = "0.0.0.0", port = 0 }', TokenMissing),
}
RIGHT = {
    "counting needs no lake": service("DummyIndexer", TOPIC),
    "counting with a coordinator": service("DummyIndexer", COORDINATOR),
    "counting beside two lakes": service("DummyIndexer", TOPIC, more=LAKE + OTHER_LAKE),
    "the smallest": service("MinimalBatchIndexer", TOPIC),
    "an own indexer without a table": service("own:Counting", TOPIC),
    "an own indexer": service("own:Fine", TOPIC, more=LAKE),
    "by coordinator": service("EnvironmentIndexer", COORDINATOR, more=LAKE),
    "all runs by coordinator": service("EnvironmentIndexer", COORDINATOR, more=LAKE, options="runs = all"),
    "metadata beside a coordinator": service("MetadataIndexer", TOPIC, COORDINATOR, more=LAKE),
    "one group for one table": two("EnvironmentIndexer", more=LAKE),
    "one group in two runs": two("OrganismIndexer", more=LAKE, options=f'run_id = "{RUN[:-1]}1"'),
    "with http": service("DummyIndexer", TOPIC) + "\nnode.http.port = 0",
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a configuration into a folder of its own; `own` is a module beside it."""
    monkeypatch.delenv("TICKLAKE_TOKEN", raising=False)
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "own.py").write_text(OWN)
    (modules / "broken.py").write_text("class Indexer(\n")
    (modules / "raising.py").write_text("\n1 / 0\n")
    (modules / "leaving.py").write_text("raise SystemExit(5)\n")
    monkeypatch.syspath_prepend(str(modules))

    def write(text: str) -> Path:
        (tmp_path / "node").mkdir()
        file = tmp_path / "node" / "node.conf"
        file.write_text(text)
        return file

    return write


def outcome(command: list[str]) -> TickLakeError | None:
    done = CliRunner().invoke(cli, command)
    if done.exception is None:
        return None
    assert isinstance(done.exception, TickLakeError), (done.output, repr(done.exception))
    return done.exception


@pytest.mark.parametrize("name", WRONG)
def test_what_run_would_refuse_check_refuses_in_the_same_words(name: str, conf: Callable[[str], Path]) -> None:
    text, error = WRONG[name]
    file = conf(text)
    checked = outcome(["config", "check", str(file)])
    assert type(checked) is error
    assert str(outcome(["run", str(file)])) == str(checked)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("name", RIGHT)
def test_check_creates_nothing_and_starts_nothing(name: str, conf: Callable[[str], Path]) -> None:
    file = conf(RIGHT[name])
    before = psutil.Process().children(recursive=True)
    assert outcome(["config", "check", str(file)]) is None
    assert list(file.parent.iterdir()) == [file]
    assert psutil.Process().children(recursive=True) == before


def test_a_token_that_is_too_short_is_told_by_check(conf: Callable[[str], Path], monkeypatch: Any) -> None:
    monkeypatch.setenv("TICKLAKE_TOKEN", "short")
    file = conf(RIGHT["with http"])
    assert type(outcome(["config", "check", str(file)])) is TokenTooShort


ALL = (
    service("EnvironmentIndexer", TOPIC, more=LAKE)
    + """
    services.persistence { class = PersistenceService, resources { t = "topic-write:t" } }
    node.directory = n"""
)
KEYS = {"d": "resources.d.url", "s": "resources.s.path", "l": "resources.l.path", "n": "node.directory"}


def refused_alike(file: Path) -> str:
    """What check says, in one line, which is what run says too."""
    before = sorted(file.parent.rglob("*"))
    checked = outcome(["config", "check", str(file)])
    assert checked is not None
    assert str(outcome(["run", str(file)])) == str(checked)
    assert sorted(file.parent.rglob("*")) == before
    assert "\n" not in str(checked)
    return str(checked)


@pytest.mark.parametrize("name", KEYS)
def test_a_file_where_a_directory_belongs_is_named_with_its_option(name: str, conf: Callable[[str], Path]) -> None:
    file = conf(ALL)
    (file.parent / name).write_text("a file")
    assert f"{KEYS[name]}: {file.parent / name} is not a directory. Move it away, or choose" in refused_alike(file)


@pytest.mark.parametrize("name", KEYS)
def test_a_file_above_a_directory_is_named_with_its_option(name: str, conf: Callable[[str], Path]) -> None:
    file = conf(re.sub(rf"(path|directory) = {name}\b", rf"\1 = x/y/{name}", ALL))
    (file.parent / "x").write_text("a file")
    place = file.parent / "x" / "y" / name
    assert f"{KEYS[name]}: {place} cannot be created: {file.parent / 'x'} is not a directory." in refused_alike(file)


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_a_directory_that_cannot_be_written_to_is_named_with_its_option(
    name: str, made: bool, conf: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = conf(re.sub(rf"(path|directory) = {name}\b", rf"\1 = {name}/z", ALL))
    place = file.parent / name / "z"
    (place if made else place.parent).mkdir(parents=True)
    closed, allowed = place if made else place.parent, os.access
    monkeypatch.setattr("os.access", lambda path, mode: allowed(path, mode) and Path(path) != closed)
    said = refused_alike(file)
    assert f"{KEYS[name]}: {place} {'is not writable' if made else 'cannot be created'}" in said
    assert str(closed) in said and "or choose another directory" in said


def test_who_only_reads_a_storage_need_not_write_to_it(conf: Callable[[str], Path], monkeypatch: Any) -> None:
    file = conf(service("EnvironmentIndexer", TOPIC, more=LAKE))
    (file.parent / "s").mkdir()
    allowed, closed = os.access, file.parent / "s"
    monkeypatch.setattr(
        "os.access", lambda path, mode: allowed(path, mode) and not (Path(path) == closed and mode & os.W_OK)
    )
    assert outcome(["config", "check", str(file)]) is None
    monkeypatch.setattr("os.access", lambda path, mode: allowed(path, mode) and Path(path) != closed)
    assert f"resources.s.path: {closed} is not readable" in refused_alike(file)


def test_a_place_that_leads_to_a_directory_by_a_link_is_fine(conf: Callable[[str], Path], tmp_path: Path) -> None:
    file = conf(ALL)
    (file.parent / "l").symlink_to(tmp_path)
    assert outcome(["config", "check", str(file)]) is None
    (file.parent / "s").symlink_to(tmp_path / "nowhere")
    assert f"{file.parent / 's'} is not a directory" in refused_alike(file)


@pytest.mark.parametrize(
    "host", ["nowhere.invalid", "192.0.2.1", "2001:db8::1", "a" * 70, "a..b", "[::1]", "1.2.3.4.5"]
)
def test_a_host_that_cannot_be_listened_on_is_told_to_be_the_host(
    host: str, conf: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKLAKE_TOKEN", "a token that is long enough")
    said = refused_alike(conf(RIGHT["with http"] + f'\nnode.http.host = "{host}"'))
    assert f"HTTP cannot listen on host {host!r}: " in said
    assert "node.http.host" in said and "node.http.port" not in said


def test_a_database_without_its_library_is_one_line(monkeypatch: Any) -> None:
    for module in ("ticklake.database.postgres", "ticklake.database.postgres.backend", "psycopg", "psycopg_pool"):
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(PostgresMissing, match="psycopg"):
        Database("postgresql://host/db")


# Configurations that are made from the examples by a few changes.

SEEDS = Path(__file__).parents[4] / "shared" / "seeds"
GOOD = sorted((Path(__file__).parents[1] / "config" / "good").glob("*.conf"))
PLACE_KEYS = {"url", "jdbcUrl", "dbPath", "path", "rootDirectory"}
CLASSES = [*SERVICES, "own:Counting", "own:Fine", "own:WithoutRows", "nowhere:Indexer"]


def section_of(tree: dict[str, Any]) -> dict[str, Any]:
    for key in ("evochora", "datapipeline", "pipeline"):
        tree = tree.get(key, tree)
    return tree


def examples() -> Iterator[dict[str, Any]]:
    for file in (STARTER, REFERENCE, *GOOD):
        yield copy.deepcopy(section_of(read(file).tree))


EXAMPLES = [one for one in examples() if one.get("services")]
CHANGES = st.one_of(
    st.tuples(st.just("drop service"), st.integers(0, 20)),
    st.tuples(st.just("drop resource"), st.integers(0, 20)),
    st.tuples(st.just("drop binding"), st.integers(0, 20), st.integers(0, 5)),
    st.tuples(st.just("bind"), st.integers(0, 20), st.sampled_from(sorted(USAGES)), st.integers(0, 20)),
    st.tuples(st.just("class"), st.integers(0, 20), st.sampled_from(CLASSES)),
    st.tuples(st.just("run id"), st.integers(0, 20), st.sampled_from([RUN, "", "a/b", "..", "x" * 300])),
)


def changed(tree: dict[str, Any], change: tuple[Any, ...]) -> None:
    services, resources = tree.get("services", {}), tree.get("resources", {})
    kind, number, *rest = change
    if kind == "drop resource" and resources:
        del resources[sorted(resources)[number % len(resources)]]
    blocks = sorted(name for name, body in services.items() if isinstance(body, dict))
    if not blocks or kind == "drop resource":
        return
    name = blocks[number % len(blocks)]
    bindings = services[name].setdefault("resources", {})
    if kind == "drop service":
        del services[name]
    elif kind == "drop binding" and bindings:
        del bindings[sorted(bindings)[rest[0] % len(bindings)]]
    elif kind == "bind" and resources:
        usage, other = rest
        group = "?consumerGroup=g" if usage == "topic-read" else ""
        bindings[f"more-{usage}"] = f"{usage}:{sorted(resources)[other % len(resources)]}{group}"
    elif kind == "class":
        services[name] = {"class": rest[0], "resources": bindings}
    elif kind == "run id":
        services[name].setdefault("options", {})["run_id"] = rest[0]


def moved_into(tree: dict[str, Any], folder: Path) -> None:
    """Every place into one folder, and every indexer to a run that has metadata and no batches: nothing is flushed."""
    for name, body in tree.get("resources", {}).items():
        options = body.get("options") or body
        kind = re.split(r"\.", str(body.get("class") or body.get("className") or body.get("type")))[-1]
        for key in [key for key in options if key in PLACE_KEYS and options[key] is not None]:
            del options[key]
            place = {"Lake": "lake", "Storage": "storage"}
            fits = [found for word, found in place.items() if word in kind]
            options["path" if fits else "url"] = str(folder / (fits[0] if fits else f"db-{name}"))
        options.pop("password", None)
        options.pop("username", None)
    services = tree.setdefault("services", {})
    for key in [key for key, body in services.items() if not isinstance(body, dict)]:
        del services[key]
    for body in services.values():
        options = body.get("options") or {}
        for key in [key for key in options if key in ("run_id", "runId") and options[key] is None]:
            del options[key]
    services["runId"] = RUN
    tree.setdefault("node", {})["directory"] = str(folder / "node")


def settled(node: Node) -> bool:
    """Whether each indexer is at work on its run, or has ended."""
    indexers = [one for one in node.services.values() if isinstance(one, Indexer)]
    working = [one for one in indexers if isinstance(one, BatchIndexer) and one.reading]
    return all(one in working or one.join(0) for one in indexers)


@settings(max_examples=3 * settings().max_examples // 5)
@given(start=st.sampled_from(EXAMPLES), changes=st.lists(CHANGES, max_size=4))
@example(start=EXAMPLES[0], changes=[])
@example(start=EXAMPLES[1], changes=[])
def test_check_is_fine_exactly_where_run_gets_past_building(
    start: dict[str, Any], changes: list[tuple[Any, ...]], eventually: Callable[..., None], own_module: None
) -> None:
    tree = copy.deepcopy(start)
    for change in changes:
        changed(tree, change)
    with TemporaryDirectory() as name:
        folder = Path(name)
        moved_into(tree, folder)
        file = folder / "node.conf"
        file.write_text(json.dumps(tree, default=lambda pause: f"{pause.seconds + 60 * pause.minutes} s"))
        refused = outcome(["config", "check", str(file)])
        event(type(refused).__name__)
        assert list(folder.iterdir()) == [file]
        if refused is not None:
            assert str(outcome(["run", str(file)])) == str(refused)
            assert list(folder.iterdir()) == [file]
            return
        prepare(folder)
        node = build(str(file))
        node.start()
        try:
            eventually(lambda: settled(node))
        finally:
            node.stop()
        assert [(one.name, repr(one.error)) for one in node.services.values() if one.error] == []


@pytest.fixture(scope="module")
def own_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "own.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delenv("TICKLAKE_TOKEN", raising=False)
        yield


def prepare(folder: Path) -> None:
    storage, lake = Storage(folder / "storage"), Lake(folder / "lake")
    world = EnvironmentConfig(dimensions=2, shape=[4, 4], toroidal=[True, True])
    storage.write_metadata(SimulationMetadata(simulation_run_id=RUN, environment=world, sampling_interval=1))
    MetadataIndexer("metadata-indexer", IndexerResources(storage, lake)).write(RUN)
