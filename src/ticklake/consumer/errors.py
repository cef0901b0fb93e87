"""Errors of the idempotent consumer and its outbox."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class InvalidEventId(TickLakeError):
    message = "An event id must be a UUID, but this is {event_id!r}. Check the `event_id` function and the sender."
    event_id: object


class ResultsNotPublished(TickLakeError):
    message = (
        "{count:,} results for {topic!r} are stored but not published: another relay is active, or publishing fails. "
        "The next relay publishes them; `ticklake groups` shows how many are left."
    )
    topic: str
    count: int


class NowhereToPublish(TickLakeError):
    message = "The handler returned a {kind}, but the consumer has no topic for it. Set publishes=…, or return None."
    kind: str
