"""One database a topic: every command, page, probe and metric sees all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from printed import read_json
from prometheus_client.parser import text_string_to_metric_families

from ticklake.cli import cli
from ticklake.config import load
from ticklake.contracts import BatchInfo, MetadataInfo
from ticklake.node.node import Node
from ticklake.storage.files import Storage
from ticklake.topics import Database, Run
from ticklake.web.site import Site

RUN = "20261014-143025-550e8400"
CONFIG = """
resources {
  metadata-topic { class = H2TopicResource, dbPath = data/topics/metadata, maxPoolSize = 10, claimTimeout = 300 }
  batch-topic    { class = H2TopicResource, dbPath = data/topics/batches, maxPoolSize = 15, claimTimeout = 600 }
  unused-topic   { class = H2TopicResource, dbPath = data/topics/unused }
  tick-storage   { class = Storage, path = data/storage }
  tick-queue     { class = Queue, max_ticks = 20 }
}
services {
  simulation { options { shape = [16, 16], organisms = 5, run_id = "20261014-143025-550e8400" } }
  persistence-service { resources { batch-out = "topic-write:batch-topic" }, options { max_batch_size = 5 } }
  metadata-persistence-service { resources { metadata-out = "topic-write:metadata-topic" } }
}
"""
TOPICS = {"metadata": "metadata-topic", "batches": "batch-topic", "unused": "unused-topic"}
COUNTS = {"metadata-topic": 2, "batch-topic": 7, "unused-topic": 5}


def fill(run: Run, topic: str) -> None:
    """Messages that wait, one that somebody holds, and one dead letter."""
    kind: Any = MetadataInfo if topic == "metadata-topic" else BatchInfo
    with run.writer(topic) as writer:
        writer.send_many([kind(simulation_run_id=RUN) for _ in range(COUNTS[topic])])
    with run.reader(topic, group=f"dead-{topic}", max_delivery_attempts=1) as reader:
        message = reader.poll(5)
        assert message is not None and reader.fail(message, "broken")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "node.conf"
    file.write_text(CONFIG)
    (tmp_path / "data" / "storage").mkdir(parents=True)
    for name, topic in TOPICS.items():
        with Database(f"sqlite:///{tmp_path / 'data' / 'topics' / name}") as database:
            fill(database.run(RUN), topic)
    return file


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[list[Any]]:
    """A consumer of each topic that holds a message."""
    databases = [Database(f"sqlite:///{tmp_path / 'data' / 'topics' / name}") for name in TOPICS]
    readers = []
    for database, topic in zip(databases, TOPICS.values(), strict=True):
        readers.append(database.run(RUN).reader(topic, group="holding"))
        assert readers[-1].poll(5) is not None
    yield readers
    for reader in readers:
        reader.close()
    for database in databases:
        database.close()


def ask(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> Any:
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert done.exit_code in codes, done.output
    return read_json(done.stdout)


pytestmark = pytest.mark.warns("DEAD_LETTER")


def test_commands_see_the_topics_of_all_databases(config: Path, holder: list[Any]) -> None:
    assert {one["topic"]: one["messages"] for one in ask("topics", "--config", config)} == COUNTS
    lags = {one["topic"]: one["lag"] for one in ask("groups", "--config", config) if one["group"] == "holding"}
    assert lags == COUNTS
    assert {one["topic"] for one in ask("claims", "--config", config)} == set(COUNTS)
    assert {one["topic"] for one in ask("dead-letters", "list", "--config", config)} == set(COUNTS)
    for report in (ask("status", "--config", config), *ask("runs", "--config", config)):
        assert {one["topic"]: one["lag"] for one in report["groups"] if one["group"] == "holding"} == COUNTS
    frame = ask("top", "--config", config, "--once")
    assert {one["topic"]: one["lag"] for one in frame["groups"] if one["group"] == "holding"} == COUNTS
    assert frame["dead_letters"] == 3


def test_the_doctor_examines_all_databases(config: Path, holder: list[Any]) -> None:
    found = ask("doctor", "--config", config, codes=(0, 1))
    letters = [one["message"] for one in found if one["check"] == "dead letters"]
    assert len(letters) == 3 and all("1 dead letters" in text for text in letters)


def test_verify_reads_the_messages_of_all_databases(config: Path, maker: Any, tmp_path: Path) -> None:
    maker.storage = Storage(tmp_path / "data" / "storage")
    maker.run_id = RUN
    maker.metadata()
    batch = maker.batch(0, 9)
    url = f"sqlite:///{tmp_path / 'data' / 'topics' / 'batches'}"
    with Database(url) as database, database.run(RUN).writer("batch-topic") as writer:
        writer.send(batch)
    (tmp_path / "lake").mkdir()
    found = ask("verify", "--config", config, "--lake", tmp_path / "lake", codes=(0, 1, 2, 3))
    # The configuration says which topic has the batches; another one carries BatchInfo, too.
    assert found["messages"]["messages"] == COUNTS["batch-topic"] + 1
    assert found["messages"]["unannounced"] == []
    assert {one["topic"] for one in found["messages"]["groups"]} == set(COUNTS)


def test_commands_that_act_find_the_database_of_the_topic(config: Path, holder: list[Any]) -> None:
    reset = ("groups", "reset", "batch-topic", "holding", "--to", "end", "--dry-run", "--config", config)
    assert ask(*reset)["messages_ahead"] == 0
    assert ask("topics", "prune", "batch-topic", "--max-count", "3", "--dry-run", "--force", "--config", config)
    assert ask("claims", "release", "--group", "holding", "--config", config)["released"] == 3
    assert ask("dead-letters", "replay", "--all", "--config", config)["replayed"] == 3
    tail = CliRunner().invoke(cli, ["topics", "tail", "batch-topic", "--config", str(config)])
    assert len(tail.stdout.splitlines()) == COUNTS["batch-topic"]
    nowhere = CliRunner().invoke(cli, ["topics", "tail", "no-topic", "--config", str(config)])
    assert nowhere.exit_code == 2 and "None of the databases has the topic no-topic" in nowhere.output


def test_several_databases_can_be_named_without_a_configuration(config: Path, tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / 'data' / 'topics' / name}" for name in ("metadata", "batches")]
    found = ask("topics", "--database", urls[0], "--database", urls[1])
    assert {one["topic"] for one in found} == {"metadata-topic", "batch-topic"}


def test_pages_show_and_change_all_databases(
    config: Path, holder: list[Any], serve_site: Callable[..., httpx.Client]
) -> None:
    databases = [Database(url, min_idle=0) for url in load(config).places().databases]
    client = serve_site(Site(databases=databases))
    for path in ("/", "/topics", "/dead-letters"):
        assert all(topic in client.get(path).text for topic in COUNTS), path
    text = " ".join(re.sub(r"<[^>]*>", " ", client.get("/").text).split())
    assert "lag 7 messages" in text and "dead letters 3" in text
    answer = client.post(f"/runs/{RUN}/claims/release", data={"group": "holding"})
    assert "3 claims released" in answer.text
    answer = client.post(f"/runs/{RUN}/groups/reset", data={"topic": "batch-topic", "group": "holding", "where": "end"})
    assert "holding has 0 messages of batch-topic ahead" in answer.text
    answer = client.post(f"/runs/{RUN}/dead-letters/replay", data={"every": "1"})
    assert "3 dead letters replayed" in answer.text
    for database in databases:
        database.close()


def samples(client: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for one in family.samples:
            key = one.name, tuple(sorted(one.labels.items()))
            assert key not in found, "a series twice"
            found[key] = one.value
    return found


def test_metrics_and_probes_see_all_databases(config: Path, serve: Callable[..., httpx.Client]) -> None:
    node = Node(load(config))
    try:
        client = serve(node)
        found = samples(client)
        lags = {dict(labels)["topic"]: value for (name, labels), value in found.items() if name == "ticklake_group_lag"}
        assert lags == {topic: count - 1 for topic, count in COUNTS.items()}
        assert found["ticklake_node_store_up", ()] == 1
        assert client.get("/ready").json()["databases"] == {}
    finally:
        assert node.stop(60)


def test_a_database_that_is_away_is_named_and_does_not_hide_the_others(
    config: Path, serve: Callable[..., httpx.Client]
) -> None:
    url = "postgresql://127.0.0.1:1/none"
    config.write_text(CONFIG.replace("dbPath = data/topics/unused", f'url = "{url}"'))
    node = Node(load(config))
    try:
        client = serve(node)
        found = samples(client)
        topics = {dict(labels)["topic"] for name, labels in found if name == "ticklake_group_lag"}
        assert topics == {"metadata-topic", "batch-topic"}
        assert found["ticklake_node_store_up", ()] == found["ticklake_node_ready", ()] == 0
        answer = client.get("/ready")
        assert (answer.status_code, list(answer.json()["databases"])) == (503, [url])
    finally:
        assert node.stop(60)
