"""The data sources of the pages: places and, if the pages are part of a node, that node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ticklake.config import NodeSettings
from ticklake.insights import BacklogReport, Backlogs, Places
from ticklake.lake.read import Catalog, Frames, Presence
from ticklake.node.node import Node
from ticklake.storage import Storage
from ticklake.topics import Database
from ticklake.web.feeds.sampling import Sampler

BACKLOG_SECONDS = 5.0
"""Runs are asked for changes at most this often, however many viewers and scrapes there are."""


@dataclass
class Site:
    """Each place is optional; the pages show what is available. A lake may be created later."""

    storage: Storage | None = None
    lake: Path | None = None
    databases: Sequence[Database] = ()
    node: Node | None = None
    settings: NodeSettings | None = None
    read_only: bool = False
    presence: Presence = field(default_factory=Presence, repr=False)
    opened: Sequence[Database] = ()
    """The databases that the pages have opened themselves and must close."""

    backlogs: Sampler[BacklogReport] = field(init=False, repr=False)
    """What every run of the databases still has to do, for all pages and metrics."""
    _frames: Frames | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        storages = [self.storage] if self.storage is not None else []
        self.backlogs = Sampler(Backlogs(lambda: self.databases, storages=storages).look, BACKLOG_SECONDS)

    @classmethod
    def of(cls, node: Node, read_only: bool = False) -> Site:
        """Returns the places of a node's configuration. Reuses the connections of the node."""
        found = node.settings.places()
        known = {one.url: one for one in node.databases}
        opened = [Database(url, min_idle=0) for url in found.databases if url not in known]
        return cls(
            Storage(found.storage) if found.storage else None,
            Path(found.lake) if found.lake else None,
            [*node.databases, *opened],
            node,
            node.settings,
            read_only,
            opened=opened,
        )

    def close(self) -> None:
        for database in self.opened:
            database.close()

    @property
    def catalog(self) -> Catalog | None:
        return Catalog(self.lake) if self.lake is not None and self.lake.is_dir() else None

    @property
    def places(self) -> Places:
        return Places(self.storage, self.catalog, self.databases, self.presence)

    @property
    def frames(self) -> Frames | None:
        """The shared reader of frames, which keeps tables open."""
        catalog = self.catalog
        if self._frames is None and catalog is not None:
            self._frames = Frames(catalog)
        return self._frames
