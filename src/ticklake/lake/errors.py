"""Errors of the lake: tables, commits, flushes, queries, Spark sessions."""

from __future__ import annotations

from ticklake.errors import TickLakeError
from ticklake.ticks import TickRange


class BadTable(TickLakeError):
    message = "Table {name!r} is not valid: {reason}."
    name: str
    reason: object


class BadCount(TickLakeError):
    message = "The indexer's `observe` counted {count!r} under {name!r}: {reason}."
    name: object
    count: object
    reason: str


class NullInKey(TickLakeError):
    message = "A row has no value in {column}, a column of the key. Check what produced the tick."
    column: str


class DuplicateKey(TickLakeError):
    message = "Two rows have the same key ({key}), but keys are unique. Check what produced the tick."
    key: str


class LakeUnwritable(TickLakeError):
    message = (
        "Cannot write below {directory}: {reason}. Free space or give write permission. Nothing is lost; the write is "
        "tried again."
    )
    directory: object
    reason: object


class StorageUnavailable(TickLakeError):
    message = "Storage {storage} cannot be reached: {reason}. Nothing is lost; it is tried again until it succeeds."
    storage: str
    reason: object


class CompactionChangedRows(TickLakeError):
    message = (
        "Merging files of table {table} gave {found} rows instead of {expected}. Nothing was changed; check the "
        "table with `ticklake verify`."
    )
    table: str
    expected: int
    found: int


class RetentionTooShort(TickLakeError):
    message = (
        "Files that were in use {hours:.3g} hours ago would be removed. A query or flush that takes longer would fail. "
        "Keep at least {shortest:.0f} hours, or give --force if nothing uses the table."
    )
    hours: float
    shortest: float


class TableReplaced(TickLakeError):
    message = (
        "Table {table} was replaced by another table while it was in use. Nothing was written to the new one. Restart "
        "to continue with it."
    )
    table: object


class LakeUnreadable(TickLakeError):
    message = "Table {table} cannot be read: {reason}. Nothing is lost; it is tried again until it succeeds."
    table: str
    reason: object


class DamagedTableFile(TickLakeError):
    message = (
        "{file} is damaged: {reason}. Nothing else is. Its rows are made again from the batch files by `ticklake "
        "index RUN --table {table} --ticks {first}:{last} --replace`."
    )
    file: object
    table: str
    first: int
    last: int
    reason: object


class DamagedFileOfTable(DamagedTableFile):
    """A damaged file of a table whose indexer is not recorded."""

    message = (
        "{file} is damaged: {reason}. Nothing else is. Its rows are made again from the batch files by `ticklake "
        "index RUN --table NAME --ticks {first}:{last} --replace`. NAME is {table} if the table comes with TickLake, "
        "and MODULE:CLASS of your indexer otherwise."
    )


class DamageNotCovered(TickLakeError):
    message = (
        "{file} is damaged: {reason}. The valid batch files lack some of its ticks {ticks}, so it is not replaced. "
        "Restore it, or the batch files, from a backup."
    )
    file: object
    ticks: TickRange
    reason: object


class DamagedCommit(TickLakeError):
    message = (
        "Commit {file} is damaged: {reason}. Nothing was changed. Copy it back from a backup, or move the table's "
        "folder away and index its run again: `ticklake index RUN`, with `--table MODULE:CLASS` if your own "
        "indexer writes it."
    )
    file: object
    reason: object


class OffTheGrid(TickLakeError):
    message = (
        "Batch file {key!r} has tick {tick}, but its run samples every {step} ticks, starting at 0. "
        "Nothing of it is added to a table. Correct sampling_interval in the run's metadata.pb and restart the "
        "indexers, or correct the file; then replay its message."
    )
    key: str
    tick: int
    step: int


class OtherCells(TickLakeError):
    message = (
        "Table {table} was created with cells = {found}, so it cannot be filled with cells = {wanted}. Use --cells "
        "{found} (in a configuration: cells = {found}), or another lake."
    )
    table: object
    found: str
    wanted: str


class CellsNotRecorded(TickLakeError):
    message = (
        "The cells of tick {tick} of run {run_id} are not in its tables: {reason}. `ticklake index {run_id}` with "
        "`--cells all` or `--cells changes` adds them, if a batch file has the tick."
    )
    tick: int
    run_id: str
    reason: str


class OtherTableSchema(TickLakeError):
    message = (
        "Table {directory} has the columns {found}, but the indexer writes {wanted}. Use another lake or another table "
        "name."
    )
    directory: object
    found: str
    wanted: str


class FlushFailed(TickLakeError):
    message = (
        "The Spark job of a flush into {table} failed: {reason}. Its batches stay unacknowledged and are tried again."
    )
    table: str
    reason: object


class RowsDoNotFit(TickLakeError):
    message = "The indexer of {table} returned rows that cannot be written: {reason}. Correct the indexer, then replay."
    table: str
    reason: object


class JavaMissing(TickLakeError):
    message = (
        "Spark needs Java 17 or newer, but {reason}. Install it (on Debian: apt-get install openjdk-17-jre-headless), "
        "or set JAVA_HOME to its directory."
    )
    reason: str


