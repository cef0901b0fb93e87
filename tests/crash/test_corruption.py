"""Damage on disk, a flipped bit or a torn tail in every format: noticed, named, and nothing else stops."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import Database, MetadataInfo, RunCompleted
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.completeness.verdicts import RunVerdict
from ticklake.coordination.groups import unbind
from ticklake.coordination.reconcile import announced, compare, publish, stored
from ticklake.errors import BadFile, DamagedCommit, DamagedTableFile, DatabaseDamaged, TickLakeError
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.metadata import read_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import encode_ticks, read_ticks
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.world import World

BATCHES, TICKS, SEED = 6, 10, 7
KINDS: dict[str, Any] = {"environment_data": EnvironmentIndexer, "organism_data": OrganismIndexer}


class Place:
    """A run that is indexed to its end, in a place of its own, with something in it to be damaged."""

    def __init__(self, root: Path, run_id: str) -> None:
        self.root, self.run_id = root, run_id
        self.storage, self.database_url = Storage(root / "storage"), f"sqlite:///{root / 'database'}"
        self.lake = Lake(root / "lake")

    def announce(self) -> None:
        """As `ticklake reconcile RUN --apply`."""
        with Database(self.database_url) as database:
            run = database.run(self.run_id)
            publish(run, self.storage, compare(stored(self.storage, self.run_id), announced(run)).unannounced)

    def index(self, table: str) -> None:
        """Whatever its topic tells of, until nothing is left; a batch that fails is not tried again."""
        spark: Any = InProcess()
        with Database(self.database_url) as database:
            resources = IndexerResources(self.storage, self.lake, database, spark=lambda: spark)
            options = IndexerOptions(
                self.run_id, until_caught_up=True, insert_batch_size=TICKS, max_delivery_attempts=1
            )
            KINDS[table](f"{table}-indexer", resources, options).run()

    def index_again(self, table: str, ticks: TickRange | None, *, replace: bool) -> None:
        """As `ticklake index RUN --table TABLE --ticks A:B [--replace]`."""
        spark: Any = InProcess()
        resources = IndexerResources(self.storage, self.lake, spark=lambda: spark)
        kind = KINDS[table]
        if replace:
            self.lake.ledger(self.run_id, kind.table).remove(ticks or TickRange(0, 10**9))
        options = IndexerOptions(self.run_id, until_caught_up=True)
        kind(table, resources, options, lambda run, monitor: StoredBatches(self.storage, run, monitor, ticks)).run()

    def verify(self) -> RunVerdict:
        """As `ticklake verify --deep`."""
        spark: Any = InProcess()
        with Database(self.database_url) as database:
            whole = Completeness(self.run_id, self.storage, Catalog(Path(str(self.lake.root))), database)
            return whole.verify(spark=spark)

    def log(self, table: str) -> Path:
        return Path(str(self.lake.location(self.run_id, table))) / "_delta_log"

    def batch(self, number: int = 2) -> Path:
        return Path(self.storage.url) / self.storage.batches(self.run_id).files[number].key

    def parquet(self, table: str, number: int = 2) -> Path:
        delta = DeltaTable(str(self.lake.location(self.run_id, table)))
        return sorted((Path(uri) for uri in delta.file_uris()), key=lambda path: path.name)[number]

    def database(self) -> Path:
        (path,) = (self.root / "database").glob("*.sqlite")
        return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("whole"), "20251014-143025-550e8400")
    world = Ecosystem(SimulationSettings(shape=(10, 10), organisms=3))
    place.storage.write_metadata(world.metadata(place.run_id, 0))
    for _ in range(BATCHES):
        ticks = [(world.columns(0), world.step())[0] for _ in range(TICKS)]
        place.storage.write_batch(place.run_id, encode_ticks(place.run_id, ticks))
    place.storage.write_completion(RunCompleted(simulation_run_id=place.run_id, last_tick=BATCHES * TICKS - 1))
    place.announce()
    MetadataIndexer("metadata-indexer", IndexerResources(place.storage, place.lake)).write(place.run_id)
    for table in KINDS:
        place.index(table)
    return place


@pytest.fixture
def place(whole: Place, tmp_path: Path) -> Place:
    shutil.copytree(whole.root, tmp_path / "place")
    return Place(tmp_path / "place", whole.run_id)


def flips(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Bits of a file of this size, from a seed."""
    rng = random.Random(SEED)
    for _ in range(count):
        yield rng.randrange(size), 1 << rng.randrange(8)


