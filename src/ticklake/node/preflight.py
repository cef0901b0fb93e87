"""Checks before the start: what a node needs on this machine. Finds all problems, not only the first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from ticklake.config import NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.config.hocon import listed
from ticklake.database import OUTAGES
from ticklake.database.errors import ConnectionRefused
from ticklake.database.url import split_password
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.errors import UnknownIndexer
from ticklake.indexers.registry import indexer_of
from ticklake.lake.session import find_java, needs_java
from ticklake.node.directories import unusable_directories
from ticklake.topics import Database

SECONDS = 3.0
"""The most that all checks together may take. What has not answered by then is not a problem."""

Check = Callable[[NodeSettings], Iterable[Exception | str]]


@dataclass
class Report:
    """What the checks have found. With a problem the node cannot start; notes are what an operator should know."""

    problems: list[Exception] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine(settings: NodeSettings, environment: Mapping[str, str] = os.environ) -> Report:
    """Does all checks at the same time. Leaves nothing behind."""
    checks: dict[str, Check] = {
        "directories": unusable_directories,
        **_databases(settings),
        "Java": lambda settings: _java(settings, environment),
        "services": _services,
    }
    results: dict[str, list[Exception | str]] = {name: [] for name in checks}
    threads = {
        name: threading.Thread(target=_collect, args=(results[name], check, settings), daemon=True)
        for name, check in checks.items()
    }
    deadline = time.monotonic() + SECONDS
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    slow = [name for name, thread in threads.items() if thread.is_alive()]
    late = [f"The check of {name} takes longer than {SECONDS:g} seconds." for name in slow]
    found = [one for name in checks for one in list(results[name])]
    return Report(
        [one for one in found if isinstance(one, Exception)], [*(one for one in found if isinstance(one, str)), *late]
    )


def _collect(found: list[Exception | str], check: Check, settings: NodeSettings) -> None:
    """Adds what a check finds, one by one: a check that takes too long may have found something before."""
    try:
        for one in check(settings):
            found.append(one)
    except Exception as error:  # also a bug in a check: it would hide problems
        found.append(error)


def _databases(settings: NodeSettings) -> dict[str, Check]:
    """Returns one check for each database: one that does not answer hides no other."""
    urls = settings.places().databases
    return {f"database {split_password(url)[0]}": partial(_database, url) for url in urls}


def _database(url: str, _: NodeSettings) -> Iterator[Exception | str]:
    """A server that is away is no problem: batch files are written, and announced once it answers."""
    with Database(url, max_pool_size=1) as database:
        try:
            database.runs()
        except ConnectionRefused as error:
            yield error
        except OSError:
            return  # the check of directories names it
        except OUTAGES as error:
            yield f"{error} The node starts and waits for it."


def _java(settings: NodeSettings, environment: Mapping[str, str]) -> list[str]:
    """Raises `JavaMissing` if a service needs Java and there is none."""
    users = [one for one in settings.services.values() if one.class_name == "EventIndexer" or _writes_ticks(one)]
    lakes = [settings.of_kind_if_any(one.name, "Lake") for one in users]
    masters = {cast(given.LakeOptions, lake.options).spark.master for lake in lakes if lake is not None}
    if any(map(needs_java, masters)):
        find_java(environment)
    return []


def _services(settings: NodeSettings) -> Iterator[str]:
    """Indexers of ticks wait for the metadata of their run."""
    for lake in (one for one in settings.resources.values() if one.class_name == "Lake"):
        here = [one for one in settings.services.values() if settings.of_kind_if_any(one.name, "Lake") is lake]
        waiting = [one.name for one in here if _writes_ticks(one)]
        if waiting and not any(one.class_name == "MetadataIndexer" for one in here):
            yield (
                f"No service indexes metadata into {lake.name}: {listed(waiting)} will wait until another node has "
                "done it. Add a metadata-indexer if there is no other node."
            )


def _writes_ticks(service: ServiceSettings) -> bool:
    if not isinstance(service.options, given.IndexerOptions):
        return False
    try:
        kind = indexer_of(service.class_name, getattr(service.options, "cells", "all"))
    except UnknownIndexer:
        return False  # building it reports that
    return issubclass(kind, BatchIndexer) and kind.table is not None
