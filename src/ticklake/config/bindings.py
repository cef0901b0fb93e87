"""Binding URIs, `usage:resource?parameter=value`: how a service uses a resource."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from ticklake.config.errors import BadBinding, BindingWithoutGroup, UnknownUsage
from ticklake.config.hocon import listed, nearest

USAGES = {
    "topic-read": "Topic",
    "topic-write": "Topic",
    "storage-read": "Storage",
    "storage-write": "Storage",
    "queue-in": "Queue",
    "queue-out": "Queue",
    "db-meta-read": "Database",
    "db-meta-write": "Database",
    "db-coordinator": "Database",
    "db-idempotency": "Database",
    "events-read": "EventQueue",
    "lake-read": "Lake",
    "lake-write": "Lake",
}
"""Each usage with the kind of resource it needs."""


@dataclass(frozen=True)
class Binding:
    """A parsed binding. `consumer_group` is set for `topic-read` only."""

    usage: str
    resource: str
    consumer_group: str | None = None

    @property
    def kind(self) -> str:
        return USAGES[self.usage]

    def __str__(self) -> str:
        group = f"?consumerGroup={self.consumer_group}" if self.consumer_group else ""
        return f"{self.usage}:{self.resource}{group}"


def parse_binding(text: str, where: str) -> Binding:
    """Parses a binding. Errors name `where`: file, line and key."""
    usage, colon, rest = text.strip().partition(":")
    resource, _, query = rest.partition("?")
    if not colon or not resource.strip():
        raise BadBinding(where=where, uri=text, reason="write USAGE:RESOURCE, for example storage-read:tick-storage")
    if usage not in USAGES:
        raise UnknownUsage(where=where, usage=usage, hint=nearest(usage, USAGES), allowed=listed(USAGES))
    group = _consumer_group(text, usage, query, where)
    if usage == "topic-read" and not group:
        raise BindingWithoutGroup(where=where, uri=text, resource=resource)
    return Binding(usage, resource.strip(), group or None)


def _consumer_group(text: str, usage: str, query: str, where: str) -> str:
    parameters = parse_qsl(query, keep_blank_values=True)
    allowed = {"consumerGroup", "consumer_group"} if usage == "topic-read" else set()
    for name, _ in parameters:
        if name not in allowed:
            known = "its only parameter is consumerGroup" if allowed else "it has no parameters"
            reason = f"{name!r} is not a parameter of {usage}; {known}"
            raise BadBinding(where=where, uri=text, reason=reason)
    if len(parameters) > 1:
        raise BadBinding(where=where, uri=text, reason="consumerGroup is given twice")
    return parameters[0][1].strip() if parameters else ""
