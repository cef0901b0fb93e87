"""The order in which services start. They stop in reverse: who produces stops first, who consumes finishes."""

from __future__ import annotations

from collections.abc import Mapping

from ticklake.config.settings import NodeSettings

EARLIER = {
    "queue-out": "queue-in",
    "queue-in": "queue-end",
    "topic-write": "topic-read",
    "db-meta-read": "db-meta-write",
}
"""Who uses a resource as on the left waits for all who use it as on the right."""


def start_order(settings: NodeSettings) -> list[str]:
    """The order of the file, except that a service comes after those it depends on."""
    uses = {name: _uses(settings, name) for name in settings.services}
    return ordered({name: _dependencies(name, uses) for name in uses})


def ordered(dependencies: Mapping[str, set[str]]) -> list[str]:
    """Always the first that waits for nobody; in a circle, which topics allow, the first of all."""
    left, order = list(dependencies), list[str]()
    while left:
        chosen = next((name for name in left if not dependencies[name].intersection(left)), left[0])
        left.remove(chosen)
        order.append(chosen)
    return order


def _uses(settings: NodeSettings, name: str) -> set[tuple[str, str]]:
    """Who closes a run waits for the end of the queue, so it must outlive those who empty it."""
    uses = settings.uses(name)
    if settings.services[name].class_name == "CompletionService":
        return uses | {("queue-end", resource) for usage, resource in uses if usage == "queue-in"}
    return uses


def _dependencies(name: str, uses: Mapping[str, set[tuple[str, str]]]) -> set[str]:
    wanted = {(EARLIER[usage], resource) for usage, resource in uses[name] if usage in EARLIER}
    return {other for other, what in uses.items() if other != name and what & wanted}
