"""`ticklake top`: frames from bounded reads, a picture that fits, and a terminal that is put back."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from rich.console import Console

from ticklake import Database
from ticklake.cli import cli
from ticklake.cli.insight.top import _frames
from ticklake.cli.terminal.frame import UNKNOWN, Frame, picture
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.errors import BadNodeAddress
from ticklake.insights import (
    Backlog,
    BacklogReport,
    GapsReport,
    Glance,
    GroupReport,
    Places,
    TableReport,
    rows_per_second,
)
from ticklake.lake.read.catalog import Catalog
from ticklake.node.client import ServiceReport, services_of
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400-a-longer-one-than-usual"


def glance(at: float, rows: int | None, run_id: str = "r", name: str = "t") -> Glance:
    return Glance(run_id, at, [TableReport(name, rows=rows)], [], [])


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (None, glance(10, 100), {}),
        (glance(10, 100), glance(12, 300), {"t": 100.0}),
        (glance(10, 100, "older"), glance(12, 300), {}),
        (glance(10, None), glance(12, 300), {}),
        (glance(10, 100, name="u"), glance(12, 300), {"t": 150.0}),
        (glance(10, 100), glance(10, 300), {}),
    ],
)
def test_rows_a_second_come_from_two_looks_at_one_run(before, after, rate):
    assert rows_per_second(before, after) == rate


@pytest.fixture
def lake(tmp_path: Path, run) -> Path:
    grow(tmp_path / "lake" / run.id / "organism_data", 10)
    return tmp_path / "lake"


def grow(table: Path, rows: int) -> None:
    write_deltalake(table, pa.table({"tick_number": pa.array(range(rows), pa.int64())}), mode="append")


def top(*arguments: str | Path):
    environment = {"TICKLAKE_STORAGE": None, "TICKLAKE_LAKE": None, "TICKLAKE_DATABASE": None, "COLUMNS": "80"}
    return CliRunner().invoke(cli, ["top", *map(str, arguments)], env=environment, catch_exceptions=False)


def test_a_frame_has_lag_with_its_age_rows_gaps_and_dead_letters(run, database_url, lake, batch):
    with run.writer("batch-topic") as writer:
        writer.send_many([batch(1), batch(2)])
    run.reader("batch-topic", group="environment-indexer").close()
    Coordinator(run, "EnvironmentIndexer", step=1).claim([FoundFile("b", TickRange(100, 199))], 1)
    where = (run.id, "--lake", lake, "--database", database_url, "--once")
    shown = top(*where).stdout
    assert re.search(r"environment-indexer +batch-topic +2 +\d", shown)
    assert re.search(r"organism_data +10 ", shown)
    assert re.search(r"EnvironmentIndexer +1 +0 ", shown)
    assert "0 dead letters   1 gaps   0 errors" in shown
    frame = json.loads(top(*where, "--json").stdout)
    assert frame["groups"][0]["lag"] == 2
    assert frame["tables"][0]["rows_per_second"] is None
    assert frame["gaps"][0]["pending"] == 1
    assert frame["services"] is None


def test_the_second_frame_says_how_fast_a_table_grows(run, lake):
    frames = _frames(Places(catalog=Catalog(lake)), run.id, None, 0.01)
    assert next(frames).rates == {}
    grow(lake / run.id / "organism_data", 50)
    second = next(frames)
    assert second.rates["organism_data"] > 0
    assert second.glance.tables[0].rows == 60


def test_a_database_that_is_away_is_a_line_and_the_last_figures_stay(tmp_path, run, lake):
    places = Places(catalog=Catalog(lake), databases=[Database("postgresql://127.0.0.1:1/none")])
    first = next(_frames(places, run.id, None, 0.01))
    assert (first.glance.run_id, first.glance.tables[0].rows, len(first.errors)) == (run.id, 10, 1)
    assert (first.glance.dead_letters, first.glance.missing) == (None, None)
    frames = _frames(Places(catalog=Catalog(lake)), run.id, None, 0.01)
    assert next(frames).errors == []
    (lake / run.id).rename(tmp_path / "gone")
    second = next(frames)
    assert second.glance.tables[0].rows == 10
    assert "No run" in second.problem
    places.databases[0].close()


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/none", "damaged"])
def test_a_database_that_fails_does_not_deny_the_run_and_its_tables(tmp_path, lake, url):
    (run_id,) = Catalog(lake).runs()
    if url == "damaged":
        url = f"sqlite:///{tmp_path / 'damaged'}"
        with Database(url) as database:
            database.run(run_id).writer("t").close()
        (file,) = (tmp_path / "damaged").glob("*.sqlite")
        data = bytearray(file.read_bytes())
        data[4096:8192] = b"\xff" * 4096
        file.write_bytes(data)
    done = top(run_id, "--lake", lake, "--database", url, "--once")
    assert done.exit_code == 1
    assert f"run {run_id}" in done.stdout and re.search(r"organism_data +10 ", done.stdout)
    assert f"{UNKNOWN} dead letters   {UNKNOWN} gaps   1 errors" in done.stdout
    done = top(run_id, "--lake", lake, "--database", url, "--once", "--json")
    frame = json.loads(done.stdout)
    assert (done.exit_code, frame["run_id"], frame["tables"][0]["rows"]) == (1, run_id, 10)
    assert frame["dead_letters"] is None and len(frame["errors"]) == 1
    only = json.loads(top(run_id, "--database", url, "--once", "--json").stdout)
    assert only["run_id"] == run_id and len(only["errors"]) == 1


def test_looking_lists_no_batch_file(run, database_url, lake, tmp_path, monkeypatch):
    def refuse(*_: object):
        raise AssertionError("a live view must not walk the storage")

    monkeypatch.setattr(Storage, "every_batch", refuse)
    (tmp_path / "storage" / run.id).mkdir(parents=True)
    assert run.id in top("--storage", tmp_path / "storage", "--lake", lake, "--once").stdout


LONG = "a-name-that-is-far-too-long-for-one-column-of-a-terminal-and-goes-on-and-on-and-on-for-ever"
FULL = Frame(
    0.0,
    Glance(
        RUN,
        0.0,
        [TableReport(name, 10**9, 12_345, 10**12, TickRange(0, 10**6)) for name in ("environment_data", LONG)],
        [GroupReport("batch-topic", name, 10**6, 1000, 3, 86_400.0) for name in ("environment-indexer", LONG)],
        [GapsReport(LONG, 3, 4, 10.0)],
    ),
    {"environment_data": 1_234_567.0},
    [ServiceReport("simulation", "running", None), ServiceReport(LONG, "error", f"[red]it failed:\n{LONG}")],
    "The database does not answer.",
    others=BacklogReport(
        [Backlog(f"{LONG}-{at}", (GroupReport("t", LONG, 10**6, 0, 7, 9e6),), 10**6, 9e6, 10, 10) for at in range(7)],
        [f"run {LONG}: [red]it is damaged:\n{LONG}"],
        checked=9,
        unchecked=10**4,
        away={},
    ),
)


@pytest.mark.parametrize("width", [80, 60, 200])
def test_a_full_picture_fits_the_terminal(width):
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(picture(FULL))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("1,234,567" in line for line in lines)
    assert any("1.0 d" in line for line in lines)
    (total,) = [line for line in lines if line.startswith("all 7 runs")]
    assert total.split()[3:] == ["7,000,000", "7,000,000", "0", "104.2", "d", "49", "140"]
    assert sum(LONG[:6] in line and "104.2 d" in line for line in lines) == 5, "the worst ones"
    assert any("10,000 runs are not read yet. 1 runs" in line for line in lines)


class _Node(BaseHTTPRequestHandler):
    answer = b"[]"

    token: str | None = None
    elsewhere: str | None = None
    asked: list[tuple[str | None, str | None]]

    def do_GET(self):
        given = self.headers.get("authorization")
        type(self).asked.append((self.headers.get("host"), given))
        if self.elsewhere and self.path == "/api/services":
            self.send_response(302)
            self.send_header("location", f"{self.elsewhere}/moved")
        else:
            self.send_response(200 if self.token is None or given == f"Bearer {self.token}" else 401)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(_Node, "asked", [], raising=False)
    monkeypatch.delenv("TICKLAKE_TOKEN", raising=False)
    server = HTTPServer(("127.0.0.1", 0), _Node)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_services_come_from_a_node_that_answers(node, monkeypatch):
    services = [{"name": "simulation", "state": "running", "error": None}]
    monkeypatch.setattr(_Node, "answer", json.dumps(services).encode())
    assert services_of(node) == [ServiceReport("simulation", "running", None)]


@pytest.mark.parametrize("answer", [b"", b"{}x", b"[1]", b"[{}]"])
def test_a_node_that_answers_nonsense_or_not_at_all_is_no_node(node, monkeypatch, answer):
    monkeypatch.setattr(_Node, "answer", answer)
    assert services_of(node) is None
    assert services_of("http://127.0.0.1:1") is None
    assert services_of("file:///etc/passwd") is None
    assert services_of(None) is None


TOKEN = "a-token-that-nobody-may-see"


def test_the_token_of_the_environment_is_sent_to_the_node(node, lake, run, monkeypatch):
    monkeypatch.setattr(_Node, "token", TOKEN)
    monkeypatch.setenv("TICKLAKE_TOKEN", f" {TOKEN}\n")
    done = top(run.id, "--lake", lake, "--node", node, "--once", "--json")
    frame = json.loads(done.stdout)
    assert (frame["services"], frame["errors"]) == ([], [])
    assert _Node.asked[-1][1] == f"Bearer {TOKEN}"
    assert TOKEN not in done.output


@pytest.mark.parametrize("given", [None, "a-wrong-token-that-nobody-may-see"])
def test_a_node_that_wants_another_token_says_so(node, lake, run, monkeypatch, given):
    monkeypatch.setattr(_Node, "token", TOKEN)
    if given:
        monkeypatch.setenv("TICKLAKE_TOKEN", given)
    where = (run.id, "--lake", lake, "--node", node, "--once")
    shown, frame = top(*where).stdout, json.loads(top(*where, "--json").stdout)
    said = "refuses the token in TICKLAKE_TOKEN" if given else "requires a token: set TICKLAKE_TOKEN"
    assert "no node answers" not in shown
    assert said in shown
    assert frame["services"] is None and said in frame["errors"][0]
    assert given is None or given not in shown + str(frame)


@pytest.mark.parametrize("same", [True, False])
def test_the_token_goes_to_no_other_host(node, lake, run, monkeypatch, same):
    monkeypatch.setenv("TICKLAKE_TOKEN", TOKEN)
    other = node if same else node.replace("127.0.0.1", "localhost")
    monkeypatch.setattr(_Node, "elsewhere", other)
    frame = json.loads(top(run.id, "--lake", lake, "--node", node, "--once", "--json").stdout)
    asked = {host for host, _ in _Node.asked}
    assert asked == {node.removeprefix("http://")}
    assert frame["services"] == ([] if same else None)
    assert same or "redirects to another host" in frame["errors"][0]


@pytest.mark.parametrize(
    "wrong",
    ["ftp://host", "file:///etc/passwd", "host:8080", "8080", "http://", "http://:8080", "http://h:x", "http://h:99999",
     "http://me:hidden-password@host", "http://[::1", ""],
)  # fmt: skip
def test_what_is_no_address_of_a_node_is_refused_in_one_line(lake, run, wrong):
    with pytest.raises(BadNodeAddress, match="http://HOST:PORT") as refused:
        top(run.id, "--lake", lake, "--node", wrong, "--once")
    assert "\n" not in str(refused.value) and "hidden-password" not in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_well_and_puts_the_terminal_back(lake, run, number):
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-c", "from ticklake.cli import main; main()", "top", run.id, "--lake", str(lake)]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment | {"TERM": "xterm"})
    os.close(other)
    seen = b""
    while b"dead letters" not in seen:
        seen += os.read(main, 4096)
    process.send_signal(number)
    try:
        while data := os.read(main, 4096):
            seen += data
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert process.wait() == 0
    assert seen.index(b"\x1b[?1049h") < seen.index(b"\x1b[?1049l")
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
    assert b"Traceback" not in seen
