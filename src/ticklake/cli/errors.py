"""Errors that only commands raise."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class StorageNotFound(TickLakeError):
    message = "No storage at {storage}: the directory does not exist. Give the directory that the producer writes to."
    storage: object


class DatabaseNotFound(TickLakeError):
    message = "No database at {url}: the directory does not exist. Give the one that the producer or the node uses."
    url: str


class TopicNotFound(TickLakeError):
    message = "Run {run_id} has no topic {topic!r}; it has {topics}."
    run_id: str
    topic: str
    topics: str


class DeadLetterNotFound(TickLakeError):
    message = "Run {run_id} has no dead letter {message_id!r}. `ticklake dead-letters list` lists them."
    run_id: str
    message_id: str


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


class GroupFillsNothing(TickLakeError):
    message = (
        "Nothing to release: no indexer has recorded a table for consumer group {group!r} of {topic} in run {run_id}. "
        "`ticklake groups` lists the groups."
    )
    topic: str
    group: str
    run_id: str
