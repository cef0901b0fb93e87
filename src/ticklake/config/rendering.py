"""Renders settings as HOCON with all defaults and without secrets. The result loads to the same settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import SecretStr

from ticklake.config.classes import RESOURCES, SERVICES
from ticklake.config.hocon import KeyPath, read
from ticklake.config.options import NodeOptions, Options
from ticklake.config.settings import NodeSettings, ResourceSettings, ServiceSettings
from ticklake.config.templates import REFERENCE

OriginOf = Callable[[str], str]


def show(settings: NodeSettings, *, origin: bool = False) -> str:
    """Renders the settings. With `origin`, each option has a comment with its file and line, or `default`."""
    origin_of = _origin_of(settings.node, settings.node_origins) if origin else None
    lines = ["node {", *_indented(_option_lines(settings.node, origin_of)), "}", "resources {"]
    for resource in settings.resources.values():
        lines += _indented(_block(resource, {}, origin))
    lines += ["}", "services {"]
    for service in settings.services.values():
        bindings = {name: str(binding) for name, binding in service.bindings.items()}
        lines += _indented(_block(service, bindings, origin))
    return "\n".join([*lines, "}"])


def as_dict(settings: NodeSettings) -> dict[str, Any]:
    """Returns the settings as plain values, for JSON."""
    return {
        "file": str(settings.file),
        "node": {"options": settings.node.model_dump(mode="json"), "origins": dict(settings.node_origins)},
        "resources": {name: _plain(resource) for name, resource in settings.resources.items()},
        "services": {
            name: {**_plain(service), "resources": {key: str(bound) for key, bound in service.bindings.items()}}
            for name, service in settings.services.items()
        },
    }


def _plain(element: ResourceSettings | ServiceSettings) -> dict[str, Any]:
    options = element.options.model_dump(mode="json", exclude={"password"})
    return {"class": element.class_name, "options": options, "origins": dict(element.origins)}


def _block(element: ResourceSettings | ServiceSettings, bindings: Mapping[str, str], origin: bool) -> Iterator[str]:
    yield f"{json.dumps(element.name)} {{"
    yield f"  class = {json.dumps(element.class_name)}"
    if bindings:
        yield "  resources {"
        yield from (f"    {json.dumps(name)} = {json.dumps(uri)}" for name, uri in bindings.items())
        yield "  }"
    yield "  options {"
    origin_of = _origin_of(element.options, element.origins) if origin else None
    yield from _indented(_indented(_option_lines(element.options, origin_of)))
    yield "  }"
    yield "}"


def _option_lines(options: Options, origin_of: OriginOf | None, prefix: str = "") -> Iterator[str]:
    for name in type(options).model_fields:
        value, path = getattr(options, name), f"{prefix}{name}"
        source = f"  # {origin_of(path)}" if origin_of else ""
        if isinstance(value, Options):
            yield f"{name} {{"
            yield from _indented(_option_lines(value, origin_of, f"{path}."))
            yield "}"
        elif isinstance(value, SecretStr):
            yield f"# {name} is {'set' if value.get_secret_value() else 'not set'}{source.replace('  #', ',')}"
        else:
            yield f"{name} = {json.dumps(value)}{source}"


def _origin_of(options: Options, origins: Mapping[str, str]) -> OriginOf:
    """Returns where an option was given: by itself, by the `free` block around it, or in the reference."""

    def find(option: str) -> str:
        around = option.partition(".")[0]
        free = getattr(getattr(options, around), "free", False)
        given = origins.get(option) or (origins.get(around) if free else None)
        return given or f"default, {REFERENCE.name}:{_documentation()[type(options), option]}"

    return find


@cache
def _documentation() -> dict[tuple[type[Options], str], int]:
    """Returns the line of the reference that documents each option."""
    document = read(REFERENCE)
    models = RESOURCES | {name: service.options for name, service in SERVICES.items()}
    elements = {section: document.tree[section] for section in ("resources", "services")}
    blocks = ((section, name, body) for section, found in elements.items() for name, body in found.items())
    classes: dict[KeyPath, str] = {(section, name): body["class"] for section, name, body in blocks}
    node = [found for found in document.definitions if found.path[0] == "node"]
    return {(NodeOptions, ".".join(found.path[1:])): found.line for found in node} | {
        (models[classes[found.path[:2]]], ".".join(found.path[3:])): found.line
        for found in document.definitions
        if len(found.path) > 3 and found.path[2] == "options"
    }


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
