"""A Delta table's files as an Arrow dataset."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyarrow.dataset import Dataset
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem


def dataset_of(delta: DeltaTable, directory: Path) -> Dataset:
    """Read through Arrow's own file system: that of delta-rs is Python in Arrow's threads, and a process that ends
    while one of them still closes a file is aborted."""
    return delta.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(directory), LocalFileSystem()))
