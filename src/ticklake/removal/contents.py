"""What belongs to a run, in all places: this is what a deletion removes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ticklake.database.names import schema_name
from ticklake.insights import TableReport, tables_of
from ticklake.lake.errors import LakeNotFound
from ticklake.lake.read import Catalog
from ticklake.lives import life_of
from ticklake.logs import redacted
from ticklake.removal.errors import RunIsLink
from ticklake.storage import Storage, check_run_id, parse_batch_name
from ticklake.storage.errors import BadFile, RunNotFound
from ticklake.topics import Database


@dataclass(frozen=True)
class RunPlaces:
    """A run and all places that may have a part of it."""

    run_id: str
    storage: Storage
    lake: Path | None = None
    databases: Sequence[Database] = ()

    @property
    def tables(self) -> Path | None:
        """The folder of the tables."""
        return None if self.lake is None else self.lake / check_run_id(self.run_id)

    @property
    def leaving_tables(self) -> Path | None:
        """The folder that the tables are moved to, in one step, before they are removed."""
        return None if self.lake is None else self.lake / f".{check_run_id(self.run_id)}.leaving"


@dataclass(frozen=True)
class RunContents:
    """What a deletion removes. `other_files` are all files of the run's folder except batch files.

    `databases` are the databases that have the run, with the name of its schema or file there. `deleting`: a deletion
    was begun and not finished.
    """

    run_id: str
    state: str
    deleting: bool
    files: int
    bytes: int
    other_files: int
    tables: list[TableReport] = field(default_factory=list)
    databases: list[str] = field(default_factory=list)


def contents_of(places: RunPlaces) -> RunContents:
    """Returns what the places have of the run. Raises `RunNotFound` if that is nothing, `RunIsLink` for a link."""
    run_id, storage = places.run_id, places.storage
    for place in (places.tables, places.leaving_tables):
        if place is not None and place.is_symlink():
            raise RunIsLink(run_id=run_id, path=place)
    files = storage.everything(run_id)
    batches = [size for key, size in files if parse_batch_name(key.rpartition("/")[2])]
    tables: list[TableReport] = []
    with suppress(LakeNotFound):
        tables = tables_of(Catalog(places.lake), run_id, None) if places.lake is not None else []
    deleting = storage.leaving_note(run_id) is not None
    found = RunContents(
        run_id=run_id,
        state=state_of(storage, run_id),
        deleting=deleting,
        files=len(batches),
        bytes=sum(size for _, size in files),
        other_files=len(files) - len(batches),
        tables=tables,
        databases=[f"{redacted(one.url)}: {schema_name(run_id)}" for one in places.databases if has_run(one, run_id)],
    )
    if not deleting:
        check_there(places, found)
    return found


def check_there(places: RunPlaces, found: RunContents) -> None:
    """Raises `RunNotFound` if no place has anything of the run, except for the mark of a deletion."""
    storage, run_id = places.storage, places.run_id
    left = [place for place in (places.tables, places.leaving_tables) if place is not None and place.exists()]
    if not (found.files or found.other_files or left or found.databases or storage.reachable(run_id)):
        newest = ", ".join(storage.runs()[-5:]) or "none"
        raise RunNotFound(run_id=run_id, places=storage.url, found=newest)


def state_of(storage: Storage, run_id: str) -> str:
    """Returns the state of a run; `unknown` if its record cannot be read."""
    try:
        return str(life_of(storage.read_completion(run_id)).state)
    except BadFile:
        return "unknown"


def has_run(database: Database, run_id: str) -> bool:
    return run_id in database.stamps([run_id])
