"""Errors of indexers."""

from __future__ import annotations

from datetime import datetime

from ticklake.errors import TickLakeError


class RowsMissing(TickLakeError):
    message = "An indexer with a table must define the static method `rows(ticks, world)`; this one does not."


class MetadataTimeout(TickLakeError):
    message = (
        "No metadata of run {run_id} was indexed within {seconds:g} s. Is the metadata indexer running for this lake?"
    )
    run_id: str
    seconds: float


class RunDiscoveryTimeout(TickLakeError):
    message = (
        "No run started in {storage} after {since:%Y-%m-%d %H:%M:%S} UTC, within {seconds:g} s. Set run_id to an "
        "existing run, or start a run."
    )
    since: datetime
    storage: str
    seconds: float


class NotABatchMessage(TickLakeError):
    message = (
        "Message {message_id} on {topic} is not a BatchInfo of run {run_id}. Its producer writes to the wrong topic or "
        "run."
    )
    message_id: str
    topic: str
    run_id: str


class KeyOfAnotherRun(TickLakeError):
    message = (
        "Message {message_id} on {topic} of run {run_id} names {key!r}, a file of another run. It is not indexed. "
        "Check its producer, which mixes up two runs."
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
        "Indexer {name} reads {topic} but has no database. Bind it to a topic, or index from the storage with "
        "`ticklake index`."
    )
    name: str
    topic: str


class LakeNeeded(TickLakeError):
    message = "An indexer with a table needs a lake. Pass lake=Lake(DIRECTORY)."


class SparkNeeded(TickLakeError):
    message = (
        "Indexer {name} needs a Spark session. Pass a function that returns one as spark=…, or configure a Lake with "
        "spark options."
    )
    name: str


class MetadataNotAnnounced(TickLakeError):
    message = (
        "No metadata of run {run_id} arrived on {topic} within {seconds:g} s. Is the metadata persistence service "
        "running?"
    )
    topic: str
    run_id: str
    seconds: float


class NotAMetadataMessage(TickLakeError):
    message = (
        "Message {message_id} on {topic} is not a MetadataInfo of run {run_id}. Its producer writes to the wrong topic "
        "or run."
    )
    message_id: str
    topic: str
    run_id: str


class RunsNotIndexed(TickLakeError):
    message = (
        "{count:,} runs could not be indexed, each after {attempts} attempts in a row; all others are indexed. Run "
        "{run_id}: {error}. Remove the cause, then start the indexer again."
    )
    count: int
    attempts: int
    run_id: str
    error: str


class UnknownIndexer(TickLakeError):
    message = (
        'Indexer class {name!r} cannot be used: {reason}. Write "module:Class", a BatchIndexer that Python can '
        "import here."
    )
    reason: object
    name: str


class UnknownTable(TickLakeError):
    message = "No indexer writes a table named {table!r}. Known tables: {known}."
    table: str
    known: str


class OtherEventQueue(TickLakeError):
    message = (
        "{table} has the events of another queue than {queue}, and the batches of both have the same numbers. Index "
        "this queue into another run or another lake; it keeps its events until then."
    )
    table: object
    queue: object


class OtherEventBatch(TickLakeError):
    message = (
        "{table} has other events in batch {number} than {queue}: the queue was copied, or restored from a backup. "
        "Index this queue into another lake; it keeps its events until then."
    )
    table: object
    number: int
    queue: object
