"""What `index`, `index-events` and `demo` count, against the files as protobuf, SQLite and Delta read them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import stories
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]
from stories import Life, PlainSql, Story, as_size, shown_rows

from ticklake.cli import cli
from ticklake.contracts import BatchInfo, TickData
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.ticks import TickRange
from ticklake.topics import Database

RUN = "20261014-143025-events"
STORY = Story("figures", 3, [TickRange(at, at + 27) for at in range(0, 120, 30)], [Life(1, None, 0), Life(2, 1, 5, 60)])
TABLES = ("environment_data", "organism_data")


def counted(ticks: list[TickData]) -> dict[str, tuple[int, int]]:
    """Ticks and rows of each table."""
    cells, organisms = sum(len(one.cells) for one in ticks), sum(len(one.organisms) for one in ticks)
    return {TABLES[0]: (len(ticks), cells), TABLES[1]: (len(ticks), organisms)}


@pytest.mark.usefixtures("spark")
@pytest.mark.warns("failed: Batch file")
def test_index_counts_ticks_rows_and_bad_files(tmp_path: Path) -> None:
    stories.store(STORY, tmp_path)
    every = list(stories.decoded(tmp_path / "storage"))
    bad = tmp_path / "storage" / STORY.run_id / "batch_0000000060_0000000087.pb"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-4])
    good = [one for one in every if not 60 <= one.tick_number <= 87]

    def index(*options: str) -> Result:
        places = ("--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"), "--master", "local[2]")
        return CliRunner().invoke(cli, ["index", STORY.run_id, *places, *options])

    first = index("--json")
    assert first.exit_code == 1, first.output
    report = json.loads(first.stdout)
    assert {one["table"]: (one["ticks"], one["rows"]) for one in report["tables"]} == counted(good)
    for one in report["tables"]:
        assert (one["present"], one["total"], one["kept"]) == (0, len(every), [])
        assert list(one["failed"]) == [f"{STORY.run_id}/{bad.name}"]

    bad.write_bytes(whole)
    started = time.monotonic()
    mended = index()
    seconds = time.monotonic() - started
    assert mended.exit_code == 0, mended.output
    rest = [one for one in every if one not in good]
    for table, (ticks, rows) in counted(rest).items():
        (row,) = [row for row in shown_rows(mended.stdout) if row[0] == table]
        assert row[1:4] == [str(ticks), str(len(good)), str(rows)]
        assert int(row[4].replace(",", "")) >= int(rows / seconds)
        assert len(DeltaTable(tmp_path / "lake" / STORY.run_id / table).to_pyarrow_table()) == counted(every)[table][1]

    part = [one for one in every if 21 <= one.tick_number <= 45]
    again = json.loads(index("--ticks", "20:46", "--replace", "--json").stdout)
    assert {one["table"]: (one["ticks"], one["rows"]) for one in again["tables"]} == counted(part)
    assert {(one["present"], one["total"]) for one in again["tables"]} == {(0, len(part))}


@pytest.mark.usefixtures("spark")
def test_index_counts_the_messages_that_it_acknowledges(tmp_path: Path) -> None:
    """A node has indexed the first files, and was killed before it read the messages of the others."""
    url = stories.write(replace(STORY, files=STORY.files[:1]), tmp_path)
    for ticks in STORY.files[1:]:
        stories.write_file(STORY, tmp_path, ticks)
    with Database(url) as database, database.run(STORY.run_id).writer("batch-topic") as writer:
        for first, last in STORY.files[1:]:
            key = f"{STORY.run_id}/batch_{first:010d}_{last:010d}.pb"
            writer.send(BatchInfo(simulation_run_id=STORY.run_id, storage_key=key, tick_start=first, tick_end=last))
    plain, count = PlainSql.of(tmp_path, STORY.run_id), len(STORY.files) - 1

    def acknowledged(group: str) -> int:
        sql = "SELECT count(*) FROM topic_consumer_group WHERE consumer_group = ? AND acknowledged_at IS NOT NULL"
        return plain.number(sql, group)

    def index(*options: str) -> Result:
        places = ("--storage", str(tmp_path / "storage"), "--lake", str(tmp_path / "lake"), "--database", url)
        done = CliRunner().invoke(cli, ["index", STORY.run_id, *places, "--master", "local[2]", *options])
        assert done.exit_code == 0, done.output
        return done

    found = json.loads(index("--table", "environment_data", "--json").stdout)["groups"]
    named = {"table": "environment_data", "topic": "batch-topic", "group": "environment-indexer"}
    assert found == [{**named, "acknowledged": count, "left": 0}]
    assert [acknowledged(group) for group in ("environment-indexer", "organism-indexer")] == [count + 1, 1]
    assert f"\norganism-indexer: {count} messages of batch-topic acknowledged\n" in index().stdout
    assert [acknowledged(group) for group in ("environment-indexer", "organism-indexer")] == [count + 1] * 2


@pytest.mark.usefixtures("spark")
def test_index_events_counts_batches_and_events(tmp_path: Path) -> None:
    queue, plain = tmp_path / "queue.db", PlainSql(tmp_path / "queue.db")

    def drain(*options: str) -> Result:
        places = ("--events", str(queue), "--lake", str(tmp_path / "lake"), "--master", "local[2]")
        return CliRunner().invoke(cli, ["index-events", RUN, *places, *options])

    publish(queue, range(250))
    batches = plain.number("SELECT count(*) FROM pending_batches")
    events = plain.number("SELECT sum(event_count) FROM pending_batches")
    assert events == 250 and batches > 1
    first = drain("--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert (found["batches_processed"], found["batches_failed"], found["rows"]) == (batches, 0, events)
    assert len(DeltaTable(tmp_path / "lake" / RUN / "events").to_pyarrow_table()) == events

    publish(queue, range(250, 257))
    plain.rows("INSERT INTO batch_sequence (batch_id) SELECT 'dead-' || value FROM json_each(?)", numbers(130))
    plain.rows(
        "INSERT INTO dead_batches SELECT 'dead-' || value, 0, 1, x'', 5, 'no good', value FROM json_each(?)",
        numbers(130),
    )
    second = drain()
    batches = plain.number("SELECT count(*) FROM pending_batches WHERE status = 'done'") - batches
    assert ["events", str(batches), "0", "7"] in shown_rows(second.stdout)
    dead = plain.number("SELECT count(*) FROM dead_batches")
    assert (second.exit_code, dead) == (1, 130)
    assert second.stderr.startswith(f"{dead} dead batches in {queue}: no good.")


def numbers(count: int) -> str:
    return json.dumps(list(range(count)))


def publish(file: Path, which: range) -> None:
    bus = EventBus()
    with IndexerQueue(file) as queue:
        queue.subscribe_to_eventbus(bus)
        for number in which:
            bus.publish(Event(f"event-{number}", "moved", {"to": number}, 1000.0 + number), wait=number % 100 == 99)


def ticks_of(storage: Path) -> list[TickData]:
    """Every tick of the files of a node, which are compressed."""
    found = []
    for file in sorted(storage.rglob("batch_*")):
        data, at = pa.input_stream(str(file), compression="detect").read(), 0
        while at < len(data):
            size, at = _DecodeVarint32(data, at)
            found.append(TickData.FromString(data[at : at + size]))
            at += size
    return found


def demo(folder: Path, *options: str) -> tuple[str, float]:
    started = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ticklake")), "demo", "--ticks", "40", *options],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - started


@pytest.mark.parametrize("options", [(), pytest.param(("--json",), marks=pytest.mark.slow)], ids=["text", "json"])
def test_the_demo_counts_what_it_has_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    shown, seconds = demo(tmp_path, *options)
    data = tmp_path / "ticklake-demo" / "data"
    files, ticks = list((data / "storage").rglob("batch_*")), ticks_of(data / "storage")
    assert [one.tick_number for one in ticks] == list(range(40))
    (run,) = (data / "lake").iterdir()
    tables: dict[str, tuple[Any, ...]] = {}
    for place in sorted(path for path in run.iterdir() if (path / "_delta_log").is_dir()):
        live = [place / uri.rpartition("/")[2] for uri in DeltaTable(place).file_uris()]
        rows = len(DeltaTable(place).to_pyarrow_table())
        tables[place.name] = rows, len(live), sum(file.stat().st_size for file in live)
    assert set(tables) == {*TABLES, "metadata"}
    assert {name: (40, tables[name][0]) for name in TABLES} == counted(ticks)
    population = [sum(not organism.is_dead for organism in one.organisms) for one in ticks]
    size = sum(file.stat().st_size for file in files)
    if options:
        report = json.loads(shown)
        stored = {"files": len(files), "bytes": size, "ticks": [0, 39], "completed": True}
        stored |= {"error": None, "state": "ended", "last_tick": 39}
        assert report["run"]["run_id"] == run.name and report["run"]["storage"] == stored
        told = {one["name"]: (one["rows"], one["files"], one["bytes"]) for one in report["run"]["tables"]}
        assert told == tables and report["population"] == population
        assert {one["name"]: one["ticks"] for one in report["run"]["tables"]} == {
            **{name: [0, 39] for name in TABLES},
            "metadata": None,
        }
        assert 0 < report["seconds"] < seconds
        return
    assert f"{len(files)} batch files, {as_size(size)}, ticks 0–39." in shown
    for name, (rows, count, taken) in tables.items():
        span = ["0–39"] if name in TABLES else []
        assert [name, f"{rows:,}", str(count), as_size(taken), *span] in shown_rows(shown)
    said = re.search(rf"Run {run.name}: ([\d.]+) s from the first tick to the last row, ([\d,]+) rows/s", shown)
    assert said is not None and float(said[1]) < seconds
    every = sum(rows for rows, _, _ in tables.values())
    rate = int(said[2].replace(",", ""))
    assert every / (float(said[1]) + 0.06) - 1 <= rate <= every / (float(said[1]) - 0.06) + 1
    assert f"{max(population):,} ┤" in shown
