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

    from ticklake.insights import Glance
    from ticklake.node.client import ServiceReport

UNKNOWN = "\N{EN DASH}"
STATE_COLORS = {"running": "green", "paused": "yellow", "error": "red"}


@dataclass(frozen=True)
class Frame:
    """The state of a run at one moment.

    `services` is None if no node answers. `problem` is why the state could not be read, `refusal` why the node refused
    to list its services. `run_id` is the requested run.
    """

    at: float
    glance: Glance | None
    rates: dict[str, float] = field(default_factory=dict)
    services: list[ServiceReport] | None = None
    problem: str | None = None
    refusal: str | None = None
    run_id: str | None = None

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
        "gaps": [asdict(gap) for gap in seen.gaps] if seen else [],
        "dead_letters": seen.dead_letters if seen else None,
        "errors": frame.errors,
    }
    return json.dumps(versioned(fields))


def picture(frame: Frame) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    run = frame.glance.run_id if frame.glance else frame.run_id or UNKNOWN
    moment = f"{datetime.fromtimestamp(frame.at, UTC):%H:%M:%S} UTC"
    title = Text.assemble(("ticklake top", "bold"), f"   {moment}   run {run}", no_wrap=True, overflow="ellipsis")
    parts: list[RenderableType] = [title, Text()]
    parts += [table for table in (_services(frame), _groups(frame), _tables(frame), _gaps(frame)) if table is not None]
    parts.append(_summary(frame))
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
