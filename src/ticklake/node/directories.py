"""Checks that the directories of a configuration can be used on this machine. Leaves nothing behind."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ticklake.checks.places import storage_place
from ticklake.config.classes import SERVICES
from ticklake.config.errors import BadValue
from ticklake.config.options import DatabaseOptions, EventQueueOptions, LakeOptions, StorageOptions, TopicOptions
from ticklake.config.settings import NodeSettings, ResourceSettings
from ticklake.disk import open_directory
from ticklake.storage import create_file

_SQLITE = "sqlite:///"
_READ_ONLY = ("storage-read", "lake-read")


class _Named(NamedTuple):
    """A directory, the option that names it, and where that option was given."""

    key: str
    path: Path
    where: object


def unusable_directories(settings: NodeSettings) -> Iterator[BadValue]:
    """Yields an error for each place that is not a directory, or that this user can neither write to nor create."""
    written, read = _used(settings)
    own = settings.node_origins.get("directory", settings.file)
    yield from _refused(_Named("node.directory", Path(settings.node.directory), own), writing=True)
    for resource in settings.resources.values():
        for place in _places(settings, resource):
            yield from _refused(place, writing=resource.name in written, reading=resource.name in read)


def _used(settings: NodeSettings) -> tuple[set[str], set[str]]:
    """Returns the resources that services write to and those that they use. Others need no write permission."""
    uses = {use for name in settings.services for use in settings.uses(name)}
    own = [name for name, service in settings.services.items() if service.class_name not in SERVICES]
    lakes = {lake.name for name in own if (lake := settings.of_kind_if_any(name, "Lake"))}
    written = {resource for usage, resource in uses if usage not in _READ_ONLY} | lakes
    topics = [settings.resources[name].options for name in written]
    written |= {one.database for one in topics if isinstance(one, TopicOptions) and one.database}
    return written, {resource for _, resource in uses}


def _places(settings: NodeSettings, resource: ResourceSettings) -> Iterator[_Named]:
    options = resource.options
    option = "url" if isinstance(options, (DatabaseOptions, TopicOptions)) else "path"
    key, where = f"resources.{resource.name}.{option}", resource.origins.get(option, settings.file)
    if isinstance(options, (DatabaseOptions, TopicOptions)):
        if options.url is not None and options.url.startswith(_SQLITE):
            yield _Named(key, Path(options.url.removeprefix(_SQLITE)), where)
    elif isinstance(options, EventQueueOptions):
        yield _Named(key, Path(options.path).parent, where)
    elif isinstance(options, (LakeOptions, StorageOptions)) and isinstance(place := storage_place(options.path), Path):
        yield _Named(key, place, where)


def _refused(place: _Named, *, writing: bool, reading: bool = True) -> Iterator[BadValue]:
    reason = _obstacle(place.path, writing=writing, reading=reading)
    if reason is not None:
        yield BadValue(where=place.where, key=place.key, reason=f"{reason}, or choose another directory")


def _obstacle(path: Path, *, writing: bool, reading: bool) -> str | None:
    """Returns why a directory cannot be used, with a remedy; None if it can be used or created."""
    nearest = _nearest(path, writing=writing)
    uncreated = "" if nearest == path else f"{path} cannot be created: "
    if not nearest.is_dir():
        return f"{uncreated}{nearest} is not a directory. Move it away"
    if writing and not os.access(nearest, os.W_OK | os.X_OK):
        return f"{uncreated}{nearest} is not writable by this user. Grant write permission"
    if reading and not uncreated and not os.access(nearest, os.R_OK | os.X_OK):
        return f"{nearest} is not readable by this user. Grant read permission"
    return _probed(nearest) if writing else None


def _nearest(path: Path, *, writing: bool) -> Path:
    """Returns the directory itself, or the parent in which it would be created."""
    exists = os.path.lexists if writing else os.path.exists  # a dangling link can be ignored, unless we must create it
    return next(one for one in (path, *path.parents) if exists(one) or one == one.parent)


def _probed(directory: Path) -> str | None:
    """Returns why files cannot be created atomically in a directory: a full disk, or a file system that cannot."""
    name = f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open_directory(directory) as folder:
            create_file(folder, name, b"")
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        return f"{directory} cannot be written to: {error.strerror or error}. Repair it"
    return None
