"""Errors of the idempotent consumer and its outbox."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class InvalidEventId(TickLakeError):
    message = "An event id must be a UUID, and this is {event_id!r}. Look at the `event_id` function, or at its sender."
    event_id: object


class ResultsNotPublished(TickLakeError):
    message = (
        "{count:,} results for {topic!r} are stored and not published: another relay has its turn, or publishing "
        "fails. Any later relay publishes them; `ticklake groups` shows how many are left."
    )
    topic: str
    count: int


class NowhereToPublish(TickLakeError):
    message = (
        "The handler returned a {kind} and the consumer publishes nowhere. Name a topic: publishes=…, or return None."
    )
    kind: str
