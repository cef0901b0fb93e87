"""Errors of the event queue."""

from __future__ import annotations

from ticklake.errors import TickLakeError


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


class QueueNotRunning(TickLakeError):
    message = "Queue {queue} is not running: nothing was accepted. Call start() first, and publish before stop()."
    queue: object


class QueueInUse(TickLakeError):
    message = (
        "Queue {queue} is open in another process, or a second time in this one. Stop that one, or use another file."
    )
    queue: object


class QueueLost(TickLakeError):
    message = (
        "Queue {queue} was opened by another process, though this one has it: somebody removed its lock file. Nothing "
        "more is stored or delivered here. Stop one of them, open this one again, and publish again what was refused."
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
