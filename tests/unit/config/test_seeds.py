"""Every configuration example of the seeds loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ticklake.config import load

SEEDS = Path(__file__).parents[4] / "shared" / "seeds"
GOOD = Path(__file__).parent / "good"
EXAMPLE = re.compile(r"^```hocon\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What the examples refer to and leave out.
AROUND = """
resources {
  tick-storage   { class = Storage, path = storage }
  index-database { class = H2Database, dbPath = db }
  h2-local       { class = H2Database, dbPath = db }
  postgres-cloud { class = Database, url = "postgresql://host/db" }
  batch-topic    { class = Topic, database = index-database }
  metadata-topic { class = Topic, database = index-database }
}
"""


def examples() -> list[pytest.param]:
    found = []
    for seed in sorted(SEEDS.glob("*.txt")):
        text = seed.read_text(encoding="utf-8")
        for match in EXAMPLE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(pytest.param(match[1], id=f"{seed.stem[:3]}-line-{line}"))
    return found


def wrapped(example: str) -> str:
    """Fragments get the block around them that the text they stand in implies."""
    first = next(line for line in example.splitlines() if line.strip() and not line.strip().startswith("#"))
    if first.startswith("resources"):
        return (
            AROUND.replace("  batch-topic", "  # batch-topic").replace("  metadata-topic", "  # metadata-topic")
            + example
        )
    if first.startswith("evochora"):
        around = AROUND if "services" in example else ""
        return f"evochora {{ datapipeline {{ {around} }} }}\n{example}"
    if first.startswith("claimTimeout"):
        return f"resources {{ t {{ class = H2TopicResource, dbPath = x\n {example} }} }}"
    if "db-coordinator:" in first:
        return f"{AROUND} services {{ dummy-indexer {{ resources {{ {example} }} }} }}"
    return f"{AROUND} services {{ {example} }}"


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seeds are not beside this repository")
def test_the_seeds_have_examples():
    assert len(examples()) == 8


@pytest.mark.parametrize("example", examples())
def test_an_example_of_the_seeds_loads(example: str, tmp_path: Path):
    file = tmp_path / "example.conf"
    file.write_text(wrapped(example), encoding="utf-8")
    settings = load(file)
    assert settings.services or settings.resources


@pytest.mark.parametrize("file", sorted(GOOD.glob("*.conf")), ids=lambda file: file.stem)
def test_a_configuration_with_the_constructs_of_the_seeds_loads_and_lacks_nothing(file: Path):
    settings = load(file)
    settings.check_complete()
    assert settings.resources


def test_a_later_word_wins_and_blocks_can_be_built_on_others():
    settings = load(GOOD / "competing.conf")
    one, two = settings.services["dummy-indexer-1"], settings.services["dummy-indexer-2"]
    assert (one.options.insert_batch_size, two.options.insert_batch_size) == (5000, 2000)
    assert set(one.bindings) == {"storage", "coordinator"}
    assert two.bound("db-coordinator").resource == "cloud"


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seeds are not beside this repository")
def test_the_whole_pipeline_of_the_seeds_says_what_it_says(tmp_path: Path):
    (example,) = [found.values[0] for found in examples() if "metadata-persistence-service" in found.values[0]]
    file = tmp_path / "example.conf"
    file.write_text(wrapped(example), encoding="utf-8")
    settings = load(file)
    assert settings.database_of("batch-topic").url == f"sqlite:///{Path.home()}/evochora/data/evochora"
    assert settings.resources["batch-topic"].options.claim_timeout == 300
    dummy = settings.services["dummy-indexer"]
    assert (dummy.class_name, dummy.options.insert_batch_size, dummy.options.enable_idempotency) == (
        "DummyIndexer",
        1000,
        True,
    )
    assert dummy.bound("topic-read").consumer_group == "dummy-indexer"
