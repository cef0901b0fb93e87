"""Delta tables as files: the log, its commits and checkpoints, Parquet files. Only this package imports delta-rs."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticklake.lake.delta.checkpoints import checkpoint_name, is_checkpoint, versions_of
from ticklake.lake.delta.commits import (
    SOURCES,
    Commit,
    added_ticks,
    decode_commit,
    is_commit,
    name_of,
    read_commit,
    version_of,
)
from ticklake.lake.delta.files import (
    contents_of,
    dataset_from,
    dataset_of,
    files_of,
    is_counted_by,
    live_files,
    rows_in,
    sizes_of,
)
from ticklake.lake.delta.folder import State, TableFolder
from ticklake.lake.delta.footers import Contents, RowGroup, column_of, row_groups
from ticklake.lake.delta.history import Head
from ticklake.lake.delta.location import LakeRoot, Location, TableFile, split_run
from ticklake.lake.delta.log import CommitConflict, DeltaLog
from ticklake.lake.delta.parquet import (
    ParquetFile,
    ParquetFileWriter,
    checksum,
    conformed,
    footer_of,
    is_damage,
    opened,
    read_rows,
)
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
    SCHEMA,
    added_columns,
    check_readable,
    check_run,
    named_key,
    one_line,
    open_of_run,
    opened_table,
    require_run,
    unreadable,
)
from ticklake.lake.delta.types import unfit_types

__all__ = [
    "ANY_TICK",
    "HINT",
    "INDEXER",
    "RUN",
    "SCHEMA",
    "SOURCES",
    "Commit",
    "CommitConflict",
    "Contents",
    "DeltaError",
    "DeltaLog",
    "DeltaTable",
    "Head",
    "LakeRoot",
    "LiveFile",
    "Location",
    "ParquetFile",
    "ParquetFileWriter",
    "RowGroup",
    "Snapshot",
    "State",
    "Summary",
    "TableFile",
    "TableFolder",
    "TableNotFoundError",
    "added_columns",
    "added_ticks",
    "check_intact",
    "check_readable",
    "check_run",
    "checkpoint_name",
    "checksum",
    "column_of",
    "conformed",
    "contents_of",
    "dataset_from",
    "dataset_of",
    "decode_commit",
    "durable_version",
    "files_of",
    "footer_of",
    "is_checkpoint",
    "is_commit",
    "is_counted_by",
    "is_damage",
    "live_files",
    "log_states",
    "name_of",
    "named_key",
    "old_checkpoints",
    "one_line",
    "open_of_run",
    "opened",
    "opened_table",
    "opens_without",
    "read_commit",
    "read_rows",
    "recorded",
    "require_run",
    "row_groups",
    "rows_in",
    "set_log_aside",
    "sizes_of",
    "split_run",
    "unfit_types",
    "unreadable",
    "version_of",
    "versions_of",
]
