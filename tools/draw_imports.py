"""Draws docs/packages.svg: the packages of TickLake in their layers, and which imports which.

Layers are those that `make lint` checks, imports are read from the code. `--check` only compares.
"""

from __future__ import annotations

import random
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "packages.svg"
PACKAGE = "ticklake"
WIDTH, MARGIN, TOP = 980, 24, 20
BOX, ROW = (142.0, 46.0), 104.0
STARTS, HIDDEN = 20, 9.0
ROLES = {
    "cli": "commands",
    "web": "pages, HTTP API",
    "node": "services in order",
    "insights": "status of runs",
    "completeness": "verdicts, repair",
    "doctor": "what is wrong",
    "spark": "your own session",
    "indexers": "ticks to rows",
    "services": "threads of a node",
    "lake": "Delta tables",
    "coordination": "claims of files, gaps",
    "consumer": "each event once",
    "events": "bus and queue",
    "topics": "publish, subscribe",
    "storage": "batch files",
    "simulation": "artificial life",
    "config": "files and options",
    "monitoring": "counters, errors",
    "database": "SQLite, PostgreSQL",
    "world": "grid of a run",
}
STYLE = """
    .paper { fill: #ffffff; stroke: #d0d7de } .band { fill: #f6f8fa } .box { fill: #ffffff; stroke: #8c959f }
    .ink { fill: #1f2328; font-weight: 600 } .soft { fill: #59636e; font-size: 11px }
    .way { stroke: #0969da; fill: none; stroke-width: 1.5 } .head { fill: #0969da }
    .also { stroke: #8c959f; fill: none; stroke-width: 0.8; opacity: 0.45 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #3d444d } .band { fill: #151b23 } .box { fill: #0d1117; stroke: #656c76 }
      .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .way { stroke: #58a6ff } .head { fill: #58a6ff }
      .also { stroke: #9198a1 }
    }
"""
Edge = tuple[str, str]
Layers = list[list[str]]
Places = dict[str, tuple[int, int]]


