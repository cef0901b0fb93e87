"""Errors in a configuration."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class ConfigNotFound(TickLakeError):
    message = "Configuration file {file} does not exist. `ticklake init` writes one to start from."
    file: object


class ConfigSyntax(TickLakeError):
    message = "{where}: {reason}."
    where: object
    reason: object


class IncludeNotFound(TickLakeError):
    message = "{where}: the included file {target} does not exist{hint} Names are relative to the including file."
    where: object
    target: object
    hint: str


class UnknownReference(TickLakeError):
    message = (
        "{where}: ${{{name}}} is defined neither in the configuration nor in the environment{hint} Write ${{?{name}}} "
        "if it is optional."
    )
    where: object
    name: str
    hint: str


class IncludeCycle(TickLakeError):
    message = "{where}: {target} includes itself; remove one of the includes."
    where: object
    target: object


class AppendNotSupported(TickLakeError):
    message = "{where}: `{key} +=` is not supported; write `{key} = ${{?{path}}} [more]` or the whole list."
    where: object
    key: str
    path: str


class DefinedTwice(TickLakeError):
    message = "{where}: {key} is already defined in line {line}; rename one of the two."
    where: object
    key: str
    line: int


class UnknownKey(TickLakeError):
    message = "{where}: unknown key {key}{hint} Allowed here: {allowed}."
    where: object
    key: str
    hint: str
    allowed: str


class BadValue(TickLakeError):
    message = "{where}: {key}: {reason}."
    where: object
    key: str
    reason: object


class SecretInFile(TickLakeError):
    message = (
        "{where}: {key} contains a password; keep it out of the file: `password = ${{?DATABASE_PASSWORD}}` reads it "
        "from the environment."
    )
    where: object
    key: str


class ClassMissing(TickLakeError):
    message = "{where}: {key} needs a class; one of: {allowed}."
    where: object
    key: str
    allowed: str


class UnknownClass(TickLakeError):
    message = "{where}: unknown class {given!r}{hint} Allowed: {allowed}."
    where: object
    given: str
    hint: str
    allowed: str


class UnknownUsage(TickLakeError):
    message = "{where}: unknown usage {usage!r}{hint} Supported: {allowed}."
    where: object
    usage: str
    hint: str
    allowed: str


class BadBinding(TickLakeError):
    message = "{where}: {uri!r} is not a binding: {reason}."
    where: object
    uri: str
    reason: object


class BindingWithoutGroup(TickLakeError):
    message = "{where}: {uri!r} has no consumer group; write topic-read:{resource}?consumerGroup=GROUP."
    where: object
    uri: str
    resource: str


class UnknownResource(TickLakeError):
    message = "{where}: {key} uses {name!r}, which is not a resource{hint} Resources of kind {kind}: {allowed}."
    where: object
    key: str
    name: str
    hint: str
    kind: str
    allowed: str


class WrongKind(TickLakeError):
    message = "{where}: {key} uses {name!r}, which is of kind {found}, not {kind}. Resources of kind {kind}: {allowed}."
    where: object
    key: str
    name: str
    found: str
    kind: str
    allowed: str


class BindingMissing(TickLakeError):
    message = (
        "{file}: service {service!r} needs a {kind} but is bound to none; bind one in its `resources`. Known: {found}."
    )
    file: object
    service: str
    kind: str
    found: str


class ConfigExists(TickLakeError):
    message = "{file} already exists and was not changed. Choose another directory: `ticklake init DIRECTORY`."
    file: object


class GroupFillsTwoTables(TickLakeError):
    message = (
        "{file}: {first!r} and {second!r} read {topic!r} in the same consumer group, {group!r}, but fill different "
        "tables, so each would get only a part of the messages. Give each its own consumerGroup."
    )
    file: object
    first: str
    second: str
    topic: str
    group: str | None
