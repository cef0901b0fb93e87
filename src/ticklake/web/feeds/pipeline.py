"""Lays out the pipeline as a drawing: stages in columns, pipes between them. Pure functions without I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ticklake.insights import (
    Announcement,
    BacklogReport,
    CoordinatedReport,
    GapsReport,
    Glance,
    GroupReport,
    TableReport,
)
from ticklake.web.rendering import age, number, short

NAME_LENGTH = 19
UNKNOWN = "\N{EN DASH}"
Figure = TypeVar("Figure", int, float)


@dataclass(frozen=True)
class Stage:
    """A box: kind, name, up to two lines of figures, state, the page that a click opens, and what it `reads`."""

    kind: str
    name: str
    figures: tuple[str, ...]
    state: str
    page: str
    flows: bool = False
    reads: str = ""

    @property
    def short_name(self) -> str:
        return self.name if len(self.name) <= NAME_LENGTH else f"{self.name[: NAME_LENGTH - 1]}…"


@dataclass(frozen=True)
class Producer:
    """The simulation of this node. Of other producers only the batch files are known."""

    name: str
    state: str
    tick: int | None


@dataclass(frozen=True)
class Flow:
    """A run at one moment. `ticks_per_second` is computed from the batch files."""

    glance: Glance
    announced: Announcement | None
    rates: dict[str, float]
    ticks_per_second: float | None
    producer: Producer | None
    errors: tuple[str, ...] = ()
    others: BacklogReport | None = None
    """What all other runs of the databases have left to do."""

    @property
    def rows_per_second(self) -> float | None:
        return sum(self.rates.values()) if self.rates else None

    @property
    def lag_messages(self) -> int | None:
        return self._known(max((group.lag for group in self.glance.groups), default=None))

    @property
    def lag_seconds(self) -> float | None:
        lags = [one.oldest_seconds or 0.0 for one in self.glance.groups]
        lags += [one.oldest_seconds or 0.0 for one in self.glance.coordinated]
        return self._known(max(lags, default=None))

    @property
    def lag_files(self) -> int | None:
        """The files that the coordinated table that is furthest behind still needs; None without such a table."""
        return self._known(max((one.files for one in self.glance.coordinated), default=None))

    @property
    def lag_ticks(self) -> int | None:
        behind = [self.behind(table) for table in self.glance.tables if table.ticks is not None]
        behind += [one.ticks for one in self.glance.coordinated]
        worst = max((one for one in behind if one is not None), default=None)
        return None if None in behind and not worst else worst

    def _known(self, worst: Figure | None) -> Figure | None:
        """Returns the worst figure; None if it is 0 and a place that may have a worse one could not be read."""
        return None if self.glance.errors and not worst else worst

    @property
    def newest_tick(self) -> int | None:
        """The newest tick that is known to be in a batch file. A table may have a newer tick than the last messages."""
        if self.announced is None:
            return None
        return max([self.announced.ticks.end, *(table.ticks.end for table in self.glance.tables if table.ticks)])

    def behind(self, table: TableReport) -> int | None:
        """Returns the ticks between the newest tick of a table and the newest announced tick.

        Only the last messages are read. While messages are waiting, they may announce more than the table has.
        """
        if self.announced is None or table.ticks is None:
            return None
        behind = max(0, self.announced.ticks.end - table.ticks.end)
        waits = any(group.lag for group in writers_of(table, self.glance.groups))
        return None if waits and not behind else behind


@dataclass(frozen=True)
class Box:
    stage: Stage
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Pipe:
    path: str
    flows: bool


@dataclass(frozen=True)
class Drawing:
    width: int
    height: int
    boxes: list[Box]
    pipes: list[Pipe]


def writers_of(table: TableReport, groups: Sequence[GroupReport]) -> Sequence[GroupReport]:
    """Returns the groups that write a table, judged by their names; all groups if no name matches."""
    return [group for group in groups if _names_match(group.group, table.name)] or groups


def stages(flow: Flow) -> list[list[Stage]]:
    """Returns the columns from left to right: simulation, storage, topics, indexers, tables."""
    topics = sorted(
        {group.topic for group in flow.glance.groups} | ({flow.announced.topic} if flow.announced else set())
    )
    moving = flow.announced.topic if flow.announced and flow.ticks_per_second else None
    return [
        [_simulation(flow)],
        [_storage(flow)],
        [_topic(topic, flow.glance.groups, topic == moving) for topic in topics]
        or [_nothing("topic", "/topics", flow)],
        [_indexer(group, flow.glance.gaps, flow.rates) for group in flow.glance.groups]
        + [_coordinated(one, flow.glance.gaps, flow.rates) for one in flow.glance.coordinated]
        or [_nothing("indexers", "/topics", flow)],
        [_table(table, flow) for table in _in_order(flow)] or [_nothing("tables", "/tables", flow)],
    ]


def _simulation(flow: Flow) -> Stage:
    producer = flow.producer
    nothing = f"{UNKNOWN} ticks/s" if flow.glance.errors else "no new ticks"
    rate = f"{short(flow.ticks_per_second)} ticks/s" if flow.ticks_per_second else nothing
    if producer is None:
        return Stage("simulation", "producer", (rate, "another process"), "idle", "/", bool(flow.ticks_per_second))
    state = {"running": "ok", "error": "error"}.get(producer.state, "idle")
    figures = (f"tick {number(producer.tick)}", f"{producer.state}, {rate}")
    return Stage("simulation", producer.name, figures, state, "/system", producer.state == "running")


def _storage(flow: Flow) -> Stage:
    found = flow.announced
    if found is None:
        figure = f"up to tick {UNKNOWN}" if flow.glance.errors else "nothing announced yet"
        return Stage("storage", "batch files", (figure,), "idle", "/completeness")
    figures = (f"up to tick {number(flow.newest_tick)}", f"newest {age(found.seconds)} ago")
    return Stage("storage", "batch files", figures, "ok", "/completeness", bool(flow.ticks_per_second))


def _topic(topic: str, groups: Sequence[GroupReport], moving: bool) -> Stage:
    own = [group for group in groups if group.topic == topic]
    if not own:
        return Stage("topic", topic, ("no groups",), "idle", "/topics", moving)
    lag, dead = max(group.lag for group in own), sum(group.dead_letters for group in own)
    letters = f"{number(dead)} dead letters" if dead else "no dead letters"
    return Stage("topic", topic, (f"{number(lag)} waiting", letters), "error" if dead else "ok", "/topics", moving)


def _indexer(group: GroupReport, gaps: Sequence[GapsReport], rates: dict[str, float]) -> Stage:
    oldest = f", {age(group.oldest_seconds)} old" if group.oldest_seconds is not None and group.lag else ""
    lag = f"{number(group.lag)} behind{oldest}" if group.lag else "caught up"
    lost = sum(gap.permanent for gap in gaps)
    state = "error" if group.dead_letters or lost else "warn" if group.lag > 100 else "ok"
    flows = any(rates.get(table, 0) > 0 for table in rates if _names_match(group.group, table))
    figures = (lag, f"{number(group.claimed)} claimed")
    return Stage("indexer", group.group, figures, state, "/topics", flows, reads=group.topic)


def _coordinated(one: CoordinatedReport, gaps: Sequence[GapsReport], rates: dict[str, float]) -> Stage:
    oldest = f", {age(one.oldest_seconds)} old" if one.oldest_seconds is not None and one.files else ""
    lag = f"{number(one.files)} file{'' if one.files == 1 else 's'} left{oldest}" if one.files else "caught up"
    lost = sum(gap.permanent for gap in gaps if gap.indexer_class == one.indexer_class)
    state = "error" if lost else "warn" if one.files > 100 else "ok"
    figures = (lag, f"{number(one.in_work)} claimed")
    return Stage("indexer", one.indexer_class, figures, state, "/completeness", rates.get(one.table, 0) > 0)


def _table(table: TableReport, flow: Flow) -> Stage:
    if table.error:
        return Stage("table", table.name, ("is gone" if table.gone else "cannot be read",), "error", "/tables")
    if table.rows == 0:
        return Stage("table", table.name, ("no rows yet",), "idle", "/tables")
    behind = flow.behind(table)
    rate = flow.rates.get(table.name, 0)
    figures = (f"{short(table.rows)} rows", _progress(table, behind, rate))
    return Stage("table", table.name, figures, "warn" if table.missing else "ok", "/tables", rate > 0)


def _progress(table: TableReport, behind: int | None, rate: float) -> str:
    """Returns the most important fact. A table is up to date only if nothing is missing and all ticks are known."""
    if table.missing:
        return f"{number(table.missing)} gap{'' if table.missing == 1 else 's'}"
    if rate:
        return f"{short(rate)} rows/s"
    if behind:
        return f"{number(behind)} ticks behind"
    if behind == 0 and table.missing == 0:
        return "up to date"
    return f"up to tick {number(table.ticks.end)}" if table.ticks else ""


def _in_order(flow: Flow) -> list[TableReport]:
    """Orders tables like the indexers that write them, so that pipes do not cross."""
    groups = [group.group for group in flow.glance.groups]

    names = [table.name for table in flow.glance.tables]
    unmatched = (at for at, group in enumerate(groups) if not any(_names_match(group, name) for name in names))
    unmatched_at = next(unmatched, len(groups))

    def place(table: TableReport) -> int:
        return next((at for at, group in enumerate(groups) if _names_match(group, table.name)), unmatched_at)

    return sorted(flow.glance.tables, key=place)


def _nothing(kind: str, page: str, flow: Flow) -> Stage:
    return Stage(kind, UNKNOWN if flow.glance.errors else "none yet", (), "idle", page)


def _names_match(group: str, table: str) -> bool:
    """Compares the first words: environment-indexer and EnvironmentIndexer write environment_data."""
    first = group.replace("_", "-").lower().removesuffix("indexer").split("-")[0]
    return table.lower().split("_")[0] == first


def drawn_wide(columns: Sequence[Sequence[Stage]], width: int = 198, height: int = 92, gap: int = 44) -> Drawing:
    """Draws the columns from left to right."""
    tall = max(len(column) for column in columns)
    total = tall * (height + 18) - 18
    placed = [
        [
            Box(
                one,
                at * (width + gap) + 2,
                2 + (total - len(column) * (height + 18) + 18) // 2 + row * (height + 18),
                width,
                height,
            )
            for row, one in enumerate(column)
        ]
        for at, column in enumerate(columns)
    ]
    pipes = [
        _curve(left, right) for before, after in itertools.pairwise(placed) for left, right in _pairs(before, after)
    ]
    return Drawing(
        len(columns) * (width + gap) - gap + 4, total + 4, [box for column in placed for box in column], pipes
    )


def drawn_tall(columns: Sequence[Sequence[Stage]], width: int = 320, height: int = 76) -> Drawing:
    """Draws the stages one below the other, for narrow screens."""
    boxes: list[Box] = []
    pipes: list[Pipe] = []
    y = 2
    for column in columns:
        if boxes:
            pipes.append(Pipe(f"M{width // 2 + 2} {y - 26}V{y}", any(stage.flows for stage in column)))
        for stage in column:
            boxes.append(Box(stage, 2, y, width, height))
            y += height + 8
        y += 18
    return Drawing(width + 4, y - 22, boxes, pipes)


def _pairs(before: Sequence[Box], after: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    """Yields connected boxes: those whose names match, and all others with each other."""
    matched = [(left, right) for left in before for right in after if _connected(left.stage, right.stage)]
    feeding, fed = {id(left) for left, _ in matched}, {id(right) for _, right in matched}
    yield from matched
    yield from ((one, other) for one in before for other in after if id(one) not in feeding and id(other) not in fed)


def _connected(left: Stage, right: Stage) -> bool:
    if left.kind == "topic":
        return right.reads == left.name
    return left.kind == "indexer" and right.kind == "table" and _names_match(left.name, right.name)


def _curve(left: Box, right: Box) -> Pipe:
    x1, y1 = left.x + left.width, left.y + left.height // 2
    x2, y2 = right.x, right.y + right.height // 2
    middle = (x1 + x2) // 2
    return Pipe(f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}", right.stage.flows)
