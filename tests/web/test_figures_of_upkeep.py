"""What `optimize`, `vacuum`, `reconcile`, `doctor`, `end` and the page of the system count, against the files."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import stories
from click.testing import CliRunner
from deltalake import DeltaTable
from stories import Life, PlainSql, Story, Told, as_size, shown_rows

from ticklake.cli import cli
from ticklake.node.node import Node
from ticklake.ticks import TickRange
from ticklake.web.site import Site

LIVES = [Life(1, None, 0), Life(2, 1, 5, 8)]
SPLIT = Story("split", 1, [TickRange(at, at + 9) for at in range(0, 60, 10)], LIVES)
TABLES = ("environment_data", "organism_data")


def live(table: Path) -> dict[str, int]:
    """The files of a table and their sizes, as the deltalake package and the file system tell them."""
    names = [uri.rpartition("/")[2] for uri in DeltaTable(table).file_uris()]
    return {name: (table / name).stat().st_size for name in names}


def on_disk(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def split(tmp_path: Path) -> Told:
    """Tables of several files each, from six flushes."""
    told = Told(SPLIT, tmp_path, stories.write(SPLIT, tmp_path, flush=10), httpx.Client())
    assert all(len(live(tmp_path / "lake" / SPLIT.run_id / table)) >= 6 for table in TABLES)
    return told


def test_optimize_counts_the_files_it_merged(split: Told) -> None:
    places = {table: split.root / "lake" / SPLIT.run_id / table for table in TABLES}
    before = {table: live(place) for table, place in places.items()}
    found = split.json("optimize", "--table", TABLES[0], places="l")
    text = shown_rows(split.command("optimize", "--table", TABLES[1], places="l"))
    truth = {}
    for table, place in places.items():
        after = live(place)
        gone = {name: size for name, size in before[table].items() if name not in after}
        new = {name: size for name, size in after.items() if name not in before[table]}
        assert len(gone) > 1 and new
        truth[table] = (len(after), len(gone), len(new), sum(gone.values()), sum(new.values()))
    names = ("files", "files_removed", "files_added", "bytes_removed", "bytes_added")
    assert [(one["run_id"], one["table"]) for one in found] == [(SPLIT.run_id, TABLES[0])]
    assert tuple(found[0][name] for name in names) == truth[TABLES[0]]
    files, merged, into, size_before, size_after = truth[TABLES[1]]
    sizes = [as_size(size_before), as_size(size_after)]
    assert [SPLIT.run_id, TABLES[1], str(merged), str(into), *sizes, str(files)] in text
    again = split.json("optimize", places="l")
    assert [tuple(one[name] for name in names) for one in again] == [(truth[one][0], 0, 0, 0, 0) for one in TABLES]


def test_vacuum_and_the_doctor_count_the_files_that_can_go(
    split: Told, serve_site: Callable[..., httpx.Client]
) -> None:
    lake = split.root / "lake"
    merged = {table: len(live(lake / SPLIT.run_id / table)) for table in TABLES}
    split.command("optimize", places="l")
    for name in ("orphan.parquet", ".half.tmp", "_delta_log/_commit_1.tmp", "_delta_log/0.json#1"):
        (lake / SPLIT.run_id / TABLES[0] / name).write_bytes(b"x" * 1234)
    for path in on_disk(lake):
        os.utime(path, (time.time() - 8 * 86_400,) * 2)
    (lake / SPLIT.run_id / TABLES[1] / "young.parquet").write_bytes(b"y")
    before = on_disk(lake)

    (orphaned,) = [one for one in split.json("doctor", places="l", codes=(0, 1)) if one["check"] == "orphaned files"]
    would = split.json("vacuum", "--dry-run", places="l")
    would_text = split.command("vacuum", "--dry-run", places="l")
    page = serve_site(Site(lake=lake)).get("/system/doctor").text
    assert on_disk(lake) == before and would["dry_run"] is True

    done = split.json("vacuum", "--table", TABLES[0], places="l")
    text = shown_rows(split.command("vacuum", "--table", TABLES[1], places="l"))
    gone = {path: size for path, size in before.items() if not path.exists()}
    assert on_disk(lake) == {path: size for path, size in before.items() if path not in gone}
    truth = {}
    for table in TABLES:
        place = lake / SPLIT.run_id / table
        own = {path: size for path, size in gone.items() if path.is_relative_to(place)}
        needed = set(live(place)) | {"young.parquet"}
        assert {path.name for path in before if path.parent == place} - needed == {
            path.name for path in own if path.parent == place
        }
        truth[table] = len(own), sum(own.values())
    assert {table: files for table, (files, _) in truth.items()} == merged | {TABLES[0]: merged[TABLES[0]] + 4}
    assert {one["table"]: (one["files"], one["bytes"]) for one in would["tables"]} == {**truth, "metadata": (0, 0)}
    assert [(one["table"], one["files"], one["bytes"]) for one in done["tables"]] == [(TABLES[0], *truth[TABLES[0]])]
    for table, (files, size) in truth.items():
        assert [SPLIT.run_id, table, str(files), as_size(size)] in shown_rows(would_text)
    files, size = truth[TABLES[1]]
    assert [SPLIT.run_id, TABLES[1], str(files), as_size(size)] in text
    counted = f"{len(gone)} files in {lake} that no table needs, {sum(gone.values()):,} bytes."
    assert orphaned["message"] == counted and counted in page
    assert sorted(orphaned["details"]) == sorted(map(str, gone))


def test_the_doctor_counts_abandoned_files_and_says_what_the_machine_has(split: Told) -> None:
    storage = split.root / "storage"
    for at in range(3):
        (storage / SPLIT.run_id / f".batch_{at}.pb.tmp").touch()
    os.utime(storage / SPLIT.run_id / ".batch_0.pb.tmp", (0, 0))
    os.utime(storage / SPLIT.run_id / ".batch_2.pb.tmp", (0, 0))
    findings = split.json("doctor", codes=(0, 1))
    told = [(one["check"], one["message"]) for one in findings]
    assert ("abandoned files", f"2 half-written files in {storage}.") in told
    facts = os.statvfs(storage)
    space = re.fullmatch(r"([\d,.]+) GiB free of ([\d,.]+)\.?", dict(told)["disk space"].partition(": ")[2])
    assert space is not None and space[2] == f"{facts.f_blocks * facts.f_frsize / 2**30:,.1f}"
    assert float(space[1].replace(",", "")) == pytest.approx(facts.f_bavail * facts.f_frsize / 2**30, abs=2)
    assert f"{resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} files may be open" in dict(told)["open files"]


def ticks_in(table: Path) -> set[int]:
    return set(DeltaTable(table).to_pyarrow_table(columns=["tick_number"]).column(0).to_pylist())


def test_reconcile_counts_files_messages_and_ticks(tmp_path: Path) -> None:
    story = Story("apart", 1, [TickRange(tick, tick) for tick in range(30)], LIVES)
    told = Told(story, tmp_path, stories.write(story, tmp_path), httpx.Client())
    plain, folder = PlainSql.of(tmp_path, story.run_id), tmp_path / "storage" / story.run_id
    for tick in range(25):
        (folder / f"batch_{tick:010d}_{tick:010d}.pb").unlink()
    for tick in range(30, 54):
        stories.write_file(story, tmp_path, TickRange(tick, tick))
    there = {file.name for file in folder.glob("batch_*")}
    announced = {f"batch_{tick:010d}_{tick:010d}.pb" for tick in range(30)}
    unannounced, vanished = sorted(there - announced), sorted(announced - there)
    assert (len(unannounced), len(vanished)) == (24, 25)
    last = max(one.tick_number for one in stories.decoded(folder))
    for table in TABLES:
        missing = sorted(set(range(last + 1)) - ticks_in(tmp_path / "lake" / story.run_id / table))
        assert missing == list(range(30, 54)), "one range"

    found = told.json("reconcile")
    repair = found["repair"]
    assert found["applied"] is False
    assert [key.rpartition("/")[2] for key in repair["unannounced"]] == unannounced
    assert [key.rpartition("/")[2] for key in repair["vanished"]] == vanished
    assert {one["table"]: one["missing"] for one in repair["tables"]} == {table: [[30, 53]] for table in TABLES}
    rows = shown_rows(told.command("reconcile"))
    shown = {
        name: [row[1].rpartition("/")[2] for row in rows if row[0] == name]
        for name in ("file without a message", "announced, but no file")
    }
    assert list(shown.values()) == [unannounced[:20], vanished[:20]]
    assert ["and 4 more", "publish to batch-topic"] in rows
    assert ["and 5 more", "none: the files are gone"] in rows
    assert [f"not in {TABLES[0]}", "30–53"] in [row[:2] for row in rows]

    count = "SELECT count(*) FROM topic_messages WHERE topic_name = 'batch-topic'"
    before = plain.number(count)
    places = ("--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"), "--database", told.url)
    done = CliRunner().invoke(cli, ["reconcile", "--apply", *places])
    assert plain.number(count) == before + len(unannounced)
    assert done.exit_code == 1 and f"Not repaired: {len(vanished)} announced files do not exist;" in done.stderr
    assert told.json("reconcile")["repair"]["unannounced"] == []


def test_the_end_of_a_run_is_its_last_tick(split: Told) -> None:
    last = max(one.tick_number for one in stories.decoded(split.root / "storage"))
    place, plain = ("--silent-for", "0"), PlainSql.of(split.root, SPLIT.run_id)
    found = split.json("end", SPLIT.run_id, *place, places="sd")
    assert found.pop("silent_seconds") >= 0
    assert found == {
        "run": SPLIT.run_id, "state": "ended", "last_tick": last, "recorded": True, "announced": True,
    }  # fmt: skip
    assert plain.number("SELECT count(*) FROM topic_messages WHERE topic_name = 'run-topic'") == 1
    again = split.command("end", SPLIT.run_id, *place, places="sd")
    assert again == f"Run {SPLIT.run_id} had already ended at tick {last}.\n"
    assert split.json("status")["storage"]["completed"] is True
    assert split.json("verify", codes=(0, 1, 2, 3))["storage"]["last_tick"] == last


def test_a_run_that_is_closed_and_archived_counts_what_goes(split: Told, tmp_path: Path) -> None:
    last = max(one.tick_number for one in stories.decoded(split.root / "storage"))
    closed = split.json("runs", "close", SPLIT.run_id, "--silent-for", "0", places="sd")
    assert (closed["state"], closed["last_tick"]) == ("abandoned", last)
    files = on_disk(split.root / "storage" / SPLIT.run_id)
    batches = [path for path in files if path.name.startswith("batch_")]
    tables = {path.name: path for path in (split.root / "lake" / SPLIT.run_id).iterdir()}
    told = {name: (len(DeltaTable(path).to_pyarrow_table()), live(path)) for name, path in tables.items()}
    shown = split.json("runs", "delete", SPLIT.run_id, "--dry-run")
    assert (shown["files"], shown["other_files"]) == (len(batches), len(files) - len(batches))
    assert shown["bytes"] == sum(files.values()) and len(shown["databases"]) == 1
    assert {one["name"]: (one["rows"], one["files"], one["bytes"]) for one in shown["tables"]} == {
        name: (rows, len(sizes), sum(sizes.values())) for name, (rows, sizes) in told.items()
    }
    text = split.command("runs", "delete", SPLIT.run_id, "--dry-run")
    size = as_size(sum(files.values()))
    assert f"{len(batches)} batch files and {len(files) - len(batches)} other files, {size}" in text
    of_tables = len(on_disk(split.root / "lake" / SPLIT.run_id))
    to = ("archive", SPLIT.run_id, str(tmp_path / "archive"), "--tables", str(tmp_path / "tables"), "--yes")
    done = split.json("runs", *to)
    assert (done["copied_files"], done["copied_table_files"]) == (len(files), of_tables)
    assert len(on_disk(tmp_path / "archive")) == len(files) and len(on_disk(tmp_path / "tables")) == of_tables


def test_the_system_counts_what_its_services_have_done(
    make_node: Callable[..., Node], serve: Callable[..., httpx.Client], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    node = make_node(simulation=", max_ticks = 43")
    node.start()
    client = serve(node)
    eventually(lambda: node.services["completion-service"].state == "stopped")
    files = list((tmp_path / "data" / "storage").rglob("batch_*"))
    ticks = [
        range(int(first), int(last) + 1) for _, first, last in (one.name.split(".")[0].split("_") for one in files)
    ]
    ((run_id, topic, messages), *others) = [
        (run_id, topic, messages)
        for run_id in node.runs()
        for topic, messages in PlainSql.of(tmp_path / "data", run_id).rows(
            "SELECT topic_name, count(*) FROM topic_messages GROUP BY topic_name ORDER BY topic_name"
        )
    ]
    assert (topic, messages, len(others)) == ("batch-topic", len(files), 2) and sum(map(len, ticks)) == 43
    truth: dict[str, dict[str, Any]] = {
        "simulation": {"ticks_produced": 43, "tick": 43},
        "persistence-service": {
            "ticks_written": 43,
            "batches_written": len(files),
            "bytes_written": sum(file.stat().st_size for file in files),
            "notifications_sent": messages,
            "queued_ticks": 0,
            "queued_bytes": 0,
        },
        "metadata-persistence-service": {"metadata_written": 1, "notifications_sent": 1},
        "completion-service": {"notifications_sent": 1},
    }
    page = client.get("/system").text
    posted = client.post("/system/services", data={"service": "persistence-service", "action": "stop"}).text
    listed = {one["name"]: one["metrics"] for one in client.get("/api/services").json()}
    for name, figures in truth.items():
        alone = client.get(f"/api/services/{name}").json()["metrics"]
        for shown in (listed[name], alone):
            assert {one: shown[one] for one in figures} == figures
            assert shown["error_count"] == len(client.get(f"/api/services/{name}/errors").json()) == 0
        for text in (page, posted):
            (section,) = re.findall(rf"<h2>{name} .*?</section>", text, re.S)
            told = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", section))
            assert {one: told[one] for one in figures} == {one: f"{value:,}" for one, value in figures.items()}
    stopped = client.post("/api/services/persistence-service/stop").json()["metrics"]
    assert stopped["ticks_written"] == 43
    resources = {one["name"]: one["metrics"] for one in client.get("/api/resources").json()}
    assert resources["tick-queue"] == {"queued_ticks": 0, "queued_bytes": 0}
    assert resources["index-database"][run_id]["messages_published"] == messages + sum(one[2] for one in others)
