"""Every error a user can see: what happened, where, and what to do next."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(kw_only_default=True, eq_default=False)
class TickLakeError(Exception):
    """The base of every error of TickLake.

    A subclass gives `message`, a format string, and declares each field that the message names. A type checker
    then checks the fields of every call.
    """

    message: ClassVar[str] = "Something went wrong in TickLake."

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.message.format(**fields))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel from Spark's tasks and from child processes.
        return (_rebuild, (type(self), self.fields))


def _rebuild(kind: type[TickLakeError], fields: dict[str, Any]) -> TickLakeError:
    return kind(**fields)


# Services


class WrongServiceState(TickLakeError):
    message = "Cannot {action} {name}: it is {state}, and must be {allowed}."
    name: str
    action: str
    state: str
    allowed: str


class QueueClosed(TickLakeError):
    message = "The tick queue is closed: the run has ended after tick {last_tick}. Start a new run for more ticks."
    last_tick: int | None


class TicksOutOfOrder(TickLakeError):
    message = (
        "Tick {tick} came after tick {last_tick}. A producer puts the ticks of one run in rising order, each once."
    )
    tick: int
    last_tick: int


class WriteKeepsFailing(TickLakeError):
    message = (
        "{what} failed {attempts} times, the last time with {error}. Nothing accepted is lost: remove the cause and "
        "start the service again."
    )
    what: str
    attempts: int
    error: BaseException


class BadSimulationSettings(TickLakeError):
    message = "The simulation cannot run with {setting} = {value!r}: {reason}."
    setting: str
    value: object
    reason: object


# Storage: worlds, names, files


class BadMetadata(TickLakeError):
    message = (
        "The metadata of run {run_id!r} describes no world: {reason}. Look at the producer that wrote it; a newer "
        "format needs a newer ticklake."
    )
    run_id: str
    reason: object


class UnsafeRunId(TickLakeError):
    message = (
        "{run_id!r} cannot be a run id: it becomes a folder's name, so only letters, digits, dot, dash and "
        "underscore are allowed, at most 200, not starting with a dot or dash. Example: 20251014-143025-550e8400."
    )
    run_id: str


class UnsafeStorageKey(TickLakeError):
    message = (
        "The storage key {key!r} is refused: it must be RUN/…/FILE of plain names and stay inside the storage folder "
        "(no `..`, no absolute path, no link that leads out). Look at who sent it."
    )
    key: str


class StoredFileMissing(TickLakeError):
    message = (
        "No file {key!r} in {storage}. If it was announced, the writer's storage and this one differ, or it was "
        "deleted: check that both name the same folder."
    )
    key: str
    storage: str


class NotABatchFile(TickLakeError):
    message = (
        "{key!r} is not named like a batch file (batch_FIRST_LAST.pb or .pb.zst, FIRST up to LAST). Pass the key of "
        "a batch file."
    )
    key: str


class StoredFileConflict(TickLakeError):
    message = (
        "{key!r} already exists in {storage} with other content, and was left as it is. Two producers use the same "
        "run id: give each its own."
    )
    key: str
    storage: str


class BadFile(TickLakeError):
    message = (
        "{key!r} is corrupt at byte {offset} of its decompressed bytes: {reason}. Restore it from its source or "
        "write the run again."
    )
    key: str
    offset: int
    reason: object


class BadBatchFile(BadFile):
    message = (
        "Batch file {key!r} is refused at byte {offset} of its decompressed bytes, tick {tick}: {reason}. Nothing of "
        "it is added to a table; restore the file from its source and replay its message."
    )
    tick: int | None


class BatchOutOfOrder(TickLakeError):
    message = (
        "A batch of run {run_id!r} cannot be written: {reason}. Pass at least one tick, in strictly ascending order."
    )
    run_id: str
    reason: object


# The lake


class BadTable(TickLakeError):
    message = "Table {name!r} cannot be: {reason}."
    name: str
    reason: object


class BadCount(TickLakeError):
    message = "The indexer's `observe` counted {count!r} under {name!r}: {reason}."
    name: object
    count: object
    reason: str


class NullInKey(TickLakeError):
    message = "A row has no value in {column}, a column of the key. Give it one; look at what produced the tick."
    column: str


class DuplicateKey(TickLakeError):
    message = (
        "Two rows share one key ({key}): a key is unique, so one of the two is wrong; look at what produced the tick."
    )
    key: str


class LakeUnwritable(TickLakeError):
    message = (
        "Cannot write below {directory}: {reason}. Make room or give write permission; nothing is lost, it is tried "
        "again."
    )
    directory: object
    reason: object


class StorageUnavailable(TickLakeError):
    message = (
        "Storage {storage} cannot be reached: {reason}. Nothing is lost; it is tried again until the storage is back."
    )
    storage: str
    reason: object


class CompactionChangedRows(TickLakeError):
    message = (
        "Merging files of table {table} gave {found} rows instead of {expected}. Nothing was changed; look at the "
        "table with `ticklake verify`."
    )
    table: str
    expected: int
    found: int


class RetentionTooShort(TickLakeError):
    message = (
        "Files that were needed {hours:.3g} hours ago would go, and with them the work of a query or flush that runs "
        "for longer. Keep at least {shortest:.0f} hours, or give --force where nothing is at work."
    )
    hours: float
    shortest: float


class TableReplaced(TickLakeError):
    message = (
        "Another table took the place of {table} while it was in use. Nothing was written to the new one. Start again "
        "to go on with it."
    )
    table: object


class LakeUnreadable(TickLakeError):
    message = "Table {table} cannot be read: {reason}. Nothing is lost; it is tried again until the table is back."
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


class DamageNotCovered(TickLakeError):
    message = (
        "{file} is damaged: {reason}. The good batch files lack some of its ticks {first} to {last}, so it is not "
        "replaced. Restore it, or the batch files, from a backup."
    )
    file: object
    first: int
    last: int
    reason: object


class DamagedCommit(TickLakeError):
    message = (
        "Commit {file} is damaged: {reason}. Nothing was changed. Copy it back from a backup, or move the table's "
        "folder away and index its run again: `ticklake index RUN`."
    )
    file: object
    reason: object


class OffTheGrid(TickLakeError):
    message = (
        "Batch file {key!r} has tick {tick}, but its run samples every {step} ticks, from 0 on. "
        "Nothing of it is added to a table; mend sampling_interval in the run's metadata, or the file, and replay its "
        "message."
    )
    key: str
    tick: int
    step: int


class OtherTableSchema(TickLakeError):
    message = (
        "Table {directory} has the columns {found}, the indexer writes {wanted}. Use another lake or another table "
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
    message = (
        "What `rows` of the indexer of {table} returned cannot be written: {reason}. Mend the indexer, then replay."
    )
    table: str
    reason: object


class RowsMissing(TickLakeError):
    message = "An indexer that names a table also writes `rows(ticks, world)`, a static method; this one does not."


class JavaMissing(TickLakeError):
    message = (
        "Spark needs Java 17 or newer and there is none. On Debian: apt-get install openjdk-17-jre-headless; then "
        "again."
    )


# Looking at runs and tables


class LakeNotFound(TickLakeError):
    message = "No lake at {lake}: there is no such directory. Give the one that the indexers write to."
    lake: object


class RunNotInLake(TickLakeError):
    message = (
        "Run {run_id!r} has no table in {lake}; its newest runs are: {found}. `ticklake runs --lake {lake}` lists all."
    )
    run_id: str
    lake: object
    found: str


class TableNotInLake(TickLakeError):
    message = "No table {table!r} in the runs asked for of {lake}; there are: {found}."
    table: str
    lake: object
    found: str


class RunNotFound(TickLakeError):
    message = "No run {run_id!r} in {places}; the newest there are: {found}. `ticklake runs` lists all."
    run_id: str
    places: object
    found: str


class NoRuns(RunNotFound):
    message = "There is no run in {places} yet."


class StorageNotFound(TickLakeError):
    message = "No storage at {storage}: there is no such directory. Give the one that the producer writes to."
    storage: object


class TableUnreadable(TickLakeError):
    message = (
        "Table {table} cannot be read: {reason}. If it is whole elsewhere, copy it back; else index the run again."
    )
    table: object
    reason: object


class UnknownTableFormat(TableUnreadable):
    message = (
        "Table {table} is of a kind that this TickLake does not know: {reason}. Upgrade TickLake, have another engine "
        "undo what it has changed, or use another lake."
    )
    table: object
    reason: object


class StaleRewrite(TickLakeError):
    message = (
        "Table {table} has rows twice: commit {version} of another engine ({operation}) put a file in the place of "
        "others that had been replaced before. Restore the version before it, "
        "`DeltaTable(…).restore({before})`, or move the table away and index the run again."
    )
    table: object
    version: int
    operation: object
    before: int


class TableAppendOnly(TickLakeError):
    message = (
        "Table {table} is append-only, so no row of it is replaced: another engine has set delta.appendOnly. Set it "
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
    message = "Polars is not installed. Add it with `pip install polars`, or use to_arrow() or to_pandas()."


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


# Databases and topics


class InvalidName(TickLakeError):
    message = "A {kind} cannot be {name!r}: {reason}. Use 1 to 255 visible characters."
    kind: str
    name: str
    reason: object


class UnknownDatabase(TickLakeError):
    message = "There is no database behind {url!r}. Write sqlite:///DIRECTORY or postgresql://USER:PASSWORD@HOST/NAME."
    url: str


class BadDatabaseUrl(TickLakeError):
    message = "The database URL {url!r} can never work: {reason}. Write postgresql://USER:PASSWORD@HOST:PORT/NAME."
    url: str
    reason: str


class PostgresMissing(TickLakeError):
    message = "PostgreSQL needs {module}, which is not installed: pip install 'ticklake[postgres]'."
    module: str | None


class RunNotInDatabase(TickLakeError):
    message = "No run {run_id!r} in {database}. `ticklake topics --database {database}` lists what is there."
    run_id: str
    database: object


class RunNeverAnnounced(TickLakeError):
    message = (
        "No database that was given has run {run_id!r}, so nobody would read what is published there. Give the "
        "database of the run, or add --create to create the run in the first of them (if its own database was lost)."
    )
    run_id: str


class DatabaseClosed(TickLakeError):
    message = "The database {database} was closed before this call. Open it again, or close it later."
    database: object


class DatabaseLocked(TickLakeError):
    message = "Another program has kept {database} locked for {seconds:.0f} seconds. Find and end it, then try again."
    database: object
    seconds: float


class TablesLocked(TickLakeError):
    message = (
        "The tables of run {run_id} in {database} cannot be made or upgraded: {who} has kept them locked for "
        "{seconds:.0f} seconds. Nothing was changed. Wait until that session is done, or end it with "
        "`SELECT pg_terminate_backend(PID)`, then try again."
    )
    run_id: str
    database: object
    who: str
    seconds: float


class DatabaseFull(TickLakeError):
    message = "There is no room left for {database}: nothing of this call was stored. Make room, then try again."
    database: object


class DatabaseUnusable(TickLakeError):
    message = (
        "The database {database} cannot be used: {reason}. Check the path, its permissions and what is stored there."
    )
    database: object
    reason: object


class DatabaseFileUnusable(DatabaseUnusable):
    message = (
        "The file {database} cannot be used: {reason}. Check its disk and its permissions; nothing of this call was "
        "stored."
    )


class DatabaseDamaged(DatabaseUnusable):
    message = (
        "The database {database} is damaged: {reason}. Stop every process that uses it, then move it away, its -wal "
        "and -shm files too; `ticklake reconcile RUN --apply --create` announces the run's files again, and tables "
        "leave out what they have."
    )


class DatabaseMoved(DatabaseUnusable):
    message = (
        "{reason} was moved, deleted or replaced while {database} was in use: what is written now would be lost. Stop "
        "every process that uses it; put the file back, or move the others away too; then start again."
    )


class DatabaseForked(TickLakeError):
    message = (
        "{database} was opened by process {parent} and cannot be used in process {child}, which was forked from it. "
        "Open it after the fork."
    )
    database: object
    parent: int
    child: int


class DatabaseInUseAtFork(TickLakeError):
    message = (
        "Process {child} cannot open {database}: the process that it was forked from was in a transaction in {used}, "
        "and SQLite's locks do not survive that. Fork it outside of transactions, or start it with `spawn`."
    )
    database: object
    used: object
    child: int


class DatabaseUnavailable(TickLakeError):
    message = "The database {database} does not answer: {reason}. Readers and writers go on by themselves once it does."
    database: object
    reason: object


class TransactionAborted(TickLakeError):
    message = "The database {database} ended this transaction: {reason}. Nothing of it was stored; it can be repeated."
    database: object
    reason: object


class UniqueViolation(TickLakeError):
    message = "{database} refused a row: {reason}."
    database: object
    reason: object


class NestedTransaction(TickLakeError):
    message = "This thread is in a transaction of {database} already: pass it on as `connection=`, or finish it first."
    database: object


class SchemaOutdated(TickLakeError):
    message = (
        "The tables of {package} in run {run_id!r} have version {found}, this TickLake needs {known}. Stop what an "
        "older TickLake runs on them, then upgrade them: `ticklake db upgrade`."
    )
    package: str
    run_id: str
    found: int
    known: int


class SchemaTooNew(TickLakeError):
    message = (
        "The tables of {package} in run {run_id!r} have version {found}, this TickLake knows {known}. Upgrade "
        "TickLake; `ticklake db status` lists all."
    )
    package: str
    run_id: str
    found: int
    known: int


class ConnectMissing(TickLakeError):
    message = (
        'Spark Connect needs packages that are not installed ({reason}). Add them: pip install "ticklake[connect]".'
    )
    reason: object


class SparkUnavailable(TickLakeError):
    message = "Spark does not answer: {reason}. Nothing is lost, indexing goes on where it was. Is the master running?"
    reason: object


class WorkersNotReady(TickLakeError):
    message = (
        "Spark's workers cannot load the indexer: {reason}. Install its package with their Python, or name one that "
        "has it in `spark.pyspark.python`."
    )
    reason: object


# Indexers


class MetadataTimeout(TickLakeError):
    message = (
        "No metadata of run {run_id} was indexed within {seconds:g} s. Is the metadata indexer running for this lake?"
    )
    run_id: str
    seconds: float


class RunDiscoveryTimeout(TickLakeError):
    message = (
        "No run began in {storage} after {since:%Y-%m-%d %H:%M:%S} UTC, for {seconds:g} s. Name one with run_id, or "
        "start it."
    )
    since: datetime
    storage: str
    seconds: float


class NotABatchMessage(TickLakeError):
    message = (
        "Message {message_id} on {topic} is no BatchInfo of run {run_id}. Its producer writes to the wrong topic or "
        "run."
    )
    message_id: str
    topic: str
    run_id: str


class KeyOfAnotherRun(TickLakeError):
    message = (
        "Message {message_id} on {topic} of run {run_id} names {key!r}, a file of another run. Its producer mixes up "
        "two runs, so nothing of it is indexed."
    )
    message_id: str
    topic: str
    run_id: str
    key: str


class NothingToIndex(TickLakeError):
    message = (
        "Run {run_id} has no batch files to index in {storage}. `ticklake runs --storage {storage}` lists what is "
        "there."
    )
    run_id: str
    storage: str


class DatabaseNeeded(TickLakeError):
    message = (
        "Indexer {name} reads {topic} and has no database to read it from. Bind a topic, or index straight from "
        "storage."
    )
    name: str
    topic: str


class LakeNeeded(TickLakeError):
    message = "An indexer that writes a table needs a lake and was given none. Pass lake=Lake(DIRECTORY)."


class SparkNeeded(TickLakeError):
    message = (
        "Indexer {name} needs a Spark session and was given none. Pass spark=SparkSession… or configure a spark "
        "resource."
    )
    name: str


class MetadataNotAnnounced(TickLakeError):
    message = (
        "No metadata of run {run_id} came on {topic} within {seconds:g} s. Is the metadata persistence service running?"
    )
    topic: str
    run_id: str
    seconds: float


class NotAMetadataMessage(TickLakeError):
    message = (
        "Message {message_id} on {topic} is no MetadataInfo of run {run_id}. Its producer writes to the wrong topic "
        "or run."
    )
    message_id: str
    topic: str
    run_id: str


class MissingConsumerGroup(TickLakeError):
    message = "A reader of topic {topic!r} must name its consumer group: write topic-read:{topic}?consumerGroup=GROUP."
    topic: str


class InvalidOption(TickLakeError):
    message = "{option} cannot be {value!r}: {allowed}."
    option: str
    value: object
    allowed: str


class NoClaimsNamed(TickLakeError):
    message = "Say which claims to release: those that are stuck, or those of a topic, a group or a message."


class NotAMessage(TickLakeError):
    message = (
        "A topic carries protobuf messages, and this is a {kind}. Send for example BatchInfo(simulation_run_id=…)."
    )
    kind: str


class MessageTooLarge(TickLakeError):
    message = (
        "A message has {size} bytes, and a topic takes at most {most}. "
        "Write the data to a file and send a message that names it."
    )
    size: str
    most: str


class UndecodableMessage(TickLakeError):
    message = "The message cannot be decoded: {reason}."
    reason: object


class TopicClosed(TickLakeError):
    message = "The {end} of topic {topic!r} was closed before this call. Open a new one with `run.{end}(…)`."
    end: str
    topic: str


class TopicNotFound(TickLakeError):
    message = "Run {run_id} has no topic {topic!r}; it has {topics}."
    run_id: str
    topic: str
    topics: str


class UnknownGroup(TickLakeError):
    message = "Topic {topic!r} has no consumer group {group!r}. `ticklake groups` lists those that are there."
    topic: str
    group: str


class BatonPassedOver(TickLakeError):
    message = (
        "{topic!r} has one message, which decides who relays. Past it, nobody would relay to {outbox!r} any more; "
        "set the group to it with `--to earliest`, or nowhere."
    )
    topic: str
    outbox: str


class UnknownMessage(TickLakeError):
    message = "Topic {topic!r} has no message {message_id!r}. `ticklake topics tail` shows what is there."
    topic: str
    message_id: object


class TimeOutOfRange(TickLakeError):
    message = "{time} is not between the years 1 and 9999 in UTC. Give another time, or `earliest` or `end`."
    time: str


class TransactionOver(TickLakeError):
    message = (
        "The transaction in run {run_id!r} is over, so nothing more can be done in it. "
        "Use it only inside its `with` block."
    )
    run_id: str


class BadStatement(TickLakeError):
    message = "{file}: {reason}. Put a line `-- name: …` above each statement, with a name that no other one has."
    file: str
    reason: str


class StatementEndsTransaction(TickLakeError):
    message = (
        "{statement} was refused: only the `with` block or the consumer that began the transaction in run {run_id!r} "
        "ends it. Raise an exception to undo the work, or undo a part of it with `savepoint()`."
    )
    run_id: str
    statement: str


class TransactionGone(TickLakeError):
    message = (
        "The transaction in run {run_id!r} was ended inside its `with` block, so what was done in it may be lost. "
        "Only the block itself may end it."
    )
    run_id: str


class ReadingOnly(TickLakeError):
    message = "Nothing can be written in `reading()` of run {run_id!r}. Write in `transaction()`."
    run_id: str


class OtherDatabase(TickLakeError):
    message = "A transaction in {other} cannot be used for {database}. Begin it in the run that it is used for."
    database: str
    other: str


class OtherRun(TickLakeError):
    message = (
        "This belongs to run {bound!r} and cannot be used for run {run_id!r}. Open one with `database.run({run_id!r})`."
    )
    bound: str
    run_id: str


# Configuration


class ConfigNotFound(TickLakeError):
    message = "No configuration file {file}. `ticklake init` writes one to start from."
    file: object


class ConfigSyntax(TickLakeError):
    message = "{where}: {reason}."
    where: object
    reason: object


class IncludeNotFound(TickLakeError):
    message = "{where}: the included file {target} does not exist{hint} Names are relative to the file that includes."
    where: object
    target: object
    hint: str


class UnknownReference(TickLakeError):
    message = (
        "{where}: ${{{name}}} is neither defined here nor in the environment{hint} Write ${{?{name}}} where it may "
        "be missing."
    )
    where: object
    name: str
    hint: str


class IncludeCycle(TickLakeError):
    message = "{where}: {target} is being included already; remove one of the includes."
    where: object
    target: object


class AppendNotSupported(TickLakeError):
    message = "{where}: `{key} +=` is not supported; write `{key} = ${{?{path}}} [more]` or the whole list."
    where: object
    key: str
    path: str


class DefinedTwice(TickLakeError):
    message = "{where}: {key} is defined a second time, first in line {line}; give one of the two another name."
    where: object
    key: str
    line: int


class UnknownKey(TickLakeError):
    message = "{where}: unknown key {key}{hint} Allowed here: {allowed}."
    where: object
    key: str
    hint: str
    allowed: str


class BadValue(TickLakeError):
    message = "{where}: {key}: {reason}."
    where: object
    key: str
    reason: object


class SecretInFile(TickLakeError):
    message = (
        "{where}: {key} is written out; keep it out of the file: `password = ${{?DATABASE_PASSWORD}}` takes it from "
        "the environment."
    )
    where: object
    key: str


class ClassMissing(TickLakeError):
    message = "{where}: {key} needs a class; one of: {allowed}."
    where: object
    key: str
    allowed: str


class UnknownClass(TickLakeError):
    message = "{where}: unknown class {given!r}{hint} Allowed: {allowed}."
    where: object
    given: str
    hint: str
    allowed: str


class UnknownUsage(TickLakeError):
    message = "{where}: unknown usage {usage!r}{hint} Supported: {allowed}."
    where: object
    usage: str
    hint: str
    allowed: str


class BadBinding(TickLakeError):
    message = "{where}: {uri!r} is no binding: {reason}."
    where: object
    uri: str
    reason: object


class BindingWithoutGroup(TickLakeError):
    message = "{where}: {uri!r} names no consumer group; write topic-read:{resource}?consumerGroup=GROUP."
    where: object
    uri: str
    resource: str


class UnknownResource(TickLakeError):
    message = "{where}: {key} uses {name!r}, which is no resource{hint} Of kind {kind} there are: {allowed}."
    where: object
    key: str
    name: str
    hint: str
    kind: str
    allowed: str


class WrongKind(TickLakeError):
    message = "{where}: {key} uses {name!r}, which is of kind {found}, not {kind}. Of kind {kind} there are: {allowed}."
    where: object
    key: str
    name: str
    found: str
    kind: str
    allowed: str


class BindingMissing(TickLakeError):
    message = (
        "{file}: service {service!r} needs a {kind} and is bound to none; bind one in its `resources`. There are: "
        "{found}."
    )
    file: object
    service: str
    kind: str
    found: str


class ConfigExists(TickLakeError):
    message = "{file} exists and was left as it is. Name another directory: `ticklake init DIRECTORY`."
    file: object


# The node


class ProducerMissing(TickLakeError):
    message = "{file}: service {service} writes what a simulation produces, and there is none. Add a Simulation."
    file: object
    service: str


class TwoProducers(TickLakeError):
    message = "{file}: {first!r} and {second!r} are both simulations, and a node produces one run. Remove one of them."
    file: object
    first: str
    second: str


class EventRunMissing(TickLakeError):
    message = (
        "{file}: service {service} does not know which run its events belong to. Give it run_id, or add a Simulation."
    )
    file: object
    service: str


class GroupFillsTwoTables(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} read {topic!r} as one consumer group, {group!r}, and fill different tables, "
        "so each would get only a part. Give each its own consumerGroup."
    )
    file: object
    first: str
    second: str
    topic: str
    group: str | None


class TwoEventIndexers(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both write the events of run {run_id}, and the batches of two queues have "
        "the same numbers. Give one of them another run_id."
    )
    file: object
    first: str
    second: str
    run_id: str


class EventQueueShared(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both drain event queue {queue!r}, and each batch is handed out once. "
        "Give each a queue of its own."
    )
    file: object
    first: str
    second: str
    queue: str


class OneEventFile(TickLakeError):
    message = (
        "{file}: event queues {first!r} and {second!r} are the same file, {path}, which is open once. Give one another."
    )
    file: object
    first: str
    second: str
    path: object


class InstanceRunning(TickLakeError):
    message = (
        "Node {name!r} runs already in {directory}: process {pid} on {host}. Stop that one, give this one another "
        "node.name or node.directory, or let both share the work: node.instances = compete."
    )
    name: str
    directory: object
    pid: int | None
    host: str | None


class AddressUnavailable(TickLakeError):
    message = (
        "HTTP cannot listen on {host} port {port}: {reason}. Choose another node.http.port, or 0 for any free one."
    )
    host: str
    port: int
    reason: object


class HostUnavailable(TickLakeError):
    message = (
        "HTTP cannot listen on host {host!r}: {reason}. Give an address of this machine as node.http.host or --host: "
        "127.0.0.1 for this machine alone, 0.0.0.0 for all of its addresses."
    )
    host: str
    reason: object


class TokenMissing(TickLakeError):
    message = (
        "HTTP on {host} can be reached by other machines and needs a token: put one into the environment as "
        "{variable}, or listen on 127.0.0.1."
    )
    host: str
    variable: str


class TokenTooShort(TickLakeError):
    message = "The token in {variable} is too short to be a secret: give it {shortest} characters or more."
    variable: str
    shortest: int


class BadNodeAddress(TickLakeError):
    message = "{url!r} is no address of a node. Give http://HOST:PORT or https://HOST:PORT, without user or password."
    url: str


class NodeTokenWanted(TickLakeError):
    message = "The node at {url} wants a token: set {variable} to the one that it was started with."
    url: str
    variable: str


class NodeTokenRefused(TickLakeError):
    message = "The node at {url} refuses the token of {variable}: set it to the one that the node was started with."
    url: str
    variable: str


class NodeLeadsElsewhere(TickLakeError):
    message = "{url} leads to another address, which is not asked. Give --node the address of the node itself."
    url: str


class WebMissing(TickLakeError):
    message = "HTTP needs {module}, which is not installed: pip install 'ticklake[web]'."
    module: str | None


class NotADemo(TickLakeError):
    message = (
        "{file} is not the configuration of a demo: it has no service {service!r}. Choose another directory with "
        "--directory, or run this one with `ticklake run`."
    )
    file: object
    service: str


class UnknownService(TickLakeError):
    message = "This node has no service {name!r}{hint} There are: {found}."
    name: str
    hint: str
    found: str


class SourceMissing(TickLakeError):
    message = (
        "{file}: indexer {service!r} has nothing to read from. Bind it to a topic "
        "(topic-read:NAME?consumerGroup=GROUP) or, if it is a batch indexer, to a coordinator (db-coordinator:NAME)."
    )
    file: object
    service: str


class TwoSources(TickLakeError):
    message = (
        "{file}: indexer {service!r} is bound to a topic and to a coordinator, and reads from one of them only. "
        "Remove one of the bindings {topic!r} and {coordinator!r}."
    )
    file: object
    service: str
    topic: str
    coordinator: str


class UnknownIndexer(TickLakeError):
    message = (
        'Indexer class {name!r} cannot be used: {reason}. Write "module:Class", a BatchIndexer that Python can '
        "import here."
    )
    reason: object
    name: str


class UnknownTable(TickLakeError):
    message = "No indexer writes a table named {table!r}; there are: {known}."
    table: str
    known: str


# Coordination over storage


class TopicUnknown(TickLakeError):
    message = (
        "Run {run_id} has no topic {topic!r} for {kind} messages, so nobody might read them; it has {topics}. Name the "
        "right topic with --topic, or give the --config of the run."
    )
    run_id: str
    topic: str
    kind: str
    topics: str


class TopicAmbiguous(TickLakeError):
    message = (
        "Run {run_id} has more than one topic for {kind} messages: {topics}. Say which with --topic, and with "
        "--database if several databases have it."
    )
    run_id: str
    kind: str
    topics: str


class RunHasNoFiles(TickLakeError):
    message = "Run {run_id} has no batch files in {storage}, so it has no end. Check the run and the storage."
    run_id: str
    storage: str


class LastFileBad(TickLakeError):
    message = (
        "Run {run_id} cannot be ended with its last file {key!r}: it does not hold what its name promises: {reason}. "
        "Restore the file, or remove it; --last-tick N says what the end is without looking into the file."
    )
    run_id: str
    key: str
    reason: object


class RunGoesOn(TickLakeError):
    message = (
        "Run {run_id} does not end at tick {last_tick}: {key!r} goes on behind it. Leave --last-tick out to end it "
        "with its last file, or remove the file if its name is wrong."
    )
    run_id: str
    last_tick: int
    key: str


class RunNotSilent(TickLakeError):
    message = (
        "Run {run_id} may still go on: something came {seconds} seconds ago. Stop its producer, and end the run once "
        "it has been silent for {silent_for} seconds; --silent-for 0 does not wait."
    )
    run_id: str
    seconds: int
    silent_for: int


class SilenceUnknown(TickLakeError):
    message = (
        "{storage} does not tell when something last came for run {run_id}. Make sure that its producer has stopped, "
        "then give --silent-for 0."
    )
    run_id: str
    storage: str


class RunEndedBefore(TickLakeError):
    message = (
        "Run {run_id} has ended at tick {last_tick} already, and an end is recorded once. If that is wrong, remove "
        "completed.pb from the run's folder first."
    )
    run_id: str
    last_tick: int


class GroupFillsAnotherTable(TickLakeError):
    message = (
        "Consumer group {group!r} of {topic} fills another table already ({filled}): with two, each would get a part "
        "of the run. Give this indexer a consumer group of its own, or hand the group over to it: "
        "`ticklake groups release {topic} {group} --run {run_id}`."
    )
    topic: str
    group: str
    run_id: str
    filled: str


class TableCopied(TickLakeError):
    message = (
        "{table} is a copy of {original}, which is still there: indexers that share run {run_id} cannot tell them "
        "apart, and each would get a part of it. Remove one of the two, or index the copy without this database: "
        "`ticklake index {run_id}`."
    )
    table: str
    original: str
    run_id: str


class GroupFillsNothing(TickLakeError):
    message = (
        "No indexer has said which table consumer group {group!r} of {topic} fills in run {run_id}: there is nothing "
        "to release. `ticklake groups` lists the groups."
    )
    topic: str
    group: str
    run_id: str


class BatchAlreadyClaimedError(TickLakeError):
    message = (
        "Batch {name} is claimed or done already for {indexer_class}. That is normal where indexers share the work: "
        "take the next one."
    )
    name: str
    indexer_class: str


# Consumers


class InvalidEventId(TickLakeError):
    message = "An event id must be a UUID, and this is {event_id!r}. Look at the `event_id` function, or at its sender."
    event_id: object


class NowhereToPublish(TickLakeError):
    message = (
        "The handler returned a {kind} and the consumer publishes nowhere. Name a topic: publishes=…, or return None."
    )
    kind: str


# Events


class BadEvent(TickLakeError):
    message = (
        "This is no event that can be stored: {event}: {reason}. Give it an id, a type and a payload that JSON can say."
    )
    event: str
    reason: object


class EventQueueNotFound(TickLakeError):
    message = "There is no event queue at {queue}. Give the file that its IndexerQueue writes."
    queue: str


class NoEventQueue(TickLakeError):
    message = "{queue} is no event queue. Give the file that its IndexerQueue writes."
    queue: str


class OtherEventQueue(TickLakeError):
    message = (
        "{table} has the events of another queue than {queue}, and the batches of both have the same numbers. Drain "
        "this one into another run or another lake; it keeps its events until then."
    )
    table: object
    queue: object


class OtherEventBatch(TickLakeError):
    message = (
        "{table} has other events as batch {number} than {queue}: the queue was copied, or restored from a backup. "
        "Drain this one into another lake; it keeps its events until then."
    )
    table: object
    number: int
    queue: object


class QueueNotRunning(TickLakeError):
    message = "Queue {queue} is not running: nothing was accepted. Call start() first, and publish before stop()."
    queue: object


class QueueInUse(TickLakeError):
    message = (
        "Queue {queue} is open in another process, or a second time in this one. Stop that one, or use another file."
    )
    queue: object


class QueueFull(TickLakeError):
    message = (
        "Queue {queue} holds {capacity} events that are not on disk yet, and was told not to wait. Publish more slowly."
    )
    queue: object
    capacity: int


class EventsNotDurable(TickLakeError):
    message = (
        "Events are not on disk in {queue}: {reason} Those still queued are tried again; publishing twice does no harm."
    )
    queue: object
    reason: object


# Places


class UnsupportedPlace(TickLakeError):
    message = "{what} cannot be at {place!r}: {reason}. Give {allowed}."
    what: str
    place: str
    reason: str
    allowed: str


class StorageLibraryMissing(TickLakeError):
    message = "Storage {url} needs a library that is not installed: {reason}. Install it with pip, next to ticklake."
    url: str
    reason: str
