"""The subject of an examination: this machine and the places of a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from ticklake.config import NodeSettings
from ticklake.config.options import DatabaseOptions, LakeOptions, StorageOptions
from ticklake.database.url import split_password
from ticklake.doctor.findings import Finding, of_each
from ticklake.errors import TickLakeError
from ticklake.insights import BacklogReport, Backlogs
from ticklake.storage import Storage
from ticklake.topics import Database, Run

NEWEST_RUNS = 20
BACKLOG_SECONDS = 10.0
"""The longest time that the doctor reads the backlogs of runs. With more runs, it says how many it has read."""
Item = TypeVar("Item")


def in_newest(runs: int) -> str:
    """Returns a text that not all runs were examined; empty if all were."""
    return f" in the newest {NEWEST_RUNS} of {runs:,} runs" if runs > NEWEST_RUNS else ""


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def requirements(package: str) -> list[str]:
    """Returns the `Requires-Dist` lines of a package; none if it is not installed."""
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []


@dataclass(frozen=True)
class Machine:
    """The environment, file systems and installed packages, which tests can replace."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
    mounts: Path = Path("/proc/mounts")
    version_of: Callable[[str], str | None] = installed
    requirements_of: Callable[[str], list[str]] = requirements


class Store:
    """A database, opened once for all checks. `name` is its URL without the password."""

    def __init__(self, url: str, storages: Sequence[Path] = ()) -> None:
        """`storages` have the batch files that indexers with a coordinator of this database index."""
        self._url, self._storages = url, storages
        self.name = split_password(url)[0]
        self._unreadable: set[str] = set()

    @property
    def directory(self) -> Path | None:
        """The directory of a SQLite database; None for others."""
        return Path(self._url.removeprefix("sqlite:///")) if self._url.startswith("sqlite:///") else None

    @cached_property
    def database(self) -> Database:
        return Database(self._url, max_pool_size=1, min_idle=0)

    @cached_property
    def failure(self) -> TickLakeError | OSError | None:
        """Why the database cannot be used; None if it can."""
        try:
            self.database.runs()
        except (TickLakeError, OSError) as error:
            return error
        return None

    @property
    def counts_files(self) -> bool:
        """Whether `backlogs` includes files that indexers with a coordinator have left."""
        return any(path.is_dir() for path in self._storages)

    @property
    def scope(self) -> str:
        left_out = f", without {len(self._unreadable):,} that cannot be read" if self._unreadable else ""
        return in_newest(len(self.database.runs())) + left_out

    @cached_property
    def backlogs(self) -> BacklogReport:
        """What every run still has to do, not only the newest ones."""
        storages = [Storage(path) for path in self._storages if path.is_dir()]
        return Backlogs(lambda: [self.database], storages=storages).look_at_all(BACKLOG_SECONDS)

    @property
    def backlog_scope(self) -> str:
        """Returns a text that not all runs are in `backlogs`; empty if all are."""
        found = self.backlogs
        partly = f" in {found.checked:,} of {found.checked + found.unchecked:,} runs" if found.unchecked else ""
        return partly + (f", without {len(found.unreadable):,} that cannot be read" if found.unreadable else "")

    def read_all(
        self, check: str, read: Callable[[Run], Item], also: Collection[str] = ()
    ) -> tuple[dict[str, Item], list[Finding]]:
        """Reads each of the newest runs, and `also` these. One that fails is a finding, hides no other, and is not
        read again."""
        newest = [] if self.failure else self.database.runs()[-NEWEST_RUNS:]
        names = [*sorted(set(also).difference(newest)), *newest]
        readable = [name for name in names if name not in self._unreadable]
        found, failed = of_each(check, readable, lambda name: read(self.database.run(name, create=False)))
        self._unreadable |= set(failed)
        return found, list(failed.values())

    def read_current(
        self, check: str, read: Callable[[Run], Item], also: Collection[str] = ()
    ) -> tuple[dict[str, Item], list[Finding]]:
        """Reads only runs with the current schema version and server. Opening others would change them."""
        found, failed = self.read_all(check, lambda run: (read(run),) if _is_current(run) else None, also)
        return {name: one[0] for name, one in found.items() if one is not None}, failed

    def close(self) -> None:
        if "database" in self.__dict__:
            self.database.close()


def _is_current(run: Run) -> bool:
    versions = all(found.state in ("current", "not installed") for found in run.versions())
    return versions and not run.has_foreign_numbers()


@dataclass(frozen=True)
class Subject(AbstractContextManager["Subject"]):
    """The machine and the places to examine; all places are optional."""

    storages: tuple[Path, ...] = ()
    lakes: tuple[Path, ...] = ()
    stores: tuple[Store, ...] = ()
    needs_spark: bool = True
    machine: Machine = Machine()

    @classmethod
    def of(cls, settings: NodeSettings, machine: Machine | None = None) -> Subject:
        """Returns a subject with all places of a configuration."""
        by_kind = {kind: [one for one in settings.resources.values() if one.class_name == kind] for kind in _KINDS}
        urls = {settings.database_of(one.name).dsn(): None for one in by_kind["Topic"]}
        urls |= {cast(DatabaseOptions, one.options).dsn(): None for one in by_kind["Database"]}
        places = [cast(StorageOptions, one.options).path for one in by_kind["Storage"]]
        storages = tuple(Path(path) for path in places if "://" not in path)
        lakes = [cast(LakeOptions, one.options).path for one in by_kind["Lake"]]
        found = cls.at(storages, [Path(path) for path in lakes], list(urls))
        return replace(found, needs_spark=bool(lakes), machine=machine or Machine())

    @classmethod
    def at(cls, storages: Sequence[Path], lakes: Sequence[Path], databases: Sequence[str]) -> Subject:
        """Returns a subject with these places. The databases have the coordinators of files in all these storages."""
        return cls(tuple(storages), tuple(lakes), tuple(Store(url, storages) for url in databases))

    @property
    def directories(self) -> dict[str, Path]:
        """The directories that are written to, by their description."""
        named = [("storage", path) for path in self.storages] + [("lake", path) for path in self.lakes]
        named += [("database", store.directory) for store in self.stores if store.directory]
        return {f"{kind} {path}": path for kind, path in named}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for store in self.stores:
            store.close()


_KINDS = ("Topic", "Database", "Storage", "Lake")
