"""The start order of services. They stop in reverse, so producers stop first and consumers can finish."""

from __future__ import annotations

from collections.abc import Mapping

from ticklake.config.settings import NodeSettings

STARTS_AFTER = {
    "queue-out": "queue-in",
    "queue-in": "queue-end",
    "topic-write": "topic-read",
    "db-meta-read": "db-meta-write",
}
"""Services with the usage on the left start after all services with the usage on the right."""


def start_order(settings: NodeSettings) -> list[str]:
    """Returns the order of the file, except that a service comes after its dependencies."""
    uses = {name: _uses(settings, name) for name in settings.services}
    return ordered({name: _dependencies(name, uses) for name in uses})


def ordered(dependencies: Mapping[str, set[str]]) -> list[str]:
    """Sorts by dependencies. A cycle, which topics allow, is broken at its first service."""
    remaining, order = list(dependencies), list[str]()
    while remaining:
        chosen = next((name for name in remaining if not dependencies[name].intersection(remaining)), remaining[0])
        remaining.remove(chosen)
        order.append(chosen)
    return order


def _uses(settings: NodeSettings, name: str) -> set[tuple[str, str]]:
    """Returns the usages of a service. The completion service waits for the queue's end, so it must stop last."""
    uses = settings.uses(name)
    if settings.services[name].class_name == "CompletionService":
        return uses | {("queue-end", resource) for usage, resource in uses if usage == "queue-in"}
    return uses


def _dependencies(name: str, uses: Mapping[str, set[tuple[str, str]]]) -> set[str]:
    wanted = {(STARTS_AFTER[usage], resource) for usage, resource in uses[name] if usage in STARTS_AFTER}
    return {other for other, what in uses.items() if other != name and what & wanted}
