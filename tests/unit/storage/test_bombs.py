"""Small files that unfold to a lot: each is refused before it costs much memory or time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.original import RUN, Organism, Tick, framed, number, organism, packed, part, tick_data

from ticklake.storage import zstd
from ticklake.storage.codec import read_ticks
from ticklake.storage.errors import BadBatchFile, BadFile
from ticklake.storage.files import BatchFile, Storage
from ticklake.world import World

MIB = 1 << 20
WORLD = World(RUN, (10, 10), (True, True), 1)
HEAD = part(1, RUN.encode()) + number(4, 1)
ID = part(1, RUN.encode())


def put(root: Path, content: bytes) -> BatchFile:
    path = root / RUN / "raw" / f"batch_{0:019d}_{0:019d}.pb.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstd.compress(content))
    return Storage(root).batch(f"{RUN}/raw/{path.name}")


def refusal(root: Path, content: bytes, *fields: str) -> BadBatchFile:
    file = put(root, content)
    assert file.size < 10_000
    with pytest.raises(BadBatchFile) as caught:
        list(read_ticks(Storage(root), file, fields=fields, world=WORLD))
    return caught.value


@pytest.mark.parametrize("field", ["cells.state", "organisms.energy"])
def test_a_huge_organism(tmp_path: Path, field: str) -> None:
    content = framed([HEAD + part(5, ID + part(4, organism(Organism(1), "E") + part(99, bytes(5 * MIB))))])
    assert "an organism of 5243" in str(refusal(tmp_path, content, field).reason)


def test_a_huge_organism_after_the_first(tmp_path: Path) -> None:
    good, huge = organism(Organism(1), "E"), organism(Organism(2), "E") + part(99, bytes(5 * MIB))
    content = framed([HEAD + part(5, ID + part(4, good) + part(4, huge)) + number(6, 1)])
    assert "an organism of 5243" in str(refusal(tmp_path, content, "organisms.energy").reason)


def test_more_organisms_than_a_recording_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.storage.eras.recordings.MAX_MESSAGE_BYTES", MIB)
    several = b"".join(part(4, organism(Organism(1), "E")) for _ in range(5000))
    content = framed([HEAD + part(5, ID + several) + number(6, 1)])
    assert "organisms of more than 1048576 bytes" in str(refusal(tmp_path, content, "organisms.energy").reason)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_more_cells_than_the_world_has(tmp_path: Path, which: int) -> None:
    content = framed([HEAD + part(5, ID + part(5, part(which, bytes(3 * MIB))))])
    assert "more than the 100 cells" in str(refusal(tmp_path, content, "cells.state").reason)


def test_more_molecules_than_cells(tmp_path: Path) -> None:
    content = framed([HEAD + part(5, ID + part(5, packed(1, [5]) + part(2, bytes(3 * MIB))))])
    assert "more than the 1 cells" in str(refusal(tmp_path, content, "cells.state").reason)


def test_empty_messages(tmp_path: Path) -> None:
    error = refusal(tmp_path, bytes(MIB), "cells.state")
    assert "has no run id" in str(error.reason)
    assert error.offset == 1


@pytest.mark.parametrize(
    "content",
    [
        framed([ID + number(2, 1, present=True) * 5000]),
        framed([ID] * 5000),
        framed([HEAD + part(5, ID + number(2, 0, present=True) * 5000)]),
    ],
    ids=["fields", "messages", "fields of a snapshot"],
)
def test_fields_that_decide_nothing(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.storage.eras.detection._MOST_NUMBERS", 9000)
    assert "nothing in its first" in str(refusal(tmp_path, content, "cells.state").reason)


@pytest.mark.parametrize("field", [7, 8])
@pytest.mark.parametrize("count", [1, 2, 2**31 - 1])
def test_lists_of_deltas_that_are_not_there(tmp_path: Path, field: int, count: int) -> None:
    start = ID + number(3, 0) + number(4, count) + part(5, tick_data(Tick(0, {}), "F"))
    content = framed([start + part(field, bytes(2 * MIB)) * 2 + part(10, number(1, 1) + number(3, 1))])
    assert f"field {field} of a chunk lists" in str(refusal(tmp_path, content, "cells.state").reason)


def metadata_refusal(root: Path, content: bytes) -> str:
    path = root / RUN / "raw" / "metadata.pb.zst"
    path.parent.mkdir(parents=True)
    path.write_bytes(zstd.compress(content))
    with pytest.raises(BadFile) as caught:
        Storage(root).read_metadata(RUN)
    return str(caught.value.reason)


def test_metadata_of_many_messages(tmp_path: Path) -> None:
    assert "2 messages or more" in metadata_refusal(tmp_path, bytes(3 * MIB))


@pytest.mark.parametrize("inner", [part(5, b"{}"), part(9, b"{}")], ids=["new", "old"])
def test_metadata_of_many_fields(tmp_path: Path, inner: bytes) -> None:
    assert "more than 100,000 fields" in metadata_refusal(tmp_path, framed([ID + inner + part(6, b"") * 110_000]))


def test_a_configuration_that_is_nested_deeply(tmp_path: Path) -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert "is not a SimulationMetadata" in metadata_refusal(tmp_path, framed([ID + part(5, deep)]))
