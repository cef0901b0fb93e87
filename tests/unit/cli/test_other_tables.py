"""Commands and pages over a lake that has more than tables of ticks: events, foreign tables, tables without rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import write_deltalake
from in_process import InProcess

from ticklake import RunCompleted
from ticklake.errors import NoEventQueue
from ticklake.events import Event, IndexerQueue
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.events import FIRST, TABLE, EventIndexer, EventLedger, slices_of, work_of
from ticklake.lake.delta import Location
from ticklake.lake.flush import task
from ticklake.lake.flush.flush import Flusher
from ticklake.lake.flush.task import Work
from ticklake.lake.metadata import write_metadata
from ticklake.lake.slices import Piece, Slice
from ticklake.lake.table import Table
from ticklake.lake.verify.coverage import properties_of
from ticklake.world import World

Command = Callable[..., Result]


def index_here(spark: Any, work: Work, pieces: list[Piece], step: int) -> list[Any]:
    """What a job does, in this process."""
    return task.index(work, 0, pieces)


class Lakeful:
    """A complete run of 20 ticks and its organism table, and beside it whatever a test asks for."""

    def __init__(self, maker: Any, path: Path) -> None:
        self.maker, self.queue_path = maker, path / "queue.db"
        metadata = maker.metadata()
        self.world = World.of(metadata)
        write_metadata(maker.lake.location(maker.run_id, "metadata"), metadata)
        maker.batches(2, ticks=10, cells=1)
        maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=19))
        kind = OrganismIndexer
        ledger = maker.lake.ledger(maker.run_id, kind.table)
        work = Work("", maker.storage, self.world, kind.reads, kind.table, ledger.location, kind.rows)
        files = maker.storage.batches(maker.run_id).files
        Flusher(lambda: None, work, ledger, index_here).flush([Slice(file, file.ticks) for file in files])

    @property
    def places(self) -> list[str]:
        return ["--storage", self.maker.storage.url, "--lake", str(self.maker.lake.root)]

    def directory(self, table: str) -> Path:
        found: Path = self.maker.folder(table)
        return found

    def events(self, batches: int = 3, leave_out: int | None = None) -> None:
        """So many batches of events, all indexed but one."""
        ledger = self.maker.lake.ledger(self.maker.run_id, TABLE)
        with IndexerQueue(self.queue_path) as queue:
            for number in range(batches):
                events = [Event(f"{number}-{place}", "moved", {"to": place}, 1.0) for place in range(100)]
                queue.offer(events).wait()
            found = []
            while batch := queue.get_next_batch(timeout=0.0):
                if batch.sequence != leave_out:
                    found.append(batch)
                queue.mark_batch_done(batch.batch_id)
            work = work_of(found, ledger.location)
            assert not Flusher(lambda: None, work, ledger, index_here).flush(slices_of(found)).failures

    def foreign(self) -> None:
        write_deltalake(str(self.directory("notes")), pa.table({"note": ["a", "a"], "at": [1.5, 2.5]}))

    def without_a_key(self) -> None:
        write_deltalake(str(self.directory("loose")), pa.table({"tick_number": pa.array(range(20), pa.int64())}))

    def empty(self) -> None:
        schema = pa.schema([("tick_number", pa.int64()), ("value", pa.int64())])
        self.maker.lake.ledger(self.maker.run_id, Table("empty_data", schema, ("tick_number",)))


@pytest.fixture
def run(maker: Any, tmp_path: Path) -> Lakeful:
    return Lakeful(maker, tmp_path)


KINDS = ["events", "foreign", "without_a_key", "empty"]
NAMES = {"events": "events", "foreign": "notes", "without_a_key": "loose", "empty": "empty_data"}


COMMANDS = {
    "verify": ["--storage", "--lake"],
    "gaps": ["--storage", "--lake"],
    "status": ["--storage", "--lake", "--database"],
    "runs": ["--storage", "--lake", "--database"],
    "reconcile": ["--storage", "--lake", "--database"],
    "top": ["--storage", "--lake", "--database", "--once"],
    "doctor": ["--storage", "--lake", "--database"],
    "optimize": ["--lake"],
    "vacuum": ["--lake"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_beside_any_table(run: Lakeful, ticklake: Command, command: str, kind: str) -> None:
    getattr(run, kind)()
    run.maker.publish()
    places = {"--database": run.maker.database_url, **dict(zip(run.places[::2], run.places[1::2], strict=True))}
    given = [word for option in COMMANDS[command] for word in (option, places.get(option)) if word]
    done = ticklake(command, *given)
    # A table of ticks that has none of them is a finding, not a failure of the command.
    assert done.exit_code == (1 if (command, kind) == ("verify", "empty") else 0), done.output
    if command in ("verify", "gaps", "status", "runs", "top"):
        assert NAMES[kind] in done.stdout
        assert "organism_data" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_json_too(run: Lakeful, report: Callable[..., Any], kind: str) -> None:
    getattr(run, kind)()
    found = {table["table"]: table for table in report("verify", *run.places)["tables"]}
    assert found["organism_data"]["coverage"]["verdict"] == "complete"
    assert ("notes" in found) is False
    if kind == "events":
        assert (found["events"]["rows"], found["events"]["coverage"]["ticks"]) == (300, 3)
        assert found["events"]["coverage"]["verdict"] == "complete"


def test_a_batch_of_events_that_is_missing_is_found(run: Lakeful, ticklake: Command) -> None:
    run.events(batches=3, leave_out=2)
    verified = ticklake("verify", *run.places)
    assert verified.exit_code == 1
    assert "events: missing batches: 2\n" in verified.stdout
    assert "missing: 2\n" in ticklake("gaps", *run.places).stdout


def test_the_queue_itself_tells_of_a_last_batch_that_is_missing(run: Lakeful, ticklake: Command) -> None:
    run.events(batches=3, leave_out=3)
    assert ticklake("verify", *run.places).exit_code == 0
    verified = ticklake("verify", *run.places, "--events", run.queue_path)
    assert verified.exit_code == 1
    assert "events: missing batches: 3\n" in verified.stdout


def test_the_queue_and_the_table_agree(run: Lakeful, ticklake: Command) -> None:
    run.events(batches=3)
    assert ticklake("verify", *run.places, "--events", run.queue_path).exit_code == 0


def test_events_that_wait_in_the_queue_are_not_in_the_lake(run: Lakeful, ticklake: Command) -> None:
    """There is no table yet: it is made with the first batch."""
    with IndexerQueue(run.queue_path) as queue:
        queue.offer([Event("1", "moved", {}, 1.0)]).wait()
    assert ticklake("verify", *run.places).exit_code == 0
    verified = ticklake("verify", *run.places, "--events", run.queue_path)
    assert verified.exit_code == 1
    assert "events: missing batches, still in the queue: 1" in verified.stdout


def test_a_table_of_events_that_is_gone_is_missed_by_its_queue(
    maker: Any, tmp_path: Path, ticklake: Command, run: Lakeful
) -> None:
    with IndexerQueue(run.queue_path) as queue:
        for number, run_id in enumerate(("20240101-000000-other000", maker.run_id, maker.run_id)):
            queue.offer([Event(str(number), "moved", {}, 1.0)]).wait()
            EventIndexer(queue, maker.lake, run_id, InProcess, until_drained=True).run()  # type: ignore[arg-type]
    assert ticklake("verify", maker.run_id, *run.places, "--events", run.queue_path).exit_code == 0
    shutil.rmtree(run.directory("events"))
    verified = ticklake("verify", maker.run_id, *run.places, "--events", run.queue_path)
    assert verified.exit_code == 1
    assert "events: missing batches: 2–3" in verified.stdout


def test_a_table_of_events_that_is_made_anew_begins_with_the_same_batch(run: Lakeful) -> None:
    """It was moved away, its indexer was started again, and the first batches of the queue are another run's."""
    with IndexerQueue(run.queue_path) as queue:
        for number, owner in enumerate(("20251014-000000-00000000", run.maker.run_id, run.maker.run_id)):
            queue.offer([Event(f"{number}-{place}", "moved", {}, 1.0) for place in range(100)]).wait()
            batch = queue.get_next_batch(timeout=5)
            assert batch is not None
            first = queue.assign([batch], owner)
            queue.mark_batch_done(batch.batch_id)
        run.directory("events").mkdir()
        EventLedger(Location.of(run.directory("events")), queue, run.maker.run_id, first)
    assert properties_of(Location.of(run.directory("events")))[FIRST] == "2"