def layers() -> Layers:
    """From the top down, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (found,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [re.findall(r"\w+", layer) for layer in found]


def edges() -> set[Edge]:
    """Which package or module at the top of the code imports which, but for type checkers."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    ways = {
        (_top(module), _top(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    return {(one, other) for one, other in ways if one != other and one not in _APART and other not in _APART}


_APART = {"", "__main__"}


def _top(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def direct(ways: Iterable[Edge]) -> set[Edge]:
    """Without those that another way leads to as well. Of packages that import each other, all ways stay."""
    below: dict[str, set[str]] = defaultdict(set)
    for one, other in ways:
        below[one].add(other)
    reached = {one: _reached(one, below) for one in list(below)}

    def is_detour(one: str, other: str) -> bool:
        around = (step for step in below[one] if step != other and one not in reached.get(step, set()))
        return any(other in reached.get(step, set()) and step not in reached.get(other, set()) for step in around)

    return {(one, other) for one, other in ways if not is_detour(one, other)}


def _reached(start: str, below: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [start]
    while left:
        new = below.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def arranged(rows: Layers, ways: set[Edge]) -> Places:
    """A place for each package, so that lines are short and few of them pass behind a box."""
    columns = max(map(len, rows))
    rng = random.Random(7)
    starts = ([rng.sample(range(columns), len(row)) for row in rows] for _ in range(STARTS))
    return min((_settled(rows, start, columns, ways) for start in starts), key=lambda places: _cost(places, ways))


def _settled(rows: Layers, start: list[list[int]], columns: int, ways: set[Edge]) -> Places:
    """Moves one layer after the other to where it is best, given the others."""
    places = {
        name: (column, number)
        for number, row in enumerate(rows)
        for name, column in zip(row, start[number], strict=True)
    }
    for _ in range(6):
        for number, row in enumerate(rows):
            choices = (
                places | {name: (column, number) for name, column in zip(row, chosen, strict=True)}
                for chosen in permutations(range(columns), len(row))
            )
            places = min(choices, key=lambda choice: _cost(choice, ways))
    return places


def _cost(places: Places, ways: set[Edge]) -> float:
    taken = set(places.values())
    middle = (max(column for column, _ in taken)) / 2
    cost = sum(abs(column - middle) for column, _ in taken) / 10
    for one, other in ways:
        (left, above), (right, below) = places[one], places[other]
        cost += (left - right) ** 2
        if above == below:
            cost += sum(
                HIDDEN for column, level in taken if level == above and min(left, right) < column < max(left, right)
            )
        for row in range(above + 1, below):
            crossing = left + (right - left) * (row - above) / (below - above)
            cost += sum(HIDDEN for column, level in taken if level == row and abs(column - crossing) < 0.45)
    return cost


@dataclass(frozen=True)
class Box:
    """A package in the picture; `x` and `y` are its middle."""

    name: str
    x: float
    y: float

    @property
    def top(self) -> float:
        return self.y - BOX[1] / 2

    @property
    def bottom(self) -> float:
        return self.y + BOX[1] / 2


def boxes_of(places: Places) -> dict[str, Box]:
    columns = max(column for column, _ in places.values()) + 1
    step = (WIDTH - 2 * MARGIN) / columns
    return {
        name: Box(name, MARGIN + step * (column + 0.5), TOP + ROW * row + ROW / 2 - 6)
        for name, (column, row) in places.items()
    }


def _ports(ways: Iterable[Edge], boxes: Mapping[str, Box], end: int) -> dict[Edge, float]:
    """Where along its box a line begins (0) or ends (1): side by side, in the order of where they lead."""
    at: dict[str, list[Edge]] = defaultdict(list)
    for way in ways:
        at[way[end]].append(way)
    ports = {}
    for name, group in at.items():
        group.sort(key=lambda way: (boxes[way[1 - end]].x, way))
        for place, way in enumerate(group):
            ports[way] = boxes[name].x + (BOX[0] - 24) * ((place + 0.5) / len(group) - 0.5)
    return ports


def _line(one: Box, other: Box, start: float, end: float) -> str:
    if one.y == other.y:  # side by side: from edge to edge if they are neighbours, else below the row
        side = BOX[0] / 2 if one.x < other.x else -BOX[0] / 2
        if abs(one.x - other.x) < 2 * BOX[0]:
            return f"M{one.x + side:.0f} {one.y:.0f}H{other.x - side:.0f}"
        dip = one.bottom + 34
        return f"M{start:.0f} {one.bottom:.0f}C{start:.0f} {dip:.0f} {end:.0f} {dip:.0f} {end:.0f} {other.bottom:.0f}"
    bend = min(48.0, (other.top - one.bottom) / 2)
    return (
        f"M{start:.0f} {one.bottom:.0f}C{start:.0f} {one.bottom + bend:.0f} "
        f"{end:.0f} {other.top - bend:.0f} {end:.0f} {other.top:.0f}"
    )


def drawn(rows: Layers, ways: set[Edge]) -> Iterator[str]:
    *upper, base = rows
    shown = {(one, other) for one, other in ways if other not in base}
    short = direct(shown)
    boxes = boxes_of(arranged(upper, short))
    starts, ends = _ports(shown, boxes, 0), _ports(shown, boxes, 1)
    floor = TOP + ROW * len(upper)
    height = floor + 74
    label = f"{len(boxes)} packages of TickLake in {len(rows)} layers; imports point down."
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        'font-family="ui-sans-serif, system-ui, Helvetica, Arial, sans-serif" font-size="13" text-anchor="middle" '
        f'role="img" aria-label="{label}">'
    )
    yield f"  <style>{STYLE}  </style>"
    yield (
        '  <defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" '
        'orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>'
    )
    yield f'  <rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>'
    for number in range(len(upper)):
        yield _band(TOP + ROW * number + 14, 2 * (ROW / 2 - 6 - 14))
    for way in sorted(shown, key=lambda way: (way in short, way)):
        style = 'class="way" marker-end="url(#head)"' if way in short else 'class="also"'
        line = _line(boxes[way[0]], boxes[way[1]], starts[way], ends[way])
        yield f'  <path {style} data-edge="{way[0]} {way[1]}" d="{line}"/>'
    for box in boxes.values():
        yield from _box(box)
    yield _band(floor + 4, 54)
    words = " · ".join(sorted(base))
    at = f'x="{WIDTH / 2:.0f}" y="{floor + 28:.0f}"'
    yield f'  <text class="ink" {at}>{words}</text>'
    at = f'x="{WIDTH / 2:.0f}" y="{floor + 46:.0f}"'
    yield f'  <text class="soft" {at}>used from everywhere above; these lines are left out</text>'
    yield "</svg>"


def _band(y: float, height: float) -> str:
    return f'  <rect class="band" x="12" y="{y:.0f}" width="{WIDTH - 24}" height="{height:.0f}" rx="6"/>'


def _box(box: Box) -> Iterator[str]:
    role = ROLES.get(box.name, "")
    yield (
        f'  <rect class="box" data-package="{box.name}" x="{box.x - BOX[0] / 2:.0f}" y="{box.top:.0f}" '
        f'width="{BOX[0]:.0f}" height="{BOX[1]:.0f}" rx="6"/>'
    )
    yield f'  <text class="ink" x="{box.x:.0f}" y="{box.y - 3 if role else box.y + 5:.0f}">{box.name}</text>'
    if role:
        yield f'  <text class="soft" x="{box.x:.0f}" y="{box.y + 13:.0f}">{escape(role)}</text>'


def picture() -> str:
    return "\n".join(drawn(layers(), edges())) + "\n"


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PICTURE.read_text(encoding="utf-8") != picture() and "docs/packages.svg is out of date: make imports")
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
