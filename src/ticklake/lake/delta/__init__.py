"""Delta tables as files: the log, its commits and checkpoints, Parquet files. Only this package imports delta-rs."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticklake.lake.delta.checkpoints import checkpoint_name, is_checkpoint, versions_of
from ticklake.lake.delta.commits import SOURCES, Commit, added_ticks, decode_commit, is_commit, name_of, read_commit
from ticklake.lake.delta.durable import make_directory, remove
from ticklake.lake.delta.files import contents_of, dataset_of, is_counted_by, live_files, paths_of, rows_in, sizes_of
from ticklake.lake.delta.folder import LOG, State, TableFolder
from ticklake.lake.delta.footers import Contents, RowGroup, column_of, row_groups
from ticklake.lake.delta.history import Head
from ticklake.lake.delta.log import CommitConflict, DeltaLog
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter, checksum, conformed, is_damage, opened
from ticklake.lake.delta.recovery import (
    check_intact,
    durable_version,
    log_states,
    old_checkpoints,
    opens_without,
    set_log_aside,
)
from ticklake.lake.delta.scratch import HINT
from ticklake.lake.delta.snapshot import ANY_TICK, LiveFile, Snapshot
from ticklake.lake.delta.summary import Summary, recorded
from ticklake.lake.delta.table_properties import (
    INDEXER,
    RUN,
    check_readable,
    check_run,
    lacks_log,
    named_key,
    one_line,
    open_of_run,
    require_run,
    unreadable,
)
from ticklake.lake.delta.types import unfit_types

__all__ = [
    "ANY_TICK",
    "HINT",
    "INDEXER",
    "LOG",
    "RUN",
    "SOURCES",
    "Commit",
    "CommitConflict",
    "Contents",
    "DeltaError",
    "DeltaLog",
    "DeltaTable",
    "Head",
    "LiveFile",
    "ParquetFile",
    "ParquetFileWriter",
    "RowGroup",
    "Snapshot",
    "State",
    "Summary",
    "TableFolder",
    "TableNotFoundError",
    "added_ticks",
    "check_intact",
    "check_readable",
    "check_run",
    "checkpoint_name",
    "checksum",
    "column_of",
    "conformed",
    "contents_of",
    "dataset_of",
    "decode_commit",
    "durable_version",
    "is_checkpoint",
    "is_commit",
    "is_counted_by",
    "is_damage",
    "lacks_log",
    "live_files",
    "log_states",
    "make_directory",
    "name_of",
    "named_key",
    "old_checkpoints",
    "one_line",
    "open_of_run",
    "opened",
    "opens_without",
    "paths_of",
    "read_commit",
    "recorded",
    "remove",
    "require_run",
    "row_groups",
    "rows_in",
    "set_log_aside",
    "sizes_of",
    "unfit_types",
    "unreadable",
    "versions_of",
]