def test_a_queue_without_events_of_the_run_needs_no_table(run: Lakeful, ticklake: Command) -> None:
    with IndexerQueue(run.queue_path):
        pass
    assert ticklake("verify", *run.places, "--events", run.queue_path).exit_code == 0


def test_an_event_that_is_there_twice_is_found(run: Lakeful, ticklake: Command) -> None:
    run.events()
    table = pa.table([[2], pa.array([7], pa.int32()), ["again"], ["moved"], [1.0], ["{}"]], schema=TABLE.schema)
    write_deltalake(str(run.directory("events")), table, mode="append")
    verified = ticklake("verify", *run.places, "--events", run.queue_path)
    assert verified.exit_code == 1
    assert "events: duplicated: batch_number 2, position 7" in verified.stdout
    assert "101 rows, the queue has 100 events" in verified.stdout


def test_a_run_of_which_only_events_are_indexed_is_not_complete(run: Lakeful, ticklake: Command) -> None:
    run.events()
    shutil.rmtree(run.directory("organism_data"))
    verified = ticklake("verify", *run.places)
    assert verified.exit_code == 1
    assert "incomplete" in verified.stdout and "This lake has no table of ticks" in verified.stdout


def test_a_run_that_goes_on_of_which_only_events_are_indexed_lacks_something(run: Lakeful, ticklake: Command) -> None:
    run.events()
    shutil.rmtree(run.directory("organism_data"))
    (completion,) = Path(run.maker.storage.url).rglob("*complet*")
    completion.unlink()
    assert ticklake("verify", *run.places).exit_code == 1


@pytest.mark.warns("DEAD_BATCH")
def test_draining_a_queue_that_has_a_dead_batch_is_no_success(maker: Any, tmp_path: Path, ticklake: Command) -> None:
    with IndexerQueue(tmp_path / "queue.db", max_attempts=1) as queue:
        queue.offer([Event("1", "moved", {}, 1.0)]).wait()
        batch = queue.get_next_batch(timeout=5.0)
        assert batch is not None and queue.mark_batch_failed(batch.batch_id, "no good")
    done = ticklake("index-events", maker.run_id, "--events", tmp_path / "queue.db", "--lake", maker.lake_folder)
    assert done.exit_code == 1
    assert "1 dead batch" in done.output


def test_a_file_that_is_no_event_queue_is_left_alone(maker: Any, tmp_path: Path, ticklake: Command) -> None:
    file = tmp_path / "garbage.db"
    file.write_bytes(b"garbage" * 100)
    with pytest.raises(NoEventQueue, match="is not an event queue"):
        ticklake("index-events", maker.run_id, "--events", file, "--lake", maker.lake_folder)
    assert list(tmp_path.glob("garbage.db*")) == [file]
