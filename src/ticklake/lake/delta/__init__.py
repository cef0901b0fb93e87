"""Delta tables as files: the log, its commits and checkpoints, Parquet files. Only this package knows delta-rs."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticklake.lake.delta.commits import SOURCES, Commit, added_ticks, decode_commit, name_of, read_commit
from ticklake.lake.delta.dataset import dataset_of
from ticklake.lake.delta.durable import make_directory, remove
from ticklake.lake.delta.features import check_readable
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.history import Head
from ticklake.lake.delta.log import INDEXER, KEY, CommitConflict, DeltaLog, live_files, one_line, paths_of
from ticklake.lake.delta.ownership import RUN, check_run, require_run
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter, checksum, finish, is_damage, opened
from ticklake.lake.delta.recovery import check_intact, checkpoint_name, durable_version, opens_without
from ticklake.lake.delta.scratch import HINT
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile, Snapshot
from ticklake.lake.delta.summary import Summary, recorded
from ticklake.lake.delta.types import unfit_types

__all__ = [
    "ANY_TICK",
    "HINT",
    "INDEXER",
    "KEY",
    "RUN",
    "SOURCES",
    "Commit",
    "CommitConflict",
    "DeltaError",
    "DeltaLog",
    "DeltaTable",
    "Head",
    "LiveFile",
    "ParquetFile",
    "ParquetFileWriter",
    "Snapshot",
    "Summary",
    "TableFolder",
    "TableNotFoundError",
    "added_ticks",
    "check_intact",
    "check_readable",
    "check_run",
    "checkpoint_name",
    "checksum",
    "dataset_of",
    "decode_commit",
    "durable_version",
    "finish",
    "is_damage",
    "live_files",
    "make_directory",
    "name_of",
    "one_line",
    "opened",
    "opens_without",
    "paths_of",
    "read_commit",
    "recorded",
    "remove",
    "require_run",
    "unfit_types",
]
