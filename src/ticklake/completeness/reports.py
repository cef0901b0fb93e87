"""What `verify` and `gaps` say of a run: its files, its messages and each of its tables, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from ticklake.completeness.verdict import Coverage, Verdict, overall
from ticklake.coordination import Batch, Gap
from ticklake.insights import GroupReport
from ticklake.lake.verify import Deep
from ticklake.ticks import TickRange

TICKS = "ticks"


@dataclass(frozen=True)
class FilesVerdict:
    """The batch files of a run. `misfits` have names that do not fit the sampling interval or lie behind the end.

    `beyond` are those that go on behind the end; `assumed` tells that the end is only what the user says it is.
    """

    files: int
    ended: bool
    last_tick: int | None
    silent_since: datetime | None
    overlapping: int
    lost: list[TickRange]
    misfits: list[str]
    beyond: list[str] = field(default_factory=list)
    assumed: bool = False
    passed_over: list[str] = field(default_factory=list)
    """Folders and links that hold batch files and that storage does not look into."""


@dataclass(frozen=True)
class MessagesVerdict:
    """The batch topic and its groups: what it never heard of, and what it announced that is not there.

    `beyond` are the files it announced that go on behind the end of the run; `removed` counts files whose messages
    retention has removed. `damaged` is what is wrong with the database itself: then nothing is known of the rest.
    """

    messages: int
    unannounced: list[str]
    vanished: list[str]
    undecodable: int
    groups: list[GroupReport]
    damaged: str = ""
    beyond: list[str] = field(default_factory=list)
    removed: int = 0


@dataclass(frozen=True)
class TableVerdict:
    """A table: what it has of what is expected, and, if it was counted, its rows and the keys that are there twice.

    `gaps`, `failed` and `frontier` are the coordinator's, if one is at work on this table.
    """

    table: str
    step: int
    coverage: Coverage
    rows: int | None = None
    duplicated: int = 0
    duplicates: list[dict[str, int]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    failed: list[Batch] = field(default_factory=list)
    frontier: int | None = None
    deep: Deep | None = None
    unreadable: str = ""
    """Why it could not be read, so that nothing is known of it."""
    unit: str = TICKS
    """What it counts by, as people call it."""
    disagreements: list[str] = field(default_factory=list)
    """What an event queue says otherwise."""
    damaged: dict[str, str] = field(default_factory=dict)
    """If a deep look could not compare its rows: its files, also of its log, that are not as they were written."""

    @property
    def verdict(self) -> Verdict:
        return self.coverage.verdict


@dataclass(frozen=True)
class RunVerdict:
    run_id: str
    verdict: Verdict
    storage: FilesVerdict
    tables: list[TableVerdict]
    messages: MessagesVerdict | None = None
    unjudged: list[str] = field(default_factory=list)
    """Tables that count by nothing, so that nobody can say what they lack."""
    unindexed: bool = False
    """Whether the run has batch files, and the lake has no table of ticks."""
    uncompared: list[str] = field(default_factory=list)
    """Tables that a deep look could not compare with the batch files row by row: only their files were checked."""
    metadata: str | None = None
    """What is wrong with the table `metadata`; None if it was not looked at."""
    copies: list[list[str]] = field(default_factory=list)
    """Tables that have one id, for they are copies of each other."""

    @classmethod
    def of(
        cls,
        run_id: str,
        storage: FilesVerdict,
        tables: list[TableVerdict],
        messages: MessagesVerdict | None,
        unjudged: list[str],
        metadata: str | None = None,
        copies: Sequence[list[str]] = (),
        *,
        whole: bool,
        deeply: bool,
    ) -> Self:
        """Joins the verdicts. `whole` tells that all tables were asked for; `deeply`, that rows were to be compared."""
        # Events tell nothing of ticks: a run is not in the lake because its events are.
        unindexed = whole and storage.files > 0 and not any(table.unit == TICKS for table in tables)
        damaged = messages is not None and bool(messages.damaged)
        verdicts = [table.verdict for table in tables]
        verdicts += [Verdict.INCOMPLETE] if unindexed or damaged or metadata or storage.passed_over else []
        verdicts += [Verdict.COMPLETE] if metadata == "" and not whole else []
        uncompared = [table.table for table in tables if deeply and table.deep is None]
        verdict = overall(storage.ended, verdicts)
        return cls(run_id, verdict, storage, tables, messages, unjudged, unindexed, uncompared, metadata, list(copies))

    @property
    def flawless(self) -> bool:
        """Whether nothing is missing or wrong so far, whether or not the run is known to have ended."""
        damaged = self.messages is not None and self.messages.damaged
        nothing = self.unindexed or not (self.tables or self.metadata is not None)
        wrong = nothing or damaged or self.metadata or self.storage.passed_over
        return not wrong and all(table.coverage.flawless for table in self.tables)

    @property
    def doubts(self) -> list[str]:
        """What does not fit the end of the run or its files, or was not compared, also if no tick is missing."""
        beyond = f"behind the end of the run, tick {self.storage.last_tick}"
        vanished = self.messages.vanished if self.messages else []
        announced = self.messages.beyond if self.messages else []
        found = {
            f"point to files that are not there ({few(vanished)})": len(vanished),
            f"tell of ticks {beyond} ({few(announced)})": len(announced),
        }
        said = [f"{_counted(number, 'message')} {what}" for what, number in found.items() if number]
        files, tables = self.storage.beyond, self.uncompared
        if files:
            said.append(f"{_counted(len(files), 'file')} go on {beyond} ({few(files)})")
        if tables:
            were = "was" if len(tables) == 1 else "were"
            said.append(f"{_counted(len(tables), 'table')} {were} not compared with the files ({', '.join(tables)})")
        said += [f"{' and '.join(names)} are copies with one table id: move all but one away" for names in self.copies]
        return said


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def few(keys: Sequence[str]) -> str:
    """The first of these, and that there are more."""
    return (keys[0] + (", …" if len(keys) > 1 else "")) if keys else ""
