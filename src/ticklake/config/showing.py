"""Settings as HOCON again, with every default written out; it loads to the same settings. Secrets stay out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from ticklake.config.options import Options
from ticklake.config.settings import NodeSettings, ResourceSettings, ServiceSettings


def show(settings: NodeSettings, *, origin: bool = False) -> str:
    """With `origin`, each option says where it was given, or that it is the default."""
    lines = ["resources {"]
    for resource in settings.resources.values():
        lines += _indented(_block(resource, {}, origin))
    lines += ["}", "services {"]
    for service in settings.services.values():
        bindings = {name: str(binding) for name, binding in service.bindings.items()}
        lines += _indented(_block(service, bindings, origin))
    return "\n".join([*lines, "}"])


def as_dict(settings: NodeSettings) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    return {
        "file": str(settings.file),
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
    yield from _indented(_indented(_option_lines(element.options, "", element.origins if origin else None)))
    yield "  }"
    yield "}"


def _option_lines(options: Options, prefix: str, origins: Mapping[str, str] | None) -> Iterator[str]:
    for name in type(options).model_fields:
        value = getattr(options, name)
        if isinstance(value, Options):
            yield f"{name} {{"
            yield from _indented(_option_lines(value, f"{prefix}{name}.", origins))
            yield "}"
        elif isinstance(value, SecretStr):
            yield f"# {name} is {'set' if value.get_secret_value() else 'not set'}"
        else:
            source = "" if origins is None else f"  # {_origin(type(options), prefix, name, origins)}"
            yield f"{name} = {json.dumps(value)}{source}"


def _origin(model: type[Options], prefix: str, name: str, origins: Mapping[str, str]) -> str:
    given = origins.get(prefix + name)
    return given or (origins.get(prefix.rstrip(".")) if model.free else None) or "default"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
