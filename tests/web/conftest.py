"""Nodes without Spark: a small simulation, its persistence, its end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from ticklake.config import load
from ticklake.config.options import HttpOptions
from ticklake.node.node import Node
from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.web.api.app import assembled
from ticklake.web.pages.routes import ROUTES, join
from ticklake.web.security.guard import Guard
from ticklake.web.server import HttpServer, open_server, open_site
from ticklake.web.site import Site

TOKEN = "a-token-for-these-tests-only"
CONFIG = """
node {{ {node} }}
resources {{
  index-database {{ class = Database, url = {database} }}
  batch-topic    {{ class = Topic, database = index-database }}
  metadata-topic {{ class = Topic, database = index-database }}
  run-topic      {{ class = Topic, database = index-database }}
  tick-storage   {{ class = Storage, path = data/storage }}
  tick-queue     {{ class = Queue, max_ticks = 20 }}
}}
services {{
  simulation {{ options {{ shape = [16, 16], organisms = 5{simulation} }} }}
  persistence-service {{
    resources {{ batch-out = "topic-write:batch-topic" }}
    options {{ max_batch_size = 5, batch_timeout_seconds = 1 }}
  }}
  metadata-persistence-service {{ resources {{ metadata-out = "topic-write:metadata-topic" }} }}
  completion-service {{ resources {{ run-out = "topic-write:run-topic" }} }}
}}
"""


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    def write(node: str = "", simulation: str = "", database: str = '"sqlite:///data/database"') -> Path:
        file = tmp_path / "node.conf"
        file.write_text(CONFIG.format(node=node, simulation=simulation, database=database))
        return file

    return write


@pytest.fixture
def make_node(write_config: Callable[..., Path]) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(**settings: str) -> Node:
        nodes.append(Node(load(write_config(**settings))))
        return nodes[-1]

    yield make
    for node in nodes:
        assert node.stop(60)


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    node = make_node()
    node.start()
    return node


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., httpx.Client]]:
    """A real server on a free port of loopback, and a client that has the token by default."""
    servers: list[HttpServer] = []
    clients: list[httpx.Client] = []
    monkeypatch.setenv("TICKLAKE_TOKEN", TOKEN)

    def start(node: Node, token: str | None = TOKEN) -> httpx.Client:
        server = open_server(node, node.settings.node.http)
        server.start()
        servers.append(server)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        clients.append(httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
    for server in servers:
        server.stop()


@pytest.fixture
def client(node: Node, serve: Callable[..., httpx.Client]) -> httpx.Client:
    return serve(node)


@pytest.fixture(scope="session")
def indexed() -> ModuleType:
    """The module that makes runs for the pages."""
    spec = importlib.util.spec_from_file_location("indexed", Path(__file__).with_name("indexed.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run_site(tmp_path_factory: pytest.TempPathFactory, indexed: ModuleType) -> Iterator[Site]:
    """A run that was really indexed; nobody changes it."""
    root = tmp_path_factory.mktemp("run")
    url = indexed.make_run(root)
    with Database(url) as database:
        yield Site(Storage(root / "storage"), root / "lake", [database])


@pytest.fixture
def serve_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., httpx.Client]]:
    """A real server of pages alone, and a client that has its token."""
    started: list[tuple[HttpServer, httpx.Client]] = []
    monkeypatch.setenv("TICKLAKE_TOKEN", TOKEN)

    def start(site: Site, **options: object) -> httpx.Client:
        server = open_site(site, HttpOptions.model_validate({"port": 0, **options}), tmp_path)
        server.start()
        headers = {"authorization": f"Bearer {TOKEN}"}
        client = httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False)
        started.append((server, client))
        return client

    yield start
    for server, client in started:
        client.close()
        server.stop()


@pytest.fixture
def serve_strangers(run_site: Site) -> Iterator[Callable[..., HttpServer]]:
    """A server that believes others than this machine can connect to it. They cannot."""
    servers: list[HttpServer] = []

    def start(prefix: str = "", *, read_only: bool = False) -> HttpServer:
        app = assembled(ROUTES, Guard(TOKEN, "0.0.0.0", prefix=prefix, read_only=read_only))
        join(app, replace(run_site, read_only=read_only))
        servers.append(HttpServer(app, "127.0.0.1", 0))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def pages(run_site: Site, serve_site: Callable[..., httpx.Client]) -> httpx.Client:
    return serve_site(run_site)