class LakeNotFound(TickLakeError):
    message = "No lake at {lake}: the directory does not exist. Give the one that the indexers write to."
    lake: object


class RunNotInLake(TickLakeError):
    message = (
        "Run {run_id!r} has no table in {lake}; the newest runs are: {found}. `ticklake runs --lake {lake}` lists all."
    )
    run_id: str
    lake: object
    found: str


class TableNotInLake(TickLakeError):
    message = "The selected runs of {lake} have no table {table!r}; they have: {found}."
    table: str
    lake: object
    found: str


class TableUnreadable(TickLakeError):
    message = "Table {table} cannot be read: {reason}. Copy it back from a backup, or index the run again."
    table: object
    reason: object


class TableWithoutLog(TableUnreadable):
    message = (
        "Folder {table} {reason}, so nothing of it is read. If its log is lost, copy the log back from a backup, or "
        "index the run again, which creates the table anew. If it is not a table of the run, move it out of the lake."
    )
    table: object
    reason: object


class TableGone(TickLakeError):
    message = (
        "Table {table}, which {writer} has filled, is gone. Check that its disk is mounted. Move it back, copy it back "
        "from a backup, or write it again: `ticklake index {run_id} --table {name}`, or --table MODULE:CLASS for your "
        "own indexer."
    )
    table: object
    writer: str
    run_id: str
    name: str


class RunFolderUnreadable(TickLakeError):
    message = (
        "Folder {folder} of the lake cannot be read: {reason}. It may have tables. Check its permissions and its disk; "
        "`--run RUN` uses another run alone."
    )
    folder: object
    reason: object


class UnknownTableFormat(TableUnreadable):
    message = (
        "Table {table} has a format that this TickLake does not know: {reason}. Upgrade TickLake, undo the change that "
        "another engine made, or use another lake."
    )
    table: object
    reason: object


class MetadataUnreadable(TableUnreadable):
    message = (
        "Table {table} cannot be read: {reason}. It is a copy of the run's metadata.pb: `ticklake index {run_id}` "
        "writes it again, and so does the metadata indexer when it starts."
    )
    table: object
    reason: object
    run_id: str


class TableOfAnotherRun(TableUnreadable):
    message = (
        "Table {table} is {reason}. Nothing of it was used. Move it away, then index the run again, which creates its "
        "own table."
    )
    table: object
    reason: object


class StaleRewrite(TickLakeError):
    message = (
        "Table {table} has duplicate rows: commit {version} of another engine ({operation}) replaced files that had "
        "been replaced before. Restore the version before it, "
        "`DeltaTable(…).restore({before})`, or move the table away and index the run again."
    )
    table: object
    version: int
    operation: object
    before: int


class TableAppendOnly(TickLakeError):
    message = (
        "Table {table} is append-only, so its rows cannot be replaced: another engine has set delta.appendOnly. Set it "
        "to false to replace rows."
    )
    table: object


class BadQuery(TickLakeError):
    message = "{reason} (Tables here: {tables}.)"
    reason: object
    tables: str


class QueryTooSlow(TickLakeError):
    message = "The query took longer than {seconds:g} seconds. Ask for fewer ticks, or use `ticklake sql`."
    seconds: float


class ResultTooLarge(TickLakeError):
    message = "The result is larger than {megabytes} MB. Select fewer columns or rows, or use `ticklake sql`."
    megabytes: int


class TableNotInRun(TickLakeError):
    message = "Run {run_id!r} has no table {table!r}; it has: {found}. Index the run for it, or name one of these."
    run_id: str
    table: str
    found: str


class NoTicksInTable(TickLakeError):
    message = "Table {table!r} has no column tick_number to choose ticks by. Read it without `ticks`."
    table: str


class NoSuchColumn(TickLakeError):
    message = "Table {table!r} has no column {column!r}; it has: {found}."
    table: str
    column: str
    found: str


class PolarsMissing(TickLakeError):
    message = "Polars is not installed. Install it with `pip install polars`, or use to_arrow() or to_pandas()."


class BadSourceOption(TickLakeError):
    message = 'Option {option} of the Spark format "ticks" cannot be {value!r}: {reason}.'
    option: str
    value: str
    reason: object


class DeltaMissing(TickLakeError):
    message = (
        'Spark cannot read Delta table {table}: {reason}. It needs `pip install "ticklake[delta-sql]"` and a session '
        "built with ticklake.spark.with_delta(SparkSession.builder)."
    )
    table: object
    reason: object


class ConnectMissing(TickLakeError):
    message = (
        'Spark Connect needs packages that are not installed ({reason}). Install them: pip install "ticklake[connect]".'
    )
    reason: object


class SparkUnavailable(TickLakeError):
    message = "Spark does not answer: {reason}. Nothing is lost; indexing continues later. Is the master running?"
    reason: object


class WorkersNotReady(TickLakeError):
    message = (
        "Spark's workers cannot load the indexer: {reason}. Install its package for their Python, or set "
        "`spark.pyspark.python` to a Python that has it."
    )
    reason: object
