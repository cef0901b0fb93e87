"""A run is deleted or archived by a process that is killed at any point: the same command finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from ticklake import Database
from ticklake.cli import cli
from ticklake.indexers.runs.pending import Messages
from ticklake.indexers.runs.unfinished import Unfinished
from ticklake.lake.read.catalog import Catalog
from ticklake.monitoring import Monitor
from ticklake.services.closing import record_close
from ticklake.services.reconciliation import ReconciliationService
from ticklake.storage.files import Storage

TICKLAKE = "from ticklake.cli import main; main()"
pytestmark = pytest.mark.chaos

MARKED = [
    *("removal.marked", "removal.database", "removal.rename.before", "removal.rename.after", "removal.tables"),
    *("disk.remove.before", "disk.remove.after:kill:2", "disk.remove.after:kill:5", "removal.files"),
    *("storage.remove.before", "storage.remove.after"),
]
OF_SQLITE = ["database.remove.before", "database.remove.after", "database.remove.after:kill:2"]
SLOW = pytest.mark.slow
COPYING = [
    *("archive.file", "archive.file:kill:4", "storage.publish:kill:3", "archive.tables.before", "archive.tables.after"),
    "archive.copied",
]
QUICK = {"removal.marked", "removal.rename.after", "disk.remove.after:kill:2", "archive.file:kill:4", "archive.copied"}


def quick_or_slow(points: list[str]) -> list[Any]:
    return [one if one in QUICK else pytest.param(one, marks=SLOW) for one in points]


class Place:
    """A closed run with files, a table and messages that no group has read."""

    def __init__(self, maker: Any, url: str, root: Path) -> None:
        maker.run_id, maker.database_url = f"20251014-143025-{uuid4().hex[:8]}", url
        self.maker, self.run_id, self.root, self.url = maker, maker.run_id, root, url
        maker.metadata()
        maker.publish(*maker.batches(3, ticks=10, cells=1))
        table = maker.folder("organism_data")
        (table / "_delta_log").mkdir(parents=True)
        for name in ("_delta_log/00000000000000000000.json", "a.parquet", "b.parquet"):
            (table / name).write_text(f"{name}\n")
        record_close(maker.storage, maker.run_id, cause="command")
        self.files = contents(maker.storage, maker.run_id)
        self.table = {str(path.relative_to(table)): path.read_bytes() for path in table.rglob("*") if path.is_file()}

    def command(self, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        places = ["--storage", self.maker.storage.url, "--lake", str(self.maker.lake.root), "--database", self.url]
        command = [sys.executable, "-c", TICKLAKE, "runs", *words, *places, "--yes"]
        environment = os.environ | {"TICKLAKE_FAULT": fault}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def again(self, *words: str) -> str:
        """The same command in this process. Returns its error, if any."""
        places = ["--storage", self.maker.storage.url, "--lake", str(self.maker.lake.root), "--database", self.url]
        return str(CliRunner().invoke(cli, ["runs", *words, *places, "--yes"]).exception or "")

    def is_left_alone(self) -> None:
        """No service takes up what is half deleted: none has work, and nothing is made again."""
        with Database(self.url) as database:
            before = database.runs()
            storage = Storage(self.maker.storage.url)
            service = ReconciliationService(database, storage)
            for _ in range(2):
                service.reconcile_all()
            assert Unfinished(storage, Messages(database, lambda _: True), "all", Monitor("test")).look(0.0, ()) == []
            assert database.runs() == before

    def is_gone(self) -> None:
        storage = Storage(self.maker.storage.url)
        assert storage.runs() == storage.leaving_runs() == storage.everything(self.run_id) == []
        assert list(self.maker.lake_folder.iterdir()) == []
        with Database(self.url) as database:
            assert self.run_id not in database.runs()


def contents(storage: Storage, run_id: str) -> dict[str, bytes]:
    found = [key for key, _ in storage.everything(run_id) if not key.endswith(".tmp")]
    return {key: storage.read_raw(key) for key in found}


def armed(point: str) -> str:
    return point if ":kill" in point else f"{point}:kill"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, maker: Any, tmp_path: Path) -> Place:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'db'}" if sqlite else str(request.getfixturevalue("postgres_url"))
    return Place(maker, url, tmp_path)


@pytest.mark.parametrize("point", quick_or_slow([*MARKED, *OF_SQLITE]))
def test_a_deletion_that_is_killed_is_finished_by_the_same_command(place: Place, point: str) -> None:
    if point in OF_SQLITE and not place.url.startswith("sqlite"):
        pytest.skip("a file is removed")
    assert place.command("delete", place.run_id, fault=armed(point)).returncode == -signal.SIGKILL
    place.is_left_alone()
    # After the last step there is nothing left to do, and the command says so.
    assert place.again("delete", place.run_id)[:6] == ("No run" if point == "storage.remove.after" else "")
    place.is_gone()


@pytest.mark.parametrize("point", quick_or_slow([*COPYING, *MARKED]))
def test_an_archive_that_is_killed_loses_nothing_and_is_finished_by_the_same_command(place: Place, point: str) -> None:
    to, tables = place.root / "archive", place.root / "tables"
    words = ("archive", place.run_id, str(to), "--tables", str(tables))
    assert place.command(*words, fault=armed(point)).returncode == -signal.SIGKILL
    here, there = contents(place.maker.storage, place.run_id), contents(Storage(to), place.run_id)
    assert here | there == place.files and all(place.files[key] == data for key, data in there.items())
    if point in COPYING:
        assert here == place.files and Catalog(place.maker.lake_folder).tables(place.run_id) == ["organism_data"]
    else:
        assert there == place.files
        place.is_left_alone()
    assert place.again(*words)[:6] == ("No run" if point == "storage.remove.after" else "")
    assert contents(Storage(to), place.run_id) == place.files
    copied = tables / place.run_id / "organism_data"
    assert {str(path.relative_to(copied)): path.read_bytes() for path in copied.rglob("*") if path.is_file()} == (
        place.table
    )
    place.is_gone()


def test_a_close_that_is_killed_is_finished_by_the_same_command(maker: Any, tmp_path: Path) -> None:
    maker.metadata()
    maker.batch(0, 9)
    words = ["runs", "close", maker.run_id, "--storage", maker.storage.url, "--silent-for", "0"]
    command = [sys.executable, "-c", TICKLAKE, *words]
    killed = subprocess.run(command, env=os.environ | {"TICKLAKE_FAULT": "closing.recorded:kill"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    maker.batch(10, 19)  # its producer had written it before it could see the record
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"Run {maker.run_id} is abandoned at tick 19.\n"
