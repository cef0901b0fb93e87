"""The results of `verify` and `gaps` as data: the files, the messages and each table of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from ticklake.completeness.judging import Coverage, Verdict, overall
from ticklake.coordination import Batch, Gap
from ticklake.insights import GroupReport
from ticklake.lake.verify import Deep
from ticklake.lives import Life, RunState
from ticklake.ticks import Stretch, TickRange

TICKS = "ticks"


@dataclass(frozen=True)
class FilesVerdict:
    """The batch files of a run. The names of `misfits` do not fit the sampling interval, or have ticks after the end.

    `beyond` are the files with ticks after the end. `assumed`: the end is not recorded but given by the user.
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
    """Folders and links with batch files that the storage passes over."""
    state: RunState = RunState.RUNNING
    """The recorded state of the run: running, ended or abandoned."""
    abandoned_by: str = ""
    """Why the run was abandoned: command, silence or restart."""
    never_written: list[TickRange] = field(default_factory=list)
    """Ticks of an abandoned run that no file ever had. No table has to have them."""
    format: str = ""
    """The format of the first file: TickLake, an era of the original, or empty if it is not known."""
    stretches: list[Stretch] = field(default_factory=list)
    """How often the ticks of the files were sampled, if that differs from the sampling interval of the run."""

    @property
    def life(self) -> Life:
        """The life of the run; an assumed end counts as one."""
        return Life(RunState.ENDED if self.assumed else self.state, self.last_tick)


@dataclass(frozen=True)
class MessagesVerdict:
    """The batch topic and its groups. `unannounced` files have no message; `vanished` files have one but do not exist.

    `beyond` are announced files with ticks after the end of the run. `removed` counts files whose messages retention
    has removed. `damaged` says what is wrong with the database; then the other fields are empty.
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
    """The verdict on a table. If rows were counted, `duplicates` are the keys of duplicated rows.

    `gaps`, `failed` and `frontier` come from the coordinator of the table, if there is one.
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
    """Why the table could not be read."""
    unit: str = TICKS
    """What the numbers of the table count, for messages."""
    disagreements: list[str] = field(default_factory=list)
    """Differences between the event queue and the table."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Damaged files of the table and its log, if a deep check could not compare its rows."""

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
    """Tables without a verdict, because their key does not begin with a number."""
    unindexed: bool = False
    """Whether the run has batch files but the lake has no table of ticks."""
    uncompared: list[str] = field(default_factory=list)
    """Tables whose rows a deep check could not compare with the batch files. Only their files were checked."""
    metadata: str | None = None
    """What is wrong with the table `metadata`; None if it was not checked."""
    copies: list[list[str]] = field(default_factory=list)
    """Tables with the same id, because they are copies of each other."""

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
        """Combines the verdicts. `whole`: all tables were requested. `deeply`: rows were to be compared."""
        # A table of events has no ticks, so it does not make a run indexed.
        unindexed = whole and storage.files > 0 and not any(table.unit == TICKS for table in tables)
        damaged = messages is not None and bool(messages.damaged)
        verdicts = [table.verdict for table in tables]
        verdicts += [Verdict.INCOMPLETE] if unindexed or damaged or metadata or storage.passed_over else []
        verdicts += [Verdict.COMPLETE] if metadata == "" and not whole else []
        # A run that was abandoned before its first tick lacks nothing.
        verdicts += [Verdict.COMPLETE] if whole and storage.life.is_empty else []
        uncompared = [table.table for table in tables if deeply and table.deep is None]
        verdict = overall(storage.ended, verdicts)
        return cls(run_id, verdict, storage, tables, messages, unjudged, unindexed, uncompared, metadata, list(copies))

    @property
    def flawless(self) -> bool:
        """Whether nothing is missing or wrong so far, even if the end of the run is not known."""
        damaged = self.messages is not None and self.messages.damaged
        nothing = self.unindexed or not (self.tables or self.metadata is not None or self.storage.life.is_empty)
        wrong = nothing or damaged or self.metadata or self.storage.passed_over
        return not wrong and all(table.coverage.flawless for table in self.tables)

    @property
    def doubts(self) -> list[str]:
        """Findings that do not change the verdict, such as files after the end or tables that were not compared."""
        beyond = f"after the end of the run, tick {self.storage.last_tick}"
        vanished = self.messages.vanished if self.messages else []
        announced = self.messages.beyond if self.messages else []
        found = {
            f"for files that do not exist ({first_of(vanished)})": len(vanished),
            f"for ticks {beyond} ({first_of(announced)})": len(announced),
        }
        texts = [f"{_counted(number, 'message')} {what}" for what, number in found.items() if number]
        files, tables = self.storage.beyond, self.uncompared
        if files:
            texts.append(f"{_counted(len(files), 'file')} with ticks {beyond} ({first_of(files)})")
        if tables:
            were = "was" if len(tables) == 1 else "were"
            texts.append(f"{_counted(len(tables), 'table')} {were} not compared with the files ({', '.join(tables)})")
        texts += [f"{' and '.join(names)} are copies with one table id: move all but one away" for names in self.copies]
        return texts


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def first_of(keys: Sequence[str]) -> str:
    """Returns the first key, followed by an ellipsis if there are more."""
    return (keys[0] + (", …" if len(keys) > 1 else "")) if keys else ""
