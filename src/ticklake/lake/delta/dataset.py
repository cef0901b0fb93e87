"""A Delta table's files as an Arrow dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

if TYPE_CHECKING:
    # It loads pandas, a second of processor that those who only write can save.
    from pyarrow.dataset import Dataset


def dataset_of(delta: DeltaTable, directory: Path) -> Dataset:
    """Read through Arrow's own file system: that of delta-rs is Python in Arrow's threads, and a process that ends
    while one of them still closes a file is aborted."""
    return delta.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(directory), LocalFileSystem()))
