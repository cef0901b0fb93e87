"""For any ticks, any chunk size and any slicing; and for any damage to the bytes of a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from ticklake.contracts import FORMAT_VERSION, TickData
from ticklake.errors import BadBatchFile
from ticklake.storage import zstd
from ticklake.storage.codec import read_ticks
from ticklake.storage.delimited import frame
from ticklake.storage.files import BatchFile, Storage
from ticklake.storage.names import batch_name
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"
INT32 = st.integers(-(2**31), 2**31 - 1)
ID = st.integers(0, 2**31 - 1)

cells = st.tuples(ID, INT32, st.integers(-(2**15), 2**15 - 1), ID)
organisms = st.tuples(ID, st.none() | ID, st.integers(-(2**62), 2**63 - 1), st.text(max_size=5), INT32, st.booleans())
contents = st.tuples(st.lists(cells, max_size=20), st.lists(organisms, max_size=4), st.binary(max_size=50))
runs = st.dictionaries(st.integers(0, 2**63 - 1) | st.integers(0, 300), contents, min_size=1, max_size=12)

ORGANISM = ("organism_id", "parent_id", "birth_tick", "program_id", "energy", "is_dead")
FIELDS = ("cells", "rng_state", *(f"organisms.{name}" for name in ORGANISM))


def tick(number: int, content: Any) -> TickData:
    data = TickData(simulation_run_id=RUN, tick_number=number, rng_state=content[2], format_version=FORMAT_VERSION)
    for flat_index, kind, value, owner in content[0]:
        data.cells.add(flat_index=flat_index, molecule_type=kind, molecule_value=value, owner_id=owner)
    for organism_id, parent_id, birth_tick, program_id, energy, is_dead in content[1]:
        data.organisms.add(
            organism_id=organism_id, parent_id=parent_id, birth_tick=birth_tick, program_id=program_id, energy=energy,
            is_dead=is_dead,
        )  # fmt: skip
    return data


def expected(run: dict[int, Any]) -> list[tuple[Any, ...]]:
    return [(number, *run[number]) for number in sorted(run)]


def rows(storage: Storage, file: BatchFile, **options: Any) -> list[tuple[Any, ...]]:
    batches = read_ticks(storage, file, fields=FIELDS, **options)
    return [
        (
            row["tick_number"],
            [tuple(cell.values()) for cell in row["cells"]],
            [
                tuple(one[name] for name in ORGANISM)
                for one in row["organisms"]
            ],
            row["rng_state"],
        )
        for batch in batches
        for row in batch.to_pylist()
    ]  # fmt: skip


@contextmanager
def written(run: dict[int, Any], compress: bool) -> Iterator[tuple[Storage, BatchFile]]:
    with tempfile.TemporaryDirectory() as root:
        key = f"{RUN}/{batch_name(TickRange(min(run), max(run)), compress)}"
        content = frame(tick(number, run[number]).SerializeToString() for number in sorted(run))
        path = Path(root, key)
        path.parent.mkdir()
        path.write_bytes(zstd.compress(content) if compress else content)
        storage = Storage(root)
        yield storage, storage.batch(key)


@given(runs, st.booleans(), st.integers(1, 3000))
def test_any_ticks_come_back_in_any_chunk_size(run: dict[int, Any], compress: bool, chunk_bytes: int) -> None:
    with written(run, compress) as (storage, file):
        assert rows(storage, file, chunk_bytes=chunk_bytes) == expected(run)


@given(runs, st.booleans(), st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 300), max_size=4), st.data())
def test_slices_partition_the_file(run: dict[int, Any], compress: bool, cuts: list[int], data: st.DataObject) -> None:
    skip = data.draw(st.sets(st.sampled_from(sorted(run))))
    bounds = [0, *sorted(cuts), 2**63]
    with written(run, compress) as (storage, file):
        slices = [rows(storage, file, ticks=TickRange(start, end - 1), skip=skip) for start, end in pairwise(bounds)]
        assert [row for part in slices for row in part] == [row for row in expected(run) if row[0] not in skip]


@given(runs, st.booleans(), st.data())
def test_no_truncated_file_is_read(run: dict[int, Any], compress: bool, data: st.DataObject) -> None:
    with written(run, compress) as (storage, file):
        path = Path(storage.url) / file.key
        stored = path.read_bytes()
        path.write_bytes(stored[: data.draw(st.integers(0, len(stored) - 1))])
        try:
            found = rows(storage, file)
        except BadBatchFile as error:
            assert error.key == file.key
        else:
            raise AssertionError(f"read {len(found)} rows of a truncated file")


@given(runs, st.data())
def test_no_flipped_bit_in_a_compressed_file_gives_a_wrong_row(run: dict[int, Any], data: st.DataObject) -> None:
    with written(run, compress=True) as (storage, file):
        path = Path(storage.url) / file.key
        stored = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, len(stored) * 8 - 1))
        stored[bit // 8] ^= 1 << bit % 8
        path.write_bytes(stored)
        numbers = data.draw(st.none() | st.just(TickRange(min(run), min(run))))
        try:
            found = rows(storage, file, ticks=numbers)
        except BadBatchFile:
            return
        assert found == [row for row in expected(run) if numbers is None or row[0] in numbers]


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_refused_or_read(content: bytes, compressed: bool) -> None:
    assume(content)
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / RUN / f"batch_0_5.pb{'.zst' if compressed else ''}"
        path.parent.mkdir()
        path.write_bytes(content)
        storage = Storage(root)
        try:
            rows(storage, storage.batch(f"{RUN}/{path.name}"))
        except BadBatchFile:
            return
        raise AssertionError("random bytes were read as ticks of a run they cannot name")
