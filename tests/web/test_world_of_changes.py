"""The world page, if the tables have only snapshots or only changes: it shows the right cells, or that it has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.crash import original
from tests.unit.indexers.test_cells import index_run, put
from tests.unit.storage.test_eras import some_ticks

from ticklake.lake.read import Catalog, Frames, Series
from ticklake.ticks import TickRange
from ticklake.web.pages.world import HEADER, NO_CELLS, frame, history, ticks_of

TICKS = some_ticks(5, count=20, organisms=False)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    put(tmp_path / "storage", "G", TICKS, chunk=10)
    return tmp_path / "lake"


def frames_with(lake: Path, *cells: str, ticks: TickRange | None = None) -> Frames:
    for one in cells:
        index_run(lake.parent / "storage", lake, original.RUN, one, ticks)
    return Frames(Catalog(lake))


def shown(frames: Frames, tick: int) -> list[int] | None:
    """Returns the cells of a frame; None if they are not in a table."""
    data = frame(frames, original.RUN, tick)
    _, cells, _, flags, _ = HEADER.unpack_from(data)
    return None if flags & NO_CELLS else np.frombuffer(data, "<i4", cells, HEADER.size).tolist()


def test_a_tick_between_snapshots_is_no_empty_world(lake: Path) -> None:
    frames = frames_with(lake, "snapshots")
    assert ticks_of(frames, original.RUN) == TickRange(0, 19)
    assert [tick for tick in range(20) if shown(frames, tick) is not None] == [0, 10]
    states = {one["tick_number"]: one["state"] for one in history(frames, original.RUN, 7, 19)["changes"]}
    assert {tick for tick, state in states.items() if state == "unknown"} == {1, 11}
    chart = Series(frames).chart(original.RUN, TickRange(0, 19), 20).table
    counts = [len(TICKS[tick].cells) if tick in (0, 10) else None for tick in range(20)]
    assert chart["occupied_cells_mean"].to_pylist() == counts


@pytest.mark.parametrize("cells", [["changes"], ["snapshots", "changes"]])
def test_frames_and_histories_are_rebuilt_from_changes(lake: Path, cells: list[str]) -> None:
    frames = frames_with(lake, *cells)
    for tick in TICKS:
        assert shown(frames, tick.number) == sorted(tick.cells)
    for cell in (7, 40, 99):
        rows = history(frames, original.RUN, cell, 18)["rows"]
        expected = {tick.number: tick.cells[cell][1] for tick in TICKS[:19] if cell in tick.cells}
        assert {row["tick_number"]: row["owner_id"] for row in rows} == expected


def test_ticks_without_the_one_they_build_on_are_unknown(lake: Path) -> None:
    frames = frames_with(lake, "changes", ticks=TickRange(5, 14))
    assert [tick for tick in range(20) if shown(frames, tick) is not None] == [10, 11, 12, 13, 14]
    changes = history(frames, original.RUN, next(iter(TICKS[12].cells)), 14)["changes"]
    assert all(one["tick_number"] >= 5 or one["state"] == "unknown" for one in changes)
