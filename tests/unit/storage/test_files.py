from __future__ import annotations

import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ticklake.contracts import FORMAT_VERSION, RunCompleted, SimulationMetadata, TickData
from ticklake.errors import (
    BadFile,
    BatchOutOfOrder,
    NotABatchFile,
    StoredFileConflict,
    StoredFileMissing,
    UnsafeRunId,
    UnsafeStorageKey,
)
from ticklake.storage.codec import EncodedTick
from ticklake.storage.delimited import frame
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"


def ticks(*numbers: int, run: str = RUN) -> list[EncodedTick]:
    messages = (TickData(simulation_run_id=run, tick_number=number, rng_state=b"x" * 50) for number in numbers)
    return [EncodedTick(number, message.SerializeToString()) for number, message in zip(numbers, messages, strict=True)]


@pytest.fixture(params=["directory", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    places = {"directory": str(tmp_path / "deep" / "storage"), "memory": f"memory://{tmp_path.name}-{os.getpid()}"}
    return Storage(places[request.param])


def test_a_batch_is_named_by_its_run_and_ticks(storage: Storage) -> None:
    file = storage.write_batch(RUN, ticks(0, 10, 90))
    assert file.key == f"{RUN}/batch_0000000000_0000000090.pb.zst"
    assert file.ticks == TickRange(0, 90)
    assert storage.batch(file.key) == file
    assert storage.exists(file.key)


def test_what_was_written_is_read_back(storage: Storage) -> None:
    written = ticks(*range(100))
    with storage.open(storage.write_batch(RUN, written).key) as stream:
        assert stream.read() == frame(tick.data for tick in written)


def test_files_are_compressed_by_default_and_plain_on_request(tmp_path: Path) -> None:
    compressed = Storage(tmp_path).write_batch(RUN, ticks(*range(100)))
    plain = Storage(tmp_path, compress=False).write_batch(RUN, ticks(*range(100)))
    assert plain.key == compressed.key.removesuffix(".zst")
    assert compressed.size < plain.size == len(frame(tick.data for tick in ticks(*range(100))))


def test_writing_the_same_batch_again_changes_nothing(storage: Storage) -> None:
    first = storage.write_batch(RUN, ticks(1, 2))
    assert storage.write_batch(RUN, ticks(1, 2)) == first
    assert storage.batches(RUN).files == [first]


def test_another_batch_of_the_same_name_is_a_conflict_and_the_first_stays(storage: Storage) -> None:
    file = storage.write_batch(RUN, ticks(1, 2, 4))
    with pytest.raises(StoredFileConflict, match="other content"):
        storage.write_batch(RUN, ticks(1, 3, 4))
    with storage.open(file.key) as stream:
        assert stream.read() == frame(tick.data for tick in ticks(1, 2, 4))


def test_a_damaged_file_in_the_way_is_a_conflict_too(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    file = storage.write_batch(RUN, ticks(1, 2))
    (tmp_path / file.key).write_bytes(b"rubbish")
    with pytest.raises(StoredFileConflict):
        storage.write_batch(RUN, ticks(1, 2))


@pytest.mark.parametrize("numbers", [(), (2, 1), (1, 1), (-1, 0)])
def test_a_batch_needs_ascending_ticks(storage: Storage, numbers: tuple[int, ...]) -> None:
    with pytest.raises(BatchOutOfOrder):
        storage.write_batch(RUN, ticks(*numbers))
    assert storage.runs() == []


def test_runs_are_discovered_oldest_first(storage: Storage) -> None:
    assert storage.runs() == []
    for run in ("20251014-143026-b", "20251014-143025-a", "other"):
        storage.write_batch(run, ticks(0, run=run))
    assert storage.runs() == ["20251014-143025-a", "20251014-143026-b", "other"]


def test_a_file_beside_the_runs_is_not_a_run(storage: Storage) -> None:
    storage.write_batch(RUN, ticks(0))
    fsspec.open(f"{storage.url}/README", "wb").open().close()
    assert storage.runs() == [RUN]


def test_batches_come_in_tick_order_page_by_page(storage: Storage) -> None:
    starts = [90, 0, 1000, 30, 60, 12345678901]
    for start in starts:
        storage.write_batch(RUN, ticks(*range(start, start + 10)))
    pages, token = [], None
    while True:
        page = storage.batches(RUN, after=token, limit=2)
        pages.append([file.ticks.start for file in page.files])
        token = page.token
        if token is None:
            break
    assert pages == [[0, 30], [60, 90], [1000, 12345678901]]


def test_after_the_last_file_there_is_nothing_until_a_new_one_comes(storage: Storage) -> None:
    last = storage.write_batch(RUN, ticks(1)).key
    assert storage.batches(RUN, after=last) == ([], None)
    new = storage.write_batch(RUN, ticks(2))
    assert storage.batches(RUN, after=last) == ([new], None)


def test_a_listing_can_be_limited_to_a_tick_range(storage: Storage) -> None:
    files = [storage.write_batch(RUN, ticks(start, start + 9)) for start in range(0, 100, 10)]
    assert storage.batches(RUN, ticks=TickRange(19, 40)).files == files[1:5]
    assert storage.batches(RUN, ticks=TickRange(200, 300)).files == []


def test_a_run_that_is_not_there_has_no_batches(storage: Storage) -> None:
    assert storage.batches(RUN) == ([], None)


def test_a_page_of_nothing_and_a_token_that_is_none_are_refused(storage: Storage) -> None:
    with pytest.raises(ValueError, match="limit"):
        storage.batches(RUN, limit=0)
    with pytest.raises(NotABatchFile):
        storage.batches(RUN, after=f"{RUN}/metadata.pb")


def test_files_of_any_width_nesting_and_compression_are_listed_in_tick_order(tmp_path: Path) -> None:
    keys = [
        f"{RUN}/000/000/batch_0000000000000000000_0000000000000000099.pb",
        f"{RUN}/batch_100_199.pb.zst",
        f"{RUN}/a/b/c/batch_0200_0299.pb",
        f"{RUN}/a/batch_0200_0299.pb.zst",
    ]
    for key in reversed(keys):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"12345")
    found = Storage(tmp_path).batches(RUN).files
    assert [file.key for file in found] == keys
    assert [file.size for file in found] == [5] * 4


def test_what_only_looks_like_a_batch_file_is_not_listed(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    good = storage.write_batch(RUN, ticks(1))
    for name in (".batch_2_2.pb.1-ab.tmp", "batch_9_3.pb", "batch_4.pb", "notes.txt", "EXPECTED.json"):
        (tmp_path / RUN / name).write_text("x")
    (tmp_path / RUN / "batch_5_5.pb").mkdir()
    (tmp_path / RUN / ".trash").mkdir()
    (tmp_path / RUN / ".trash" / "batch_6_6.pb").write_text("x")
    assert storage.batches(RUN).files == [good]


@pytest.mark.parametrize("call", ["open", "batch", "exists", "read_metadata_file"])
@pytest.mark.parametrize("key", ["../secret/batch_1_1.pb", "/etc/passwd", f"{RUN}/../../batch_1_1.pb", "batch_1_1.pb"])
def test_a_key_from_outside_cannot_leave_the_storage(storage: Storage, call: str, key: str) -> None:
    with pytest.raises(UnsafeStorageKey):
        getattr(storage, call)(key)


def test_a_link_out_of_the_storage_is_neither_followed_nor_listed(tmp_path: Path) -> None:
    outside = Storage(tmp_path / "outside")
    secret = outside.write_batch(RUN, ticks(1))
    storage = Storage(tmp_path / "inside")
    storage.write_batch(RUN, ticks(5))
    (tmp_path / "inside" / "linked").symlink_to(tmp_path / "outside" / RUN)
    (tmp_path / "inside" / RUN / "folder").symlink_to(tmp_path / "outside" / RUN)
    (tmp_path / "inside" / RUN / "batch_1_1.pb.zst").symlink_to(tmp_path / "outside" / secret.key)
    name = Path(secret.key).name
    for key in (f"linked/{name}", f"{RUN}/folder/{name}", f"{RUN}/batch_1_1.pb.zst"):
        with pytest.raises(UnsafeStorageKey):
            storage.open(key)
    assert storage.runs() == [RUN]
    assert [file.ticks.start for file in storage.batches(RUN).files] == [5]


def test_a_storage_that_is_itself_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    file = Storage(tmp_path / "link").write_batch(RUN, ticks(1))
    assert Storage(tmp_path / "real").batches(RUN).files == [file]


@pytest.mark.parametrize("run_id", ["..", "a/b", "", ".x"])
def test_a_run_id_from_outside_cannot_leave_the_storage(storage: Storage, run_id: str) -> None:
    for call in (storage.batches, storage.read_metadata, storage.read_completion):
        with pytest.raises(UnsafeRunId):
            call(run_id)
    with pytest.raises(UnsafeRunId):
        storage.write_batch(run_id, ticks(1))


def test_a_missing_file_is_named(storage: Storage) -> None:
    for call in (storage.open, storage.batch):
        with pytest.raises(StoredFileMissing, match="batch_1_1"):
            call(f"{RUN}/batch_1_1.pb")
    with pytest.raises(StoredFileMissing, match=r"metadata\.pb"):
        storage.read_metadata(RUN)


def test_metadata_survives_with_its_unknown_fields_and_says_its_version(storage: Storage) -> None:
    unknown = b"\xba\x3e\x03abc"  # field 999, which no contract knows
    metadata = SimulationMetadata.FromString(SimulationMetadata(simulation_run_id=RUN).SerializeToString() + unknown)
    metadata.user_metadata.update({"b": "1", "a": "2"})
    key = storage.write_metadata(metadata)
    assert key == f"{RUN}/metadata.pb.zst"
    found = storage.read_metadata(RUN)
    assert unknown in found.SerializeToString()
    assert (dict(found.user_metadata), found.format_version) == ({"a": "2", "b": "1"}, FORMAT_VERSION)
    assert metadata.format_version == 0


@pytest.mark.parametrize("compress", [True, False])
def test_metadata_is_found_compressed_or_plain(tmp_path: Path, compress: bool) -> None:
    key = Storage(tmp_path, compress=compress).write_metadata(SimulationMetadata(simulation_run_id=RUN))
    assert key.endswith("metadata.pb.zst" if compress else "metadata.pb")
    assert Storage(tmp_path).read_metadata(RUN) == Storage(tmp_path).read_metadata_file(key)


def test_metadata_is_written_once(storage: Storage) -> None:
    notes = {f"key {number}": "value" for number in range(50)}
    storage.write_metadata(SimulationMetadata(simulation_run_id=RUN, initial_seed=1, user_metadata=notes))
    notes = dict(reversed(notes.items()))
    storage.write_metadata(SimulationMetadata(simulation_run_id=RUN, initial_seed=1, user_metadata=notes))
    with pytest.raises(StoredFileConflict):
        storage.write_metadata(SimulationMetadata(simulation_run_id=RUN, initial_seed=2))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has 0 messages"),
        (frame([b"", b""]), "it has 2 messages"),
        (frame([b"\xff"]), "not a SimulationMetadata"),
        (b"\x05abc", "ends inside a message of 5 bytes, after 3"),
        (frame([SimulationMetadata(simulation_run_id="else").SerializeToString()]), "belongs to run 'else'"),
        (frame([SimulationMetadata(simulation_run_id=RUN, format_version=9).SerializeToString()]), "format_version 9"),
    ],
)
def test_a_bad_metadata_file_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "metadata.pb").write_bytes(content)
    with pytest.raises(BadFile, match=reason):
        Storage(tmp_path).read_metadata(RUN)


