"""A run that leaves: it is marked, nobody lists it, and its files go. In a directory and in an object store."""

from __future__ import annotations

import subprocess
import sys
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
    first, second = (RunCompleted(simulation_run_id=RUN, last_tick=last, format_version=1) for last in (9, 19))
    plain.write_completion(first)
    with pytest.raises(StoredFileConflict):
        storage.write_completion(second)
    assert storage.replace_completion(first, second)
    assert plain.read_completion(RUN) == second
    assert [key for key, _ in storage.everything(RUN)] == [f"{RUN}/completed.pb.zst"]


def test_only_the_known_record_is_replaced_or_removed(storage: Storage) -> None:
    first, second = (RunCompleted(simulation_run_id=RUN, last_tick=last, format_version=1) for last in (9, 19))
    assert not storage.replace_completion(first, second) and not storage.remove_completion(first)
    storage.write_completion(second)
    assert not storage.replace_completion(first, first) and not storage.remove_completion(first)
    assert storage.read_completion(RUN) == second
    assert storage.remove_completion(second)
    assert storage.read_completion(RUN) is None


COUNTING = """
import sys
from ticklake.contracts import RunCompleted
from ticklake.storage import Storage

storage, run, mine = Storage(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for turn in range(mine):
    done = False
    while not done:
        known = storage.read_completion(run)
        if known is None:
            continue  # another one has just taken it away
        new = RunCompleted(simulation_run_id=run, last_tick=known.last_tick + 1, format_version=1)
        if turn % 2:
            done = storage.replace_completion(known, new)
        elif done := storage.remove_completion(known):
            storage.write_completion(new)
"""


def test_processes_that_change_the_record_at_the_same_time_lose_no_change(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "storage")
    storage.write_completion(RunCompleted(simulation_run_id=RUN, last_tick=0))
    command = [sys.executable, "-c", COUNTING, storage.url, RUN, "60"]
    counting = [subprocess.Popen(command) for _ in range(3)]
    assert [one.wait() for one in counting] == [0, 0, 0]
    found = storage.read_completion(RUN)
    assert found is not None and found.last_tick == 180