def damaged(path: Path, count: int) -> Iterator[str]:
    """The file with one bit flipped, again and again, then cut off at several places; whole again in the end.

    All that was long ago: nobody is still writing the file, for whom it would be worth to wait.
    """
    content = path.read_bytes()
    days = iter(range(count + 4))

    def write(data: bytes) -> None:
        path.write_bytes(data)
        day = 86_400 * next(days)
        os.utime(path, (day, day))

    for at, bit in flips(len(content), count):
        write(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        yield f"bit {bit} of byte {at} of {len(content)}"
    for keep in sorted({0, 1, len(content) // 2, len(content) - 1}):
        write(content[:keep])
        yield f"{keep} of {len(content)} bytes"
    path.write_bytes(content)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def is_its_name(commit: Path) -> bool:
    """Whether it is the name of the checksum that is damaged, and nothing else."""
    data = commit.read_bytes()
    return b'"ticklake.checksum":"' not in data and data.count(b"\n") > 1


def is_named(error: TickLakeError, path: Path) -> bool:
    return path.name in str(error) and "\n" not in str(error)


def test_nothing_is_wrong_with_what_is_whole(place: Place) -> None:
    found = place.verify()
    assert found.verdict is Verdict.COMPLETE
    assert [table.deep.flaws for table in found.tables if table.deep] == [0, 0]


# Batch files


def test_any_bit_of_a_compressed_batch_file_is_noticed_before_a_row_of_it_is_used(place: Place) -> None:
    file = place.storage.batches(place.run_id).files[2]
    world = World.of(place.storage.read_metadata(place.run_id))

    def read() -> pa.Table:
        return pa.Table.from_batches(read_ticks(place.storage, file, fields=("tick_number", "cells"), world=world))

    right, noticed = read(), 0
    for what in damaged(place.batch(), 1000):
        try:
            # One bit of a zstd frame means nothing, and may be anything.
            assert read() == right, what
        except BadFile as error:
            noticed += 1
            assert is_named(error, place.batch()), what
    assert noticed >= 1000


def test_a_plain_batch_file_that_is_cut_off_anywhere_is_noticed(tmp_path: Path, whole: Place) -> None:
    """Where a bit flips only a checksum could tell, and these have none."""
    storage = Storage(tmp_path / "storage", compress=False)
    file = whole.storage.batches(whole.run_id).files[2]
    with whole.storage.open(file.key) as stream:
        content = stream.read()
    storage.write_metadata(whole.storage.read_metadata(whole.run_id))
    path = Path(storage.url) / file.key.removesuffix(".zst")
    for keep in sorted(random.Random(SEED).sample(range(len(content)), 100)):
        path.write_bytes(content[:keep])
        with pytest.raises(BadFile) as raised:
            list(read_ticks(storage, storage.batch(file.key.removesuffix(".zst")), fields=("tick_number",)))
        assert is_named(raised.value, path), keep


@pytest.mark.warns("DEAD_LETTER")
def test_a_damaged_batch_file_becomes_a_dead_letter_and_all_others_are_indexed(place: Place) -> None:
    bad = place.batch()
    flip(bad, bad.stat().st_size // 2)
    shutil.rmtree(Path(str(place.lake.location(place.run_id, "organism_data"))))
    with Database(place.database_url) as database:
        run = database.run(place.run_id)
        run.groups.reset("batch-topic", "organism_data-indexer", "earliest")
        unbind(run, "batch-topic", "organism_data-indexer")  # the whole was copied here: this table is a new one
    place.index("organism_data")
    with Database(place.database_url) as database:
        (letter,) = database.run(place.run_id).dead_letters.list()
        assert bad.name in letter.error
    found = {table.table: table for table in place.verify().tables}
    assert found["organism_data"].coverage.missing == [TickRange(20, 29)]
    assert found["environment_data"].coverage.missing == []
    for table in found.values():
        assert table.deep is not None and [Path(key).name for key in table.deep.unreadable] == [bad.name]


# Parquet files


@pytest.mark.parametrize("bits", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_any_bit_of_a_table_s_file_is_found_by_the_deep_look_and_named(place: Place, bits: int) -> None:
    bad = place.parquet("organism_data")
    for what in damaged(bad, bits):
        found = {table.table: table for table in place.verify().tables}
        assert found["environment_data"].verdict is Verdict.COMPLETE
        hit = found["organism_data"]
        assert hit.verdict is Verdict.INCOMPLETE, what
        assert hit.deep is not None and str(bad) in hit.deep.unreadable, what
        assert "--replace" in hit.deep.unreadable[str(bad)]


def test_a_page_that_is_damaged_gives_an_error_and_never_a_row(place: Place) -> None:
    ledger = place.lake.ledger(place.run_id, OrganismIndexer.table)
    bad = place.parquet("organism_data")
    end = int.from_bytes(bad.read_bytes()[-8:-4], "little") + 8
    (ticks,) = [file.ticks for file in ledger.files if file.path == bad.name]
    content, noticed = bad.read_bytes(), 0
    for at, bit in flips(len(content) - end, 200):
        bad.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        try:
            assert ledger.present([ticks]).tolist() == list(range(ticks.start, ticks.end + 1))
        except DamagedTableFile as error:
            noticed += 1
            assert is_named(error, bad)
    assert noticed


@pytest.mark.warns("DEAD_LETTER")
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-20]), Path.unlink])
def test_only_batches_that_meet_a_damaged_file_wait_for_its_repair(
    place: Place, damage: Callable[[Path], object]
) -> None:
    bad = place.parquet("organism_data", 0)
    ledger = place.lake.ledger(place.run_id, OrganismIndexer.table)
    (ticks,) = [file.ticks for file in ledger.files if file.path == bad.name]
    damage(bad)
    with Database(place.database_url) as database:
        run = database.run(place.run_id)
        unbind(run, "batch-topic", "organism_data-indexer")  # the place is a copy, and its original is still there
        run.groups.reset("batch-topic", "organism_data-indexer", "earliest")
    place.index("organism_data")
    with Database(place.database_url) as database:
        run = database.run(place.run_id)
        assert all(bad.name in letter.error for letter in run.dead_letters.list())
        assert run.dead_letters.count() == 1
        place.index_again("organism_data", ticks, replace=True)
        run.dead_letters.replay()
    place.index("organism_data")
    found = place.verify()
    assert found.verdict is Verdict.COMPLETE
    assert found.messages is not None and not any(group.lag or group.dead_letters for group in found.messages.groups)


# The log of a table


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("bits", [5, pytest.param(15, marks=pytest.mark.slow)])
def test_any_bit_of_a_commit_is_noticed_when_the_table_is_opened_and_by_the_deep_look(place: Place, bits: int) -> None:
    for number in (3, BATCHES):
        bad = place.log("organism_data") / f"{number:020d}.json"
        for what in damaged(bad, bits):
            found = {table.table: table for table in place.verify().tables}
            assert found["environment_data"].verdict is Verdict.COMPLETE
            hit = found["organism_data"]
            assert hit.verdict is Verdict.INCOMPLETE or is_its_name(bad), what
            assert hit.deep is not None and (str(bad) in hit.deep.unreadable or is_its_name(bad)), what
            if what.startswith("bit") and not is_its_name(bad):
                with pytest.raises(DamagedCommit) as raised:
                    Ledger(place.lake.location(place.run_id, "organism_data"), OrganismIndexer.table)
                assert is_named(raised.value, bad), what


@pytest.mark.warns("Set .* aside")
def test_a_torn_commit_is_set_aside_by_name_and_indexing_again_brings_everything_back(place: Place) -> None:
    bad = place.log("organism_data") / f"{BATCHES:020d}.json"
    os.truncate(bad, 100)
    place.index_again("organism_data", None, replace=False)
    assert bad.with_name(f"{bad.name}.torn").exists()
    assert place.verify().verdict is Verdict.COMPLETE


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("bits", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_found_and_does_no_harm(place: Place, bits: int) -> None:
    place.lake.ledger(place.run_id, OrganismIndexer.table).checkpoint()
    (bad,) = place.log("organism_data").glob("*.checkpoint.parquet")
    hint = (place.log("organism_data") / "_last_checkpoint").read_bytes()
    for what in damaged(bad, bits):
        hit = {table.table: table for table in place.verify().tables}["organism_data"]
        assert hit.deep and str(bad) in hit.deep.unreadable, what
        ledger = Ledger(place.lake.location(place.run_id, "organism_data"), OrganismIndexer.table)
        assert ledger.present([TickRange(0, 999)]).tolist() == list(range(BATCHES * TICKS)), what
        assert not bad.exists(), what
        bad.with_name(f"{bad.name}.torn").unlink()
        (place.log("organism_data") / "_last_checkpoint").write_bytes(hint)


@pytest.mark.warns("Set .* aside")
def test_a_metadata_table_that_was_torn_as_it_was_made_is_made_again(place: Place) -> None:
    shutil.rmtree(Path(str(place.lake.location(place.run_id, "metadata"))))
    place.log("metadata").mkdir(parents=True)
    (place.log("metadata") / f"{0:020d}.json").touch()
    with Database(place.database_url) as database:
        with database.run(place.run_id).writer("metadata-topic") as topic:
            key = f"{place.run_id}/metadata.pb.zst"
            topic.send(MetadataInfo(simulation_run_id=place.run_id, storage_key=key))
        options = IndexerOptions(place.run_id, topic_poll_timeout_ms=10_000)
        MetadataIndexer("m", IndexerResources(place.storage, place.lake, database), options).run()
    assert read_metadata(place.lake.location(place.run_id, "metadata"), place.run_id) is not None


# The database


def test_a_damaged_database_is_named_and_the_run_announced_again_from_its_files(place: Place) -> None:
    bad = place.database()
    content = bytearray(bad.read_bytes())
    for at in range(0, len(content), 512):
        content[at : at + 64] = bytes(64)
    bad.write_bytes(content)
    with Database(place.database_url) as database, pytest.raises(DatabaseDamaged) as raised:
        database.run(place.run_id).groups.list("batch-topic")
    assert is_named(raised.value, bad)
    found = place.verify()
    assert found.verdict is Verdict.INCOMPLETE
    assert found.messages is not None and bad.name in found.messages.damaged
    assert [table.verdict for table in found.tables] == [Verdict.COMPLETE] * 2
    with Database(place.database_url) as database, database.run("another").writer("t") as writer:
        writer.send(RunCompleted())
    for left in bad.parent.glob(f"{bad.name}*"):
        left.unlink()
    place.announce()
    for table in KINDS:
        place.index(table)
    assert place.verify().verdict is Verdict.COMPLETE


@pytest.mark.warns("is damaged")
def test_a_list_of_runs_leaves_a_damaged_one_out_and_says_so_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    bad = place.database()
    with Database(place.database_url) as database, database.run("another").writer("t") as writer:
        writer.send(RunCompleted())
    bad.write_bytes(bytes(4096) + bad.read_bytes()[4096:])
    with Database(place.database_url) as database:
        assert [database.runs() for _ in range(2)] == [["another"]] * 2
    assert [bad.name in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("missing", [1, 2048, 4096, 40_000])
def test_a_database_whose_tail_is_gone_is_found(place: Place, missing: int) -> None:
    bad = place.database()
    os.truncate(bad, bad.stat().st_size - missing)
    found = place.verify()
    assert found.messages is not None and bad.name in found.messages.damaged
    assert found.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_page_that_is_torn_is_found_by_the_deep_look(place: Place, every: int) -> None:
    bad = place.database()
    content = bad.read_bytes()
    pages, missed = len(content) // 4096, []
    for page in range(1, pages, every):
        bad.write_bytes(content[: page * 4096] + bytes(2048) + content[page * 4096 + 2048 :])
        found = place.verify()
        if found.messages is None or not found.messages.damaged:
            missed.append(page)
    assert not missed
