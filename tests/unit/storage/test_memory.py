"""Reading takes the memory of a chunk, whatever the size of the file. Measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from ticklake.contracts import TickData
from ticklake.storage.codec import CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.storage.delimited import frame
from ticklake.storage.names import batch_name
from ticklake.ticks import TickRange

READER = """
    import re, sys
    from pathlib import Path
    from ticklake.storage.codec import read_ticks
    from ticklake.storage.files import Storage

    storage = Storage(sys.argv[1])
    file = storage.batch(sys.argv[2])
    batches = read_ticks(storage, file, fields=["cells"], chunk_bytes=int(sys.argv[3]))
    # Not getrusage: what the parent had in memory before the exec counts there.
    print(sum(map(len, batches)), re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])
"""


def write_large(root: Path, run_id: str, megabytes: int, compressed: bool) -> tuple[str, int]:
    """A batch file of that size, written piece by piece; all its ticks have the same cells."""
    rng = np.random.default_rng(1)
    cells = CellColumns(*(rng.integers(0, 10_000, 1000) for _ in range(4)))
    body = encode_ticks("", [TickColumns(0, 0, cells, OrganismColumns())])[0].data
    count = megabytes * (1 << 20) // len(body)
    key = f"{run_id}/{batch_name(TickRange(0, count - 1), compressed)}"
    (root / run_id).mkdir(parents=True)
    with (root / key).open("wb") as file:
        stream: Any = zstandard.ZstdCompressor(level=1, write_checksum=True).stream_writer(file) if compressed else file
        for number in range(count):
            stream.write(frame([TickData(simulation_run_id=run_id, tick_number=number).SerializeToString() + body]))
        if compressed:
            stream.flush(zstandard.FLUSH_FRAME)
    return key, count


def peak(root: Path, key: str, chunk_bytes: int) -> tuple[int, int]:
    """The ticks that a fresh process read, and its peak memory in MiB."""
    command = [sys.executable, "-c", textwrap.dedent(READER), str(root), key, str(chunk_bytes)]
    ticks, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(ticks), int(memory) // 1024


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to tell the peak memory")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_much_larger_than_a_chunk_takes_the_memory_of_chunks(tmp_path: Path, compressed: bool) -> None:
    key, count = write_large(tmp_path, "run", 100, compressed)
    ticks, memory = peak(tmp_path, key, 2 << 20)
    assert ticks == count
    assert memory < 200


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_of_two_gigabytes_takes_less_than_512_megabytes(tmp_path: Path, compressed: bool) -> None:
    key, count = write_large(tmp_path, "run", 2048, compressed)
    ticks, memory = peak(tmp_path, key, 16 << 20)
    (tmp_path / key).unlink()
    assert ticks == count
    assert memory < 512
