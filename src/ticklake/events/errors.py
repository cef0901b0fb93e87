"""Errors of the event queue."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class BadEvent(TickLakeError):
    message = (
        "The event {event} cannot be stored: {reason}. It needs an id, a type and a payload that JSON can represent."
    )
    event: str
    reason: object


class EventQueueNotFound(TickLakeError):
    message = "There is no event queue at {queue}. Give the file of an IndexerQueue."
    queue: str


class NoEventQueue(TickLakeError):
    message = "{queue} is not an event queue. Give the file of an IndexerQueue."
    queue: str


class QueueNotRunning(TickLakeError):
    message = "Queue {queue} is not started, so nothing was accepted. Call start() first, and publish before stop()."
    queue: object


class QueueInUse(TickLakeError):
    message = "Queue {queue} is already open, in this or another process. Stop that one, or use another file."
    queue: object


class QueueLost(TickLakeError):
    message = (
        "Queue {queue} was opened by another process too, because its lock file was removed. This process stores and "
        "delivers nothing more. Stop one of them, open this queue again, and publish the refused events again."
    )
    queue: object


class QueueFull(TickLakeError):
    message = (
        'Queue {queue} is full: {capacity} events are not on disk yet. Publish more slowly, or use when_full="wait".'
    )
    queue: object
    capacity: int


class EventsNotDurable(TickLakeError):
    message = (
        "Events are not on disk in {queue}: {reason} Queued events are retried; publishing them again is harmless."
    )
    queue: object
    reason: object
