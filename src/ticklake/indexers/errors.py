"""Errors of indexers."""

from __future__ import annotations

from datetime import datetime

from ticklake.errors import TickLakeError


class RowsMissing(TickLakeError):
    message = "An indexer that names a table also writes `rows(ticks, world)`, a static method; this one does not."


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
