"""Jobs without a JVM: where many processes index, a Spark for each would be most of what a test measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa


@dataclass(frozen=True)
class InProcess:
    """The part of a Spark session that a flush uses: one task after the other, here.

    `happens` is whatever else is to happen before the results are in.
    """

    conf: ClassVar[Any] = SimpleNamespace(get=lambda *_: "2")
    sparkContext: ClassVar[Any] = SimpleNamespace(defaultParallelism=2, setLocalProperty=lambda *_: None)
    tasks: int = 0
    act: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    happens: Callable[[], object] = lambda: None

    def range(self, start: int, end: int, step: int, partitions: int) -> InProcess:
        return replace(self, tasks=end)

    def mapInArrow(self, act: Any, schema: str) -> InProcess:
        return replace(self, act=act)

    def collect(self) -> list[dict[str, Any]]:
        assert self.act is not None
        tasks = (pa.RecordBatch.from_pydict({"id": [number]}) for number in range(self.tasks))
        rows = [row for task in tasks for batch in self.act(iter([task])) for row in batch.to_pylist()]
        self.happens()
        return rows
