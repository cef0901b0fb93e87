"""Errors of a node."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class ProducerMissing(TickLakeError):
    message = "{file}: service {service} writes what a simulation produces, and there is none. Add a Simulation."
    file: object
    service: str


class TwoProducers(TickLakeError):
    message = "{file}: {first!r} and {second!r} are both simulations, and a node produces one run. Remove one of them."
    file: object
    first: str
    second: str


class EventRunMissing(TickLakeError):
    message = (
        "{file}: service {service} does not know which run its events belong to. Give it run_id, or add a Simulation."
    )
    file: object
    service: str


class TwoEventIndexers(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both write the events of run {run_id}, and the batches of two queues have "
        "the same numbers. Give one of them another run_id."
    )
    file: object
    first: str
    second: str
    run_id: str


class EventQueueShared(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both drain event queue {queue!r}, and each batch is handed out once. "
        "Give each a queue of its own."
    )
    file: object
    first: str
    second: str
    queue: str


class OneEventFile(TickLakeError):
    message = (
        "{file}: event queues {first!r} and {second!r} are the same file, {path}, which is open once. Give one another."
    )
    file: object
    first: str
    second: str
    path: object


class InstanceRunning(TickLakeError):
    message = (
        "Node {name!r} runs already in {directory}: process {pid} on {host}. Stop that one, give this one another "
        "node.name or node.directory, or let both share the work: node.instances = compete."
    )
    name: str
    directory: object
    pid: int | None
    host: str | None


class BadNodeAddress(TickLakeError):
    message = "{url!r} is no address of a node. Give http://HOST:PORT or https://HOST:PORT, without user or password."
    url: str


class NodeTokenWanted(TickLakeError):
    message = "The node at {url} wants a token: set {variable} to the one that it was started with."
    url: str
    variable: str


class NodeTokenRefused(TickLakeError):
    message = "The node at {url} refuses the token of {variable}: set it to the one that the node was started with."
    url: str
    variable: str


class NodeLeadsElsewhere(TickLakeError):
    message = "{url} leads to another address, which is not asked. Give --node the address of the node itself."
    url: str


class UnknownService(TickLakeError):
    message = "This node has no service {name!r}{hint} There are: {found}."
    name: str
    hint: str
    found: str


class SourceMissing(TickLakeError):
    message = (
        "{file}: indexer {service!r} has nothing to read from. Bind it to a topic "
        "(topic-read:NAME?consumerGroup=GROUP) or, if it is a batch indexer, to a coordinator (db-coordinator:NAME)."
    )
    file: object
    service: str


class TwoSources(TickLakeError):
    message = (
        "{file}: indexer {service!r} is bound to a topic and to a coordinator, and reads from one of them only. "
        "Remove one of the bindings {topic!r} and {coordinator!r}."
    )
    file: object
    service: str
    topic: str
    coordinator: str
