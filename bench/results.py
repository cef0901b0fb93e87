"""Figures of one benchmark run, as Markdown and as a bar chart."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One measured number, and what it must reach, if anything."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    fsyncs: float | None = None  # how many fsyncs the disk did a second just then, where it matters

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f"≥ {number(self.at_least)}"
        return f"≤ {number(self.at_most)}" if self.at_most is not None else ""

    @property
    def verdict(self) -> str:
        if not self.goal:
            return ""
        reached = (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
        return "reached" if reached else "**missed**"


@dataclass(frozen=True)
class Section:
    """What one benchmark found."""

    title: str
    how: str
    figures: list[Figure] = field(default_factory=list)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(section: Section) -> str:
    measured = any(one.fsyncs for one in section.figures)
    rows = [_row(one, measured) for one in section.figures]
    return "\n".join(
        [
            f"## {section.title}",
            "",
            section.how,
            "",
            f"| what | measured |{' an fsync |' if measured else ''} goal | |",
            f"| --- | ---: |{' ---: |' if measured else ''} --- | --- |",
            *rows,
            "",
        ]
    )


def _row(figure: Figure, measured: bool) -> str:
    share = number(figure.value / figure.fsyncs) if figure.fsyncs else ""
    cells = [figure.name, f"{number(figure.value)} {figure.unit}", *([share] if measured else [])]
    return f"| {' | '.join([*cells, figure.goal, figure.verdict])} |"


def chart(section: Section) -> str:
    """The figures of the most common unit as horizontal bars, an SVG that stands for itself."""
    units = [one.unit for one in section.figures]
    unit = max(set(units), key=units.count)
    bars = [one for one in section.figures if one.unit == unit]
    top = max(one.value for one in bars) or 1
    lines = [_bar(place, one, one.value / top) for place, one in enumerate(bars)]
    height = 44 * len(bars) + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="13">'
        f'<text x="8" y="20" font-weight="bold" fill="#777">{_plain(section.title)}, {_plain(unit)}</text>'
        f"{''.join(lines)}</svg>\n"
    )


def _bar(place: int, figure: Figure, share: float) -> str:
    y = 34 + 44 * place
    return (
        f'<text x="8" y="{y + 12}" fill="#777">{_plain(figure.name)}</text>'
        f'<rect x="8" y="{y + 17}" width="{max(2, 600 * share):.0f}" height="16" rx="2" fill="#2a9d8f"/>'
        f'<text x="{16 + 600 * share:.0f}" y="{y + 30}" fill="#777">{number(figure.value)}</text>'
    )


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "").replace('"', "")
