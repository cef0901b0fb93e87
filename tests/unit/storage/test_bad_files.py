"""Every way for a batch file to be bad is a `BadBatchFile` that names the file, the byte and the tick."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ticklake.contracts import TickData
from ticklake.errors import BadBatchFile
from ticklake.storage.codec import read_ticks
from ticklake.storage.delimited import BLOCK_BYTES, frame
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.world import World

WORLD = World("20251014-143025-550e8400", (10, 10), (True, True), 1)

Spoil = Callable[[TickData], Any]


def spoiled(bench: Any, spoil: Spoil, compressed: bool) -> BadBatchFile:
    """Three ticks, the middle one spoiled; the error of reading all their fields."""
    ticks = [bench.tick(5), bench.tick(6), bench.tick(7)]
    ticks[1].organisms.add(organism_id=1)
    spoil(ticks[1])
    file = bench.put_ticks(ticks, TickRange(5, 7), compressed)
    with pytest.raises(BadBatchFile) as caught:
        bench.read(file, fields=["cells", "organisms"], world=WORLD)
    error: BadBatchFile = caught.value
    assert error.key == file.key
    assert error.offset == len(frame([ticks[0].SerializeToString()]))
    assert str(error.offset) in str(error)
    assert file.key in str(error)
    return error


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("spoil", "tick", "reason"),
    [
        (lambda tick: setattr(tick, "simulation_run_id", "other"), 6, "belongs to run 'other'"),
        (lambda tick: setattr(tick, "simulation_run_id", ""), 6, "belongs to run ''"),
        (lambda tick: setattr(tick, "format_version", 2), 6, "format_version 2 is unknown"),
        (lambda tick: setattr(tick, "format_version", -1), 6, "format_version -1 is unknown"),
        (lambda tick: setattr(tick, "tick_number", 8), 8, "outside 5–7"),
        (lambda tick: setattr(tick, "tick_number", -6), -6, "outside 5–7"),
        (lambda tick: setattr(tick, "tick_number", 5), 5, "ticks must ascend, but tick 5 is before it"),
        (lambda tick: tick.cells.add(flat_index=100), 6, "a cell outside the world of 100 cells: 100"),
        (lambda tick: tick.cells.add(flat_index=-1), 6, "a cell outside the world of 100 cells: -1"),
        (lambda tick: tick.cells.add(molecule_value=32768), 6, "molecule_value outside signed 16 bit: 32768"),
        (lambda tick: tick.cells.add(molecule_value=-32769), 6, "molecule_value outside signed 16 bit: -32769"),
        (lambda tick: tick.cells.add(owner_id=-1), 6, "a negative owner_id: -1"),
        (lambda tick: tick.organisms.add(organism_id=-3), 6, "a negative organism_id: -3"),
        (lambda tick: tick.organisms.add(parent_id=-4), 6, "a negative parent_id: -4"),
    ],
)
def test_a_tick_that_makes_no_sense_is_refused(
    bench: Any, spoil: Spoil, tick: int, reason: str, compressed: bool
) -> None:
    error = spoiled(bench, spoil, compressed)
    assert error.tick == tick
    assert reason in error.reason


def test_the_first_cell_of_a_tick_after_an_empty_one_is_told_from_its_neighbours(bench: Any) -> None:
    ticks = [bench.tick(5), bench.tick(6, cells=()), bench.tick(7, cells=[(-1, 0, 0, 0)]), bench.tick(8)]
    with pytest.raises(BadBatchFile) as caught:
        bench.read(bench.put_ticks(ticks))
    assert caught.value.tick == 7


def test_extreme_values_that_make_sense_are_taken(bench: Any) -> None:
    ticks = [bench.tick(0, cells=[(0, 1 << 16, -32768, 0), (99, -(1 << 31), 32767, 2**31 - 1)])]
    ticks[0].organisms.add(organism_id=0, parent_id=0, energy=-5)
    rows = bench.rows(bench.put_ticks(ticks), fields=["cells", "organisms"], world=WORLD)
    assert [cell["molecule_value"] for cell in rows[0]["cells"]] == [-32768, 32767]


def test_a_world_is_not_needed_to_refuse_a_negative_cell(bench: Any) -> None:
    file = bench.put_ticks([bench.tick(0, cells=[(-1, 0, 0, 0)])])
    with pytest.raises(BadBatchFile, match="-1"):
        bench.read(file)
    assert bench.numbers(file) == [0]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_message_that_is_no_tick_is_refused(bench: Any, compressed: bool) -> None:
    messages = [bench.tick(5).SerializeToString(), b"\x0a\xff\xff", bench.tick(7).SerializeToString()]
    file = bench.put(frame(messages), TickRange(5, 7), compressed)
    with pytest.raises(BadBatchFile, match="not a TickData") as caught:
        bench.read(file)
    assert (caught.value.offset, caught.value.tick) == (len(frame(messages[:1])), 5)


@pytest.mark.parametrize(("field", "inside"), [("cells", b"\x2a\x02\x08\xff"), ("organisms", b"\x22\x02\x22\x09")])
def test_a_tick_with_a_broken_inside_is_refused(bench: Any, field: str, inside: bytes) -> None:
    messages = [bench.tick(number).SerializeToString() for number in (5, 6, 7)]
    messages[1] += inside
    file = bench.put(frame(messages), TickRange(5, 7))
    with pytest.raises(BadBatchFile, match="not a TickData") as caught:
        bench.read(file, fields=[field])
    assert (caught.value.offset, caught.value.tick) == (len(frame(messages[:1])), 6)
    assert bench.numbers(file) == [5, 6, 7]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_torn_tail_is_refused_wherever_it_is_torn(bench: Any, compressed: bool) -> None:
    messages = [bench.tick(number).SerializeToString() for number in range(3)]
    content = frame(messages)
    for length in range(len(content)):
        file = bench.put(content[:length], TickRange(0, 2), compressed)
        with pytest.raises(BadBatchFile) as caught:
            bench.read(file)
        whole = sum(len(frame(messages[: count + 1])) <= length for count in range(3))
        assert caught.value.tick == (whole - 1 if whole else None)


def test_a_file_that_does_not_start_as_its_name_promises_is_refused(bench: Any) -> None:
    with pytest.raises(BadBatchFile, match="starts with this tick, but its name says 4"):
        bench.read(bench.put_ticks([bench.tick(5), bench.tick(6)], TickRange(4, 6)))


def test_bytes_after_the_last_tick_are_refused(bench: Any) -> None:
    file = bench.put(frame([bench.tick(5).SerializeToString()]) + b"\x00", TickRange(5, 5))
    with pytest.raises(BadBatchFile, match="belongs to run ''"):
        bench.read(file)


def test_an_empty_file_is_refused(bench: Any) -> None:
    for stored in (b"", b"garbage"):
        with pytest.raises(BadBatchFile):
            bench.read(bench.put(b"", TickRange(5, 5), compressed=True, stored=stored))
    with pytest.raises(BadBatchFile, match="its name says tick 5"):
        bench.read(bench.put(b"", TickRange(5, 5)))


def test_a_tick_after_the_last_one_of_the_name_is_refused(bench: Any) -> None:
    ticks = [bench.tick(5), bench.tick(6), bench.tick(8)]
    with pytest.raises(BadBatchFile, match="outside") as caught:
        bench.read(bench.put_ticks(ticks, TickRange(5, 7)))
    assert caught.value.tick == 8


def test_a_wrong_checksum_is_noticed_by_a_slice_that_ends_long_before_it(bench: Any) -> None:
    ticks = [bench.tick(number, cells=[(place, 0, number, 0) for place in range(2000)]) for number in range(200)]
    file = bench.put_ticks(ticks, compressed=True)
    path = Path(bench.storage.url) / file.key
    stored = path.read_bytes()
    assert bench.numbers(file, ticks=TickRange(0, 0)) == [0]
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    with pytest.raises(BadBatchFile, match="checksum"):
        bench.read(file, ticks=TickRange(0, 0))


class CountingStorage(Storage):
    """Counts the bytes that are read from its files."""

    count = 0

    def open(self, key: str) -> BinaryIO:
        storage = self

        class Counting(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(size)
                storage.count += len(data)
                return data

        with super().open(key) as stream:
            return Counting(stream.read())


def test_a_slice_of_a_plain_file_does_not_read_what_comes_after_it(bench: Any) -> None:
    content = frame(tick.data for tick in bench.encoded(*range(100_000)))
    file = bench.put(content + b"\xff" * 20, TickRange(0, 100_000))
    storage = CountingStorage(bench.storage.url)
    batches = list(read_ticks(storage, file, ticks=TickRange(3, 5), fields=[]))
    assert [batch.column("tick_number").to_pylist() for batch in batches] == [[3, 4, 5]]
    assert storage.count == BLOCK_BYTES
    with pytest.raises(BadBatchFile):
        bench.numbers(file)


def test_the_error_of_a_bad_tick_in_a_later_chunk_comes_after_the_good_chunks(bench: Any) -> None:
    ticks = [bench.tick(number) for number in range(10)]
    ticks[7].cells[0].flat_index = -1
    read = read_ticks(bench.storage, bench.put_ticks(ticks), fields=["cells"], chunk_bytes=1)
    with pytest.raises(BadBatchFile) as caught:
        for number in range(10):
            assert next(read).column("tick_number").to_pylist() == [number]
    assert (number, caught.value.tick) == (7, 7)