def test_the_end_of_a_run_is_known_once_it_is_written(storage: Storage) -> None:
    assert storage.read_completion(RUN) is None
    storage.write_completion(RunCompleted(simulation_run_id=RUN, last_tick=99, written_at_ms=5))
    found = storage.read_completion(RUN)
    assert found == RunCompleted(simulation_run_id=RUN, last_tick=99, written_at_ms=5, format_version=FORMAT_VERSION)
    assert storage.batches(RUN).files == []


def test_a_storage_travels_to_other_processes(storage: Storage) -> None:
    file = storage.write_batch(RUN, ticks(1))
    other = pickle.loads(pickle.dumps(storage))
    assert (other.url, other.compress) == (storage.url, True)
    assert other.batch(file.key) == file


def test_a_relative_path_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = Storage("runs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.write_batch(RUN, ticks(1))
    assert (tmp_path / "runs" / RUN).is_dir()
    assert Storage(f"file://{tmp_path}/runs").url == storage.url


def test_files_have_the_users_own_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        file = Storage(tmp_path).write_batch(RUN, ticks(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / file.key).stat().st_mode) == 0o640


def test_many_writers_of_one_batch_leave_one_file(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    outcomes = all_at_once(8, lambda _: storage.write_batch(RUN, ticks(*range(200))))
    assert len(set(outcomes)) == 1
    assert [path.name for path in (tmp_path / RUN).iterdir()] == [Path(outcomes[0].key).name]


def test_of_many_different_writers_one_wins_and_the_others_hear_of_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path)

    def write(number: int) -> int | None:
        try:
            storage.write_batch(RUN, ticks(0, number + 1, 100))
        except StoredFileConflict:
            return None
        return number

    winners = [number for number in all_at_once(8, write) if number is not None]
    assert len(winners) == 1
    with storage.open(storage.batches(RUN).files[0].key) as stream:
        assert stream.read() == frame(tick.data for tick in ticks(0, winners[0] + 1, 100))


def all_at_once(count: int, work: Any) -> list[Any]:
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
