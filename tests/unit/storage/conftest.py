"""Small runs, and ticks of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticklake.contracts import FORMAT_VERSION, TickData
from ticklake.storage import zstd
from ticklake.storage.codec import EncodedTick, read_ticks
from ticklake.storage.delimited import frame
from ticklake.storage.files import BatchFile, Storage
from ticklake.storage.names import batch_name
from ticklake.ticks import TickRange

RUN = "20251014-143025-550e8400"
SHARED_DATA = Path(__file__).parents[3].parent / "shared" / "data"


class Bench:
    """A storage to spoil: writes whatever bytes under whatever name, and reads them back."""

    run = RUN

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def tick(self, number: int, cells: Sequence[tuple[int, int, int, int]] = ((1, 65536, 2, 3),)) -> TickData:
        tick = TickData(simulation_run_id=RUN, tick_number=number, format_version=FORMAT_VERSION)
        for flat_index, kind, value, owner in cells:
            tick.cells.add(flat_index=flat_index, molecule_type=kind, molecule_value=value, owner_id=owner)
        return tick

    def encoded(self, *numbers: int) -> list[EncodedTick]:
        return [EncodedTick(number, self.tick(number).SerializeToString()) for number in numbers]

    def put(self, content: bytes, ticks: TickRange, compressed: bool = False, stored: bytes | None = None) -> BatchFile:
        """A batch file with exactly this content, or with exactly these stored bytes."""
        key = f"{RUN}/{batch_name(ticks, compressed)}"
        path = Path(self.storage.url) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored if stored is not None else zstd.compress(content) if compressed else content)
        return self.storage.batch(key)

    def put_ticks(
        self, ticks: Sequence[TickData], span: TickRange | None = None, compressed: bool = False
    ) -> BatchFile:
        span = span or TickRange(ticks[0].tick_number, ticks[-1].tick_number)
        return self.put(frame(tick.SerializeToString() for tick in ticks), span, compressed)

    def read(self, file: BatchFile, **options: Any) -> list[pa.RecordBatch]:
        return list(read_ticks(self.storage, file, **{"fields": ["cells"], **options}))

    def rows(self, file: BatchFile, **options: Any) -> list[dict[str, Any]]:
        return [row for batch in self.read(file, **options) for row in batch.to_pylist()]

    def numbers(self, file: BatchFile, **options: Any) -> list[int]:
        return [row["tick_number"] for row in self.rows(file, **{"fields": [], **options})]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Storage(tmp_path / "storage"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the real runs, ../shared/data, are not here")
    return SHARED_DATA
