"""Loads settings from a file. A mistake is one error with the file, the line, the key and the allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ticklake.config.bindings import Binding, parse_binding
from ticklake.config.classes import OWN_INDEXER, RESOURCES, SERVICES, resource_class, service_class
from ticklake.config.errors import BadValue, UnknownKey, UnknownResource, WrongKind
from ticklake.config.hocon import Document, KeyPath, fold, listed, nearest, read, refuse_twins
from ticklake.config.options import IndexerOptions, NodeOptions, TopicOptions
from ticklake.config.reading import Entry, read_options
from ticklake.config.settings import NodeSettings, ResourceSettings, ServiceSettings

WRAPPERS: tuple[KeyPath, ...] = (("evochora", "datapipeline"), ("pipeline",), ())
SECTIONS = ("node", "resources", "services", "vars")
CLASS_KEYS = ("class", "className", "type")
RESOURCE_KEYS = (*CLASS_KEYS, "options")
SERVICE_KEYS = (*CLASS_KEYS, "options", "resources")


def load(path: str | Path) -> NodeSettings:
    """Reads, resolves and checks a configuration file."""
    document = read(Path(path))
    root, section = _unwrapped(document)
    resources = _block(document, root, section, "resources")
    services = _block(document, root, section, "services")
    run_id = _shared(document, (*root, "services"), services, "runid")
    runs = _shared(document, (*root, "services"), services, "runs")
    read_resources = {name: _resource(document, (*root, "resources"), name, body) for name, body in resources.items()}
    read_services = {name: _service(document, (*root, "services"), name, body) for name, body in services.items()}
    node, origins = _node(document, root, section)
    read_services = _with_shared(_with_shared(read_services, "run_id", run_id), "runs", runs)
    settings = NodeSettings(document.file, read_resources, read_services, node, origins)
    _check_references(document, root, settings)
    return settings


def _unwrapped(document: Document) -> tuple[KeyPath, Mapping[str, Any]]:
    """Returns the block of `resources` and `services`: the top level, or the block that the original puts around it."""
    root = next(root for root in WRAPPERS if isinstance(_descend(document.tree, root), dict))
    for depth, key in enumerate(root):
        _only(document, root[:depth], _descend(document.tree, root[:depth]), (key, "vars"))
    section = _descend(document.tree, root)
    _only(document, root, section, SECTIONS)
    return root, section


def _descend(tree: Any, path: KeyPath) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _only(document: Document, path: KeyPath, section: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in section:
        if key not in allowed:
            where = document.where((*path, key))
            raise UnknownKey(
                where=where, key=".".join((*path, key)), hint=nearest(key, allowed), allowed=listed(allowed)
            )


def _block(document: Document, root: KeyPath, section: Mapping[str, Any], name: str) -> dict[str, Any]:
    block = section.get(name, {})
    _must_be_block(document, (*root, name), block)
    refuse_twins(document, (*root, name), block)
    return dict(block)


def _must_be_block(document: Document, path: KeyPath, value: Any) -> None:
    if not isinstance(value, dict):
        raise BadValue(where=document.where(path), key=".".join(path), reason="must be a block in braces { }")


def _shared(document: Document, section: KeyPath, services: dict[str, Any], wanted: str) -> tuple[str, str] | None:
    """Returns `services.runId` or `services.runs`, which apply to all services as in the original, and its origin."""
    for key in [key for key, value in services.items() if fold(key) == wanted and not isinstance(value, dict)]:
        found, path = services.pop(key), (*section, key)
        if isinstance(found, str) and found.strip():
            return found, document.origin(path)
        if found is not None:
            raise BadValue(where=document.where(path), key=".".join(path), reason="must be text in quotes")
    return None


def _node(document: Document, root: KeyPath, section: Mapping[str, Any]) -> tuple[NodeOptions, dict[str, str]]:
    path, body = (*root, "node"), section.get("node", {})
    _must_be_block(document, path, body)
    options, origins = read_options(
        document, NodeOptions, path, [((*path, key), value) for key, value in body.items()], ()
    )
    return cast(NodeOptions, options), origins


def _resource(document: Document, section: KeyPath, name: str, body: Any) -> ResourceSettings:
    path = (*section, name)
    _must_be_block(document, path, body)
    class_name = resource_class(_class_of(document, path, body), document.where(path), ".".join(path))
    entries = _entries(document, path, body, RESOURCE_KEYS)
    options, origins = read_options(document, RESOURCES[class_name], path, entries, RESOURCE_KEYS)
    return ResourceSettings(name, class_name, options, origins)


def _service(document: Document, section: KeyPath, name: str, body: Any) -> ServiceSettings:
    path = (*section, name)
    _must_be_block(document, path, body)
    class_name = service_class(_class_of(document, path, body), name, document.where(path), ".".join(path))
    bindings = _bindings(document, (*path, "resources"), body.get("resources", {}))
    model = SERVICES.get(class_name, OWN_INDEXER).options
    entries = _entries(document, path, body, SERVICE_KEYS)
    options, origins = read_options(document, model, path, entries, SERVICE_KEYS)
    return ServiceSettings(name, class_name, bindings, options, origins)


def _class_of(document: Document, path: KeyPath, body: Mapping[str, Any]) -> str | None:
    given = [key for key in CLASS_KEYS if body.get(key) is not None]
    if len(given) > 1:
        where, key = document.where((*path, given[1])), ".".join((*path, given[1]))
        raise BadValue(where=where, key=key, reason=f"is already given as {given[0]}")
    return str(body[given[0]]) if given else None


def _entries(document: Document, path: KeyPath, body: Mapping[str, Any], beside: tuple[str, ...]) -> list[Entry]:
    """Returns the options of a block with their paths. They are inside `options { }` or directly in the block."""
    inner = {} if body.get("options") is None else body["options"]
    _must_be_block(document, (*path, "options"), inner)
    found: list[Entry] = [((*path, key), value) for key, value in body.items() if key not in beside]
    return found + [((*path, "options", key), value) for key, value in inner.items()]


def _bindings(document: Document, path: KeyPath, block: Any) -> dict[str, Binding]:
    _must_be_block(document, path, block)
    found = {}
    for name, uri in block.items():
        where, key = document.where((*path, name)), ".".join((*path, name))
        if not isinstance(uri, str):
            raise BadValue(
                where=where, key=key, reason='must be a binding in quotes, such as "storage-read:tick-storage"'
            )
        found[name] = parse_binding(uri, f"{where}: {key}")
    return found


def _with_shared(
    services: dict[str, ServiceSettings], option: str, shared: tuple[str, str] | None
) -> dict[str, ServiceSettings]:
    if shared is None:
        return services
    return {name: _given(service, option, *shared) for name, service in services.items()}


def _given(service: ServiceSettings, option: str, value: str, origin: str) -> ServiceSettings:
    # Not the simulation: it creates a new run. An indexer's own choice counts more.
    if not isinstance(service.options, IndexerOptions) or service.options.model_fields_set & {"run_id", "runs"}:
        return service
    options = service.options.model_copy(update={option: value})
    return replace(service, options=options, origins={**service.origins, option: origin})


def _check_references(document: Document, root: KeyPath, settings: NodeSettings) -> None:
    for resource in settings.resources.values():
        if isinstance(resource.options, TopicOptions) and resource.options.database is not None:
            path = (*root, "resources", resource.name, "database")
            _check_reference(document, path, settings, resource.options.database, "Database")
    for service in settings.services.values():
        for name, binding in service.bindings.items():
            path = (*root, "services", service.name, "resources", name)
            _check_reference(document, path, settings, binding.resource, binding.kind)


def _check_reference(document: Document, path: KeyPath, settings: NodeSettings, name: str, kind: str) -> None:
    where, key = document.where(path), ".".join(path)
    candidates = [resource.name for resource in settings.resources.values() if resource.class_name == kind]
    if name not in settings.resources:
        hint = nearest(name, settings.resources)
        raise UnknownResource(where=where, key=key, name=name, hint=hint, kind=kind, allowed=listed(candidates))
    found = settings.resources[name].class_name
    if found != kind:
        raise WrongKind(where=where, key=key, name=name, found=found, kind=kind, allowed=listed(candidates))
