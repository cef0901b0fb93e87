"""One frame of `ticklake top`: the state of a run as text of 80 columns or as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from ticklake.cli.messages.groups import age_text
from ticklake.cli.terminal.output import cell_text, size_text, versioned
from ticklake.text import utc_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from ticklake.insights import Backlog, BacklogReport, Glance
    from ticklake.node.client import ServiceReport

ONLY_BEGUN = "Files are counted only in runs that an indexer has begun."
UNKNOWN = "\N{EN DASH}"
OTHERS = 5
"""The picture has at most this many other runs; the JSON object has more."""
STATE_COLORS = {"running": "green", "paused": "yellow", "error": "red"}


@dataclass(frozen=True)
class Frame:
    """The state of a run at one moment.

    `services` is None if no node answers. `problem` is why the state could not be read, `refusal` why the node refused
    to list its services. `run_id` is the requested run. `others`: what all other runs of the databases have left to do.
    """

    at: float
    glance: Glance | None
    rates: dict[str, float] = field(default_factory=dict)
    services: list[ServiceReport] | None = None
    problem: str | None = None
    refusal: str | None = None
    run_id: str | None = None
    others: BacklogReport | None = None

    @property
    def unread(self) -> list[str]:
        """Why a part of the state could not be read."""
        places = self.glance.errors if self.glance else []
        tables = [table.error for table in (self.glance.tables if self.glance else []) if table.error]
        return [text for text in (self.problem, *places, *tables) if text]

    @property
    def errors(self) -> list[str]:
        services = [f"{one.name}: {one.error}" for one in self.services or [] if one.error]
        held_back = self.glance.held_back if self.glance else []
        refusal = [self.refusal] if self.refusal else []
        return [*self.unread, *refusal, *services, *held_back]


def as_json(frame: Frame) -> str:
    seen = frame.glance
    tables = (
        [{**asdict(table), "rows_per_second": frame.rates.get(table.name)} for table in seen.tables] if seen else []
    )
    fields: dict[str, Any] = {
        "at": utc_text(frame.at),
        "run_id": seen.run_id if seen else frame.run_id,
        "services": None if frame.services is None else [one._asdict() for one in frame.services],
        "groups": [asdict(group) for group in seen.groups] if seen else [],
        "tables": tables,
        "coordinated": [asdict(one) for one in seen.coordinated] if seen else [],
        "gaps": [asdict(gap) for gap in seen.gaps] if seen else [],
        "dead_letters": seen.dead_letters if seen else None,
        "errors": frame.errors,
        "other_runs": None if frame.others is None else _others_as_json(frame.others),
    }
    return json.dumps(versioned(fields))


def _others_as_json(others: BacklogReport) -> dict[str, Any]:
    from ticklake.insights import WORST

    return {
        "runs": len(others.runs),
        **_figures(others),
        "unreadable": others.unreadable[:WORST],
        "runs_unreadable": len(others.unreadable),
        "runs_unchecked": others.unchecked,
        "worst": [{"run_id": one.run_id, **_figures(one)} for one in others.runs[:WORST]],
    }


def _figures(found: Backlog | BacklogReport) -> dict[str, Any]:
    return {
        "messages": found.messages,
        "unread_messages": found.unread,
        "files": found.files,
        "ticks": found.ticks,
        "oldest_seconds": found.oldest_seconds,
        "dead_letters": found.dead_letters,
        "gaps_pending": found.gaps_pending,
        "gaps_permanent": found.gaps_permanent,
    }


def picture(frame: Frame) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    run = frame.glance.run_id if frame.glance else frame.run_id or UNKNOWN
    moment = f"{datetime.fromtimestamp(frame.at, UTC):%H:%M:%S} UTC"
    title = Text.assemble(("ticklake top", "bold"), f"   {moment}   run {run}", no_wrap=True, overflow="ellipsis")
    parts: list[RenderableType] = [title, Text()]
    tables = (_services(frame), _groups(frame), _coordinated(frame), _tables(frame), _gaps(frame), _others(frame))
    parts += [table for table in tables if table is not None]
    parts.append(_summary(frame))
    if unknown := _unknown(frame):
        parts.append(Text(cell_text(unknown), style="yellow", overflow="ellipsis", no_wrap=True))
    parts += [Text(cell_text(f"  {text}"), style="red", overflow="ellipsis", no_wrap=True) for text in frame.errors]
    return Group(*parts)


def _summary(frame: Frame) -> RenderableType:
    from rich.text import Text

    counts = {
        "dead letters": frame.glance.dead_letters if frame.glance else None,
        "gaps": frame.glance.missing if frame.glance else None,
        "errors": len(frame.errors),
    }
    texts = [(f"{cell_text(count) or UNKNOWN} {name}", "red" if count else "dim") for name, count in counts.items()]
    node = [] if frame.services is not None or frame.refusal else [("   no node answers", "dim")]
    return Text("   ").join(Text(*text) for text in texts) + Text.assemble(*node)


def _services(frame: Frame) -> Table | None:
    rows = [
        (_name(one.name), _colored(one.state, STATE_COLORS.get(one.state, "dim")), _name(cell_text(one.error)))
        for one in frame.services or []
    ]
    return _table(("service", "state", "error"), rows, names=("service", "error"))


def _groups(frame: Frame) -> Table | None:
    rows = [
        (_name(one.group), _name(one.topic), cell_text(one.lag), _age(one.oldest_seconds), cell_text(one.claimed),
         _alarm(one.dead_letters))
        for one in (frame.glance.groups if frame.glance else [])
    ]  # fmt: skip
    return _table(("group", "topic", "lag", "oldest", "claimed", "dead"), rows, names=("group", "topic"))


def _coordinated(frame: Frame) -> Table | None:
    rows = [
        (_name(one.indexer_class), _name(one.table), cell_text(one.files), cell_text(one.ticks),
         _age(one.oldest_seconds), cell_text(one.in_work))
        for one in (frame.glance.coordinated if frame.glance else [])
    ]  # fmt: skip
    columns = ("coordinated", "table", "files left", "ticks left", "oldest", "in work")
    return _table(columns, rows, names=("coordinated", "table"))


def _tables(frame: Frame) -> Table | None:
    rows = [
        (_name(one.name), cell_text(one.rows), _rate(frame.rates.get(one.name)), cell_text(one.ticks),
         _alarm(one.missing), size_text(one.bytes))
        for one in (frame.glance.tables if frame.glance else [])
    ]  # fmt: skip
    return _table(("table", "rows", "rows/s", "ticks", "gaps", "size"), rows, names=("table",))


def _gaps(frame: Frame) -> Table | None:
    rows = [
        (_name(one.indexer_class), cell_text(one.pending), _alarm(one.permanent), _age(one.oldest_seconds))
        for one in (frame.glance.gaps if frame.glance else [])
    ]
    return _table(("gaps of", "pending", "permanent", "oldest"), rows, names=("gaps of",))


def _others(frame: Frame) -> Table | None:
    """Lists the worst other runs with work, and a line for all of them."""
    if frame.others is None or not frame.others.runs:
        return None
    found = frame.others
    rows = [_other(one.run_id, one) for one in found.runs[:OTHERS]]
    if len(found.runs) > 1:
        rows.append(_other(f"all {len(found.runs):,} runs", found))
    return _table(("other runs", "lag", "unread", "files", "oldest", "dead", "gaps"), rows, names=("other runs",))


def _other(name: str, found: Backlog | BacklogReport) -> tuple[Any, ...]:
    return (_name(name), cell_text(found.messages), cell_text(found.unread), cell_text(found.files),
            _age(found.oldest_seconds), _alarm(found.dead_letters),
            _alarm(found.gaps_pending + found.gaps_permanent))  # fmt: skip


def _unknown(frame: Frame) -> str:
    """Says which runs are in no figure."""
    if frame.others is None:
        return ""
    unreadable, unchecked = frame.others.unreadable, frame.others.unchecked
    begun = frame.others.files or (frame.glance and frame.glance.coordinated)
    texts = [ONLY_BEGUN] if begun else []
    texts += [f"{unchecked:,} runs are not read yet."] if unchecked else []
    texts += [f"{len(unreadable):,} runs cannot be read, for example: {unreadable[0]}"] if unreadable else []
    return " ".join(texts)


def _table(columns: tuple[str, ...], rows: list[Any], names: tuple[str, ...]) -> Table | None:
    """In a narrow terminal, names are cut and numbers stay whole."""
    from rich.table import Table

    if not rows:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        named = column in names
        justify: Literal["left", "right"] = "left" if named or column == "state" else "right"
        table.add_column(column, justify=justify, no_wrap=not named, min_width=6 if named else None)
    for row in rows:
        table.add_row(*row)
    table.add_row()
    return table


def _name(text: str) -> Text:
    from rich.text import Text

    return Text(cell_text(text), no_wrap=True, overflow="ellipsis")


def _colored(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"


def _age(seconds: float | None) -> str:
    return age_text(None if seconds is None else round(seconds * 1000)) or ""


def _alarm(count: int | None) -> Text:
    return _colored("" if count is None else f"{count:,}", "red" if count else "")
