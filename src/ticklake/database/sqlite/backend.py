"""SQLite: a directory with one file per run, in WAL mode."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ticklake.database.errors import (
    UNREADABLE,
    DatabaseClosed,
    DatabaseInUseAtFork,
    RunNotInDatabase,
)
from ticklake.database.fork import Fork, Inheritable
from ticklake.database.names import schema_name
from ticklake.database.sqlite.removal import remove_database
from ticklake.database.sqlite.run_file import SqliteSchema, wall_clock_ms
from ticklake.database.sqlite.stamps import Listing, stamps_of
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_OWN = "ticklake.database"
SUFFIX = ".sqlite"


class SqliteBackend(Inheritable):
    """The files of a directory."""

    def __init__(self, directory: Path, clock: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__()
        self._directory = directory.absolute()
        self._clock = clock
        self._lock = threading.Lock()
        self._schemas: dict[str, SqliteSchema] = {}
        self._skipped: set[Path] = set()
        self._listing = Listing(_run_ids)
        self.damaged: list[str] = []
        self._closed = False

    def schema(self, run_id: str, *, create: bool = True) -> SqliteSchema:
        path = self._path(run_id)
        self.check_process(self._directory)
        with self._lock:
            if self._closed:
                raise DatabaseClosed(database=self._directory)
            if run_id not in self._schemas:
                if not create and not path.exists():
                    raise RunNotInDatabase(run_id=run_id, database=f"sqlite:///{self._directory}")
                self._schemas[run_id] = SqliteSchema(path, run_id, self._clock)
            return self._schemas[run_id]

    def runs(self) -> list[str]:
        """Lists the runs. Skips, with one warning, unreadable files and files that do not match their run (copies)."""
        # glob would hide an error of the directory
        files = self._directory.iterdir() if self._directory.exists() else ()
        found: list[str] = []
        damaged: list[str] = []
        for path in self._listing.among(file for file in files if file.match(f"SIM_*{SUFFIX}")):
            try:
                ids = self._listing.ids(path)
            except UNREADABLE as error:
                if os.path.lexists(path):  # it was not removed meanwhile
                    self._skip(path, str(error))
                    damaged.append(str(error))
                continue
            found += [run_id for run_id in ids if schema_name(run_id) == path.stem]
            if ids and (name := schema_name(ids[0])) != path.stem:
                self._skip(path, f"{path} contains run {ids[0]!r}, whose file is named {name}{SUFFIX}")
        self.damaged = damaged
        return sorted(found)

    def stamps(self, run_ids: Sequence[str]) -> dict[str, object]:
        return stamps_of({run_id: self._path(run_id) for run_id in run_ids})

    def drop(self, run_id: str) -> bool:
        """Removes the file of a run and what SQLite keeps beside it."""
        with self._lock:
            schema = self._schemas.pop(run_id, None)
        if schema is not None:
            schema.close()
        return remove_database(self._path(run_id), run_id, _run_ids)

    def branch(self) -> SqliteBackend:
        return SqliteBackend(self._directory, self._clock)

    def _path(self, run_id: str) -> Path:
        return self._directory / (schema_name(run_id) + SUFFIX)

    def _skip(self, path: Path, reason: str) -> None:
        if path not in self._skipped:
            _log.warning("%s", reason)
        self._skipped.add(path)

    def close(self) -> None:
        if self.inherited:
            return
        with self._lock:
            self._closed = True
        with ExitStack() as schemas:  # closes all, even if one close is interrupted
            for schema in self._schemas.values():
                schemas.callback(schema.close)

    def _disown(self, fork: Fork) -> None: ...


def _run_ids(path: Path) -> list[str]:
    """Returns the run of a file; none if the file is foreign or still being created."""
    schema = SqliteSchema(path, "")
    try:
        with schema.reading() as view:
            return [row[0] for row in view.sql(_OWN).read_run()]
    except (*UNREADABLE, DatabaseInUseAtFork):
        raise
    except TickLakeError:
        return []
    finally:
        schema.close()
