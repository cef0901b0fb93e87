"""The packaged configurations: the reference documents every option, the starter runs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from ticklake.config import load
from ticklake.config import rendering as showing
from ticklake.config.classes import ANALYTICS, RESOURCES, SERVICES
from ticklake.config.hocon.document import read
from ticklake.config.options import NodeOptions, Options
from ticklake.config.templates import REFERENCE, STARTER, write_starter
from ticklake.errors import ConfigExists

MODELS: dict[type[Options], str] = {model: f"resources.{name}" for name, model in RESOURCES.items()} | {
    service.options: f"services.{name}" for name, service in SERVICES.items()
}


@cache
def documented() -> dict[type[Options], dict]:
    """The options written out in the reference, by the model they belong to."""
    tree = read(REFERENCE).tree
    models = RESOURCES | {name: found.options for name, found in SERVICES.items()}
    blocks = [*tree["resources"].values(), *tree["services"].values()]
    return {models[block["class"]]: block["options"] for block in blocks if "options" in block}


@pytest.mark.parametrize("model", MODELS, ids=MODELS.values())
def test_every_option_is_documented_with_its_default(model):
    assert_documented(model, documented()[model])


def test_every_option_of_the_node_is_documented_with_its_default():
    assert_documented(NodeOptions, read(REFERENCE).tree["node"])
    defaults = NodeOptions.model_validate({}, context={"base": REFERENCE.parent})
    assert load(REFERENCE).node == defaults


def assert_documented(model: type[Options], written: dict) -> None:
    assert sorted(written) == sorted(model.model_fields)
    for name, field in model.model_fields.items():
        if isinstance(field.default, Options) and not field.default.free:
            assert_documented(type(field.default), written[name])


def test_the_documented_values_are_the_defaults():
    settings = load(REFERENCE)
    for element in [*settings.resources.values(), *settings.services.values()]:
        required = {name for name, field in type(element.options).model_fields.items() if field.is_required()}
        chosen = required | ({"database"} if element.class_name == "Topic" else set())
        given = {name: getattr(element.options, name) for name in chosen}
        assert element.options == type(element.options)(**given), element.name


@pytest.mark.parametrize("file", [REFERENCE, STARTER], ids=["reference", "starter"])
def test_it_loads_and_lacks_nothing(file):
    settings = load(file)
    settings.check_complete()
    assert set(SERVICES) - {found.class_name for found in settings.services.values()} <= {
        "OrganismIndexer", "DummyIndexer", "MinimalBatchIndexer", "SimpleBatchIndexer", "ReconciliationService",
        "EventIndexer", *ANALYTICS,
    }  # fmt: skip


@pytest.mark.parametrize("file", [REFERENCE, STARTER], ids=["reference", "starter"])
def test_what_is_shown_loads_to_the_same_settings(file, load_text):
    settings = load(file)
    again = load_text(showing.show(settings, origin=True), before="")
    assert again.node == settings.node
    assert {name: found.options for name, found in again.resources.items()} == {
        name: found.options for name, found in settings.resources.items()
    }
    assert {name: (found.class_name, found.bindings, found.options) for name, found in again.services.items()} == {
        name: (found.class_name, found.bindings, found.options) for name, found in settings.services.items()
    }


def test_origins_tell_file_and_line_or_default(load_text):
    shown = showing.show(load_text("services { dummy-indexer {\n insertBatchSize = 5 } }"), origin=True)
    (given,) = [line for line in shown.splitlines() if "insert_batch_size = 5" in line]
    (default,) = [line for line in shown.splitlines() if "flush_timeout_ms" in line]
    assert given.endswith("node.conf:11")
    assert re.search(r"# default, reference.conf:(\d+)$", default)
    line = int(default.rpartition(":")[2])
    assert "flush_timeout_ms = 5000" in REFERENCE.read_text(encoding="utf-8").splitlines()[line - 1]


def test_origins_tell_what_the_environment_gave_and_what_holds_for_all(load_text, monkeypatch):
    monkeypatch.setenv("THE_SIZE", "7")
    text = """services { runId = "r"
        dummy-indexer { insertBatchSize = 5
          insertBatchSize = ${?THE_SIZE}
          flushTimeoutMs = 3
          flushTimeoutMs = ${?NOT_SET_ANYWHERE} }
        persistence-service { retry { max_attempts = 2 } } }"""
    shown = [line.strip() for line in showing.show(load_text(text), origin=True).splitlines()]

    def origin(start: str) -> str:
        return next(line for line in shown if line.startswith(start)).partition("# ")[2]

    assert re.fullmatch(r"environment THE_SIZE in .*node.conf:12", origin("insert_batch_size = 7"))
    assert origin("flush_timeout_ms = 3").endswith("node.conf:13")
    assert origin('run_id = "r"').endswith("node.conf:10")
    assert origin("max_attempts = 2").endswith("node.conf:15")
    assert origin("first_delay_ms = 100").startswith("default, reference.conf:")


def test_init_writes_the_starter_and_never_over_anything(tmp_path):
    file = write_starter(tmp_path / "new" / "folder")
    load(file).check_complete()
    file.write_text("mine")
    with pytest.raises(ConfigExists, match="was not changed"):
        write_starter(file.parent)
    assert file.read_text() == "mine"


def test_every_example_of_the_documentation_loads(load_text):
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    examples = re.findall(r"^```hocon\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        load_text(example, before="").check_complete()
