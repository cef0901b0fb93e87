"""Folders and metadata of newer builds of the original: found and read, and nothing else taken for a batch file."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.storage.delimited import frame, varint
from ticklake.storage.errors import BadFile
from ticklake.storage.files import Storage
from ticklake.storage.watch import Watch
from ticklake.world import World

RUN = "20261116-13544087-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"
DATA = Path(__file__).parents[2] / "data"
BATCHES = [
    f"{RUN}/raw/000/000/batch_0000000000000000000_0000000000000000329.pb.zst",
    f"{RUN}/raw/000/000/batch_0000000000000000168_0000000000000000497.pb.zst",
    f"{RUN}/raw/000/000/batch_0000000000000000504_0000000000000000833.pb.zst",
]
OTHERS = [
    f"{RUN}/analytics/population/lod0/000/000/batch_00000000000000000000_00000000000000000329.parquet",
    f"{RUN}/analytics/population/metadata.json",
    f"{RUN}/raw/000/000/batch_0000000000000000000_0000000000000000009.pb.zst.{uuid.UUID(int=7)}.tmp",
    f"{RUN}/raw/000/000/{uuid.UUID(int=8)}.tmp",
    f"{RUN}/raw/metadata.pb.zst.{uuid.UUID(int=9)}.tmp",
    f"{RUN}/superseded/batch_0000000000000000000_0000000000000000009.pb.zst",
    f"{RUN}/raw/superseded/000/batch_0000000000000000000_0000000000000000009.pb.zst",
    f"{RUN}/raw/000/superseded/batch_0000000000000000000_0000000000000000009.pb",
]


@pytest.fixture(params=["directory", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    url = str(tmp_path) if request.param == "directory" else f"memory://{uuid.uuid4().hex}"
    files, root = fsspec.core.url_to_fs(url)
    for key in (*BATCHES, *OTHERS):
        files.makedirs(f"{root}/{key}".rpartition("/")[0], exist_ok=True)
        files.pipe_file(f"{root}/{key}", b"x")
    return Storage(url)


def test_only_batch_files_are_listed(storage: Storage) -> None:
    assert [file.key for file in storage.every_batch(RUN)] == BATCHES
    assert sorted(f"{RUN}/{name}" for _, name in Watch(storage, RUN).look()) == BATCHES


def test_superseded_files_are_not_reported_as_passed_over(storage: Storage) -> None:
    assert storage.passed_over(RUN) == []


def test_a_run_may_have_the_name_of_the_ignored_folder(tmp_path: Path) -> None:
    path = tmp_path / "superseded" / "batch_0_1.pb"
    path.parent.mkdir()
    path.write_bytes(b"x")
    storage = Storage(tmp_path)
    assert [file.key for run in storage.runs() for file in storage.every_batch(run)] == ["superseded/batch_0_1.pb"]


@pytest.mark.parametrize("kind", ["newer", "newer-synthetic"])
def test_metadata_of_a_real_run_is_read(kind: str) -> None:
    expected = json.loads((DATA / "newer" / RUN / "EXPECTED.json").read_text())
    metadata = Storage(DATA / kind).read_metadata(RUN)
    world = World.of(metadata)
    assert (world.run_id, list(world.shape), world.toroidal) == (RUN, expected["shape"], (True, True))
    assert world.sampling_interval == expected["sampling_interval"]
    assert (metadata.start_time_ms, metadata.initial_seed) == (expected["start_time_ms"], expected["initial_seed"])
    assert [program.program_id for program in metadata.programs] == expected["program_ids"]
    revision = {"evochora.build_revision": "unknown"} if kind == "newer-synthetic" else {}
    assert dict(metadata.user_metadata) == {"experiment": "ticklake-test-c", "version": "0.4.0"} | revision


def test_metadata_beside_the_run_comes_before_that_in_raw(tmp_path: Path) -> None:
    for folder, seed in ((tmp_path / RUN, 1), (tmp_path / RUN / "raw", 2)):
        folder.mkdir()
        metadata = SimulationMetadata(simulation_run_id=RUN, initial_seed=seed, sampling_interval=1)
        (folder / "metadata.pb").write_bytes(frame([metadata.SerializeToString()]))
    assert Storage(tmp_path).read_metadata(RUN).initial_seed == 1


def text(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def new_metadata(config: Any, more: bytes = b"") -> bytes:
    return text(1, RUN.encode()) + text(5, json.dumps(config).encode()) + more


def stored(tmp_path: Path, message: bytes) -> Storage:
    (tmp_path / RUN / "raw").mkdir(parents=True)
    (tmp_path / RUN / "raw" / "metadata.pb").write_bytes(frame([message]))
    return Storage(tmp_path)


def test_absent_settings_have_the_defaults_of_the_original(tmp_path: Path) -> None:
    config = {"environment": {"shape": [32, 64, 96], "topology": "BOUND"}}
    world = World.of(stored(tmp_path, new_metadata(config)).read_metadata(RUN))
    assert (world.shape, world.toroidal, world.sampling_interval) == ((32, 64, 96), (False,) * 3, 1)


def test_a_fork_names_its_origin(tmp_path: Path) -> None:
    fork = text(7, text(1, b"parent") + b"\x10\x64\x18\xc8\x01")
    metadata = stored(tmp_path, new_metadata({"environment": {"shape": [32]}}, fork)).read_metadata(RUN)
    assert metadata.user_metadata["evochora.fork"] == "parent 100-200"


def test_programs_of_later_builds_do_not_hide_the_world(tmp_path: Path) -> None:
    environment = EnvironmentConfig(dimensions=1, shape=[32], toroidal=[True])
    metadata = SimulationMetadata(simulation_run_id=RUN, environment=environment, sampling_interval=7)
    # Since 2025-11-20, field 2 of a binding is a list of numbers, which is not a valid Vector.
    program = text(6, text(1, b"p") + text(6, b"\x08\x01" + text(2, b"\x01\x02\x03")))
    read = stored(tmp_path, metadata.SerializeToString() + program).read_metadata(RUN)
    assert World.of(read) == World.of(metadata)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (new_metadata({"environment": {"shape": [32]}}, b"\x50\x01"), "it has field 10 of before"),
        (new_metadata({"environment": {}}), "no valid environment.*'shape'"),
        (new_metadata({"environment": {"shape": [32], "topology": "KLEIN"}}), "KLEIN"),
        (new_metadata({"environment": {"shape": "32"}}), "no valid environment"),
        (new_metadata({"environment": {"shape": [32]}, "samplingInterval": 1.5}), "samplingInterval"),
        (text(1, RUN.encode()) + text(5, b"{no"), "not a SimulationMetadata"),
        (text(1, RUN.encode()) + b"\x2a\x7f{", "127 bytes, but its message has only 1"),
    ],
)
def test_metadata_of_neither_numbering_is_refused(tmp_path: Path, message: bytes, reason: str) -> None:
    with pytest.raises(BadFile, match=reason):
        stored(tmp_path, message).read_metadata(RUN)
