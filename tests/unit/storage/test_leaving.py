"""A run that leaves: it is marked, nobody lists it, and its files go. In a directory and in an object store."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from ticklake.contracts import RunCompleted
from ticklake.errors import StoredFileConflict
from ticklake.storage.columns import EncodedTick
from ticklake.storage.files import Storage

RUN, OTHER = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"


@pytest.fixture(params=["directory", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(tmp_path if request.param == "directory" else f"memory://{uuid4().hex}")


def test_a_marked_run_is_not_listed_until_it_is_gone(storage: Storage) -> None:
    for run_id in (RUN, OTHER):
        storage.write_batch(run_id, [EncodedTick(0, b"a")])
    assert (storage.leaving_runs(), storage.leaving_note(RUN)) == ([], None)
    for note in ("first", "second"):
        storage.mark_leaving(RUN, note)
    assert (storage.runs(), storage.leaving_runs(), storage.leaving_note(RUN)) == ([OTHER], [RUN], "first")
    assert [key for key, _ in storage.everything(RUN)] == [f"{RUN}/batch_0000000000_0000000000.pb.zst"]
    for _ in range(2):
        storage.remove_run(RUN)
        storage.unmark_leaving(RUN)
    assert (storage.runs(), storage.leaving_runs(), storage.everything(RUN)) == ([OTHER], [], [])
    storage.write_batch(RUN, [EncodedTick(0, b"b")])
    assert storage.runs() == [RUN, OTHER]


def test_the_record_of_an_end_has_one_name_and_can_be_replaced(storage: Storage) -> None:
    plain = Storage(storage.url, compress=False)
    plain.write_completion(RunCompleted(simulation_run_id=RUN, last_tick=9))
    with pytest.raises(StoredFileConflict):
        storage.write_completion(RunCompleted(simulation_run_id=RUN, last_tick=19))
    storage.replace_completion(RunCompleted(simulation_run_id=RUN, last_tick=19))
    found = plain.read_completion(RUN)
    assert found is not None and found.last_tick == 19
    assert [key for key, _ in storage.everything(RUN)] == [f"{RUN}/completed.pb.zst"]
