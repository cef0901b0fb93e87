"""Errors of a node."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class ProducerMissing(TickLakeError):
    message = "{file}: service {service} needs a simulation, but there is none. Add a Simulation."
    file: object
    service: str


class TwoProducers(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} are both simulations, but a node produces only one run. Remove one of them."
    )
    file: object
    first: str
    second: str


class EventRunMissing(TickLakeError):
    message = "{file}: service {service} does not know the run of its events. Set its run_id, or add a Simulation."
    file: object
    service: str


class TwoEventIndexers(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both write the events of run {run_id}, but the batches of two queues have "
        "the same numbers. Give one of them another run_id."
    )
    file: object
    first: str
    second: str
    run_id: str


class EventQueueShared(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} both drain event queue {queue!r}, but each batch is delivered only once. "
        "Give each its own queue."
    )
    file: object
    first: str
    second: str
    queue: str


class OneEventFile(TickLakeError):
    message = (
        "{file}: event queues {first!r} and {second!r} use the same file, {path}, which can be opened only once. Give "
        "one of them another path."
    )
    file: object
    first: str
    second: str
    path: object


class InstanceRunning(TickLakeError):
    message = (
        "Node {name!r} is already running in {directory}: process {pid} on {host}. Stop that process, give this node "
        "another node.name or node.directory, or let both share the work with node.instances = compete."
    )
    name: str
    directory: object
    pid: int | None
    host: str | None


class BadNodeAddress(TickLakeError):
    message = "{url!r} is not a node's address. Give http://HOST:PORT or https://HOST:PORT, without user or password."
    url: str


class NodeTokenWanted(TickLakeError):
    message = "The node at {url} requires a token: set {variable} to the token that the node was started with."
    url: str
    variable: str


class NodeTokenRefused(TickLakeError):
    message = "The node at {url} refuses the token in {variable}: set it to the token that the node was started with."
    url: str
    variable: str


class NodeLeadsElsewhere(TickLakeError):
    message = "{url} redirects to another host, which is not followed. Give --node the address of the node itself."
    url: str


class UnknownService(TickLakeError):
    message = "This node has no service {name!r}{hint} Its services: {found}."
    name: str
    hint: str
    found: str


class RunAndRuns(TickLakeError):
    message = "{file}: indexer {service!r} has both run_id = {run_id!r} and runs = {runs!r}. Remove one of them."
    file: object
    service: str
    run_id: str
    runs: str


class SourceMissing(TickLakeError):
    message = (
        "{file}: indexer {service!r} has no source. Bind it to a topic "
        "(topic-read:NAME?consumerGroup=GROUP) or, if it is a batch indexer, to a coordinator (db-coordinator:NAME)."
    )
    file: object
    service: str


class TwoSources(TickLakeError):
    message = (
        "{file}: indexer {service!r} is bound to a topic and to a coordinator, but reads from only one of them. "
        "Remove one of the bindings {topic!r} and {coordinator!r}."
    )
    file: object
    service: str
    topic: str
    coordinator: str
