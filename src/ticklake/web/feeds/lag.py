"""The lag of a node's groups, read from the databases."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ticklake.database.url import split_password
from ticklake.errors import TickLakeError
from ticklake.insights import GroupReport, groups_of, held_back_of
from ticklake.logs import redacted
from ticklake.node.node import Node
from ticklake.topics import Database

log = logging.getLogger(__name__)


class LagSample(NamedTuple):
    """The lag in the databases that answered; `away` names the others.

    `held_back`: transactions that hold back the vacuum of a database, with their ages in seconds.
    """

    groups: list[tuple[str, GroupReport]]
    away: dict[str, str]
    held_back: dict[str, float]

    @property
    def up(self) -> bool:
        return not self.away


def sample(node: Node, databases: Sequence[Database]) -> LagSample:
    """Returns the groups of the node's runs in all databases, one report per run, topic and group."""
    found: dict[tuple[str, str, str], GroupReport] = {}
    away: dict[str, str] = {}
    held_back: dict[str, float] = {}
    for database in databases:
        try:
            reports = [(run, one) for run in node.runs() for one in groups_of([database], run)]
            held = [one for run in node.runs() for one in held_back_of([database], run)]
            database.runs()  # detects an outage even if the node has no run yet
        except (TickLakeError, OSError) as error:
            away[split_password(database.url)[0]] = redacted(str(error))
            log.debug("A database did not answer: %s", error)
            continue
        held_back |= {one.who: one.seconds for one in held}
        for run, one in reports:
            key = (run, one.topic, one.group)
            found[key] = _merged(found[key], one) if key in found else one
    return LagSample([(run, one) for (run, _, _), one in found.items()], away, held_back)


def _merged(one: GroupReport, other: GroupReport) -> GroupReport:
    """Merges the reports of a topic that is in two databases."""
    ages = [age for age in (one.oldest_seconds, other.oldest_seconds) if age is not None]
    return GroupReport(
        one.topic,
        one.group,
        one.lag + other.lag,
        one.claimed + other.claimed,
        one.dead_letters + other.dead_letters,
        max(ages, default=None),
    )
