"""The lag of groups: all those of the node's runs, and those of the worst other runs of its databases."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ticklake.database.url import split_password
from ticklake.errors import TickLakeError
from ticklake.insights import WORST, Backlog, BacklogReport, GroupReport, groups_of, held_back_of, merged_groups
from ticklake.logs import redacted
from ticklake.node.node import Node
from ticklake.topics import Database

log = logging.getLogger(__name__)


class LagSample(NamedTuple):
    """The lag in the databases that answered; `away` names the others.

    `groups`: all groups of the node's runs, and the groups of the worst other runs that are behind. `worst`: the
    backlogs of these runs. `held_back`: transactions that hold back the vacuum of a database, with their ages in
    seconds.
    """

    groups: list[tuple[str, GroupReport]]
    away: dict[str, str]
    held_back: dict[str, float]
    worst: list[Backlog]
    backlogs: BacklogReport

    @property
    def up(self) -> bool:
        return not self.away


def sample(node: Node, databases: Sequence[Database], backlogs: BacklogReport) -> LagSample:
    """Returns the groups of the node's runs in all databases, one report per run, topic and group, and the backlogs."""
    own: dict[str, list[GroupReport]] = {run: [] for run in node.runs()}
    away: dict[str, str] = {}
    held_back: dict[str, float] = {}
    for database in databases:
        url = split_password(database.url)[0]
        if url in backlogs.away:
            away[url] = backlogs.away[url]
            continue
        try:
            reports = [(run, one) for run in own for one in groups_of([database], run)]
            held = [one for run in own for one in held_back_of([database], run)]
        except (TickLakeError, OSError) as error:
            away[url] = redacted(str(error))
            log.debug("A database did not answer: %s", error)
            continue
        held_back |= {one.who: one.seconds for one in held}
        for run, one in reports:
            own[run].append(one)
    others = backlogs.without(own).runs[:WORST]
    groups = [(run, one) for run, found in own.items() for one in merged_groups(found)]
    groups += [(one.run_id, group) for one in others for group in one.groups]
    mine = {one.run_id: one for one in backlogs.runs if one.run_id in own}
    return LagSample(groups, away, held_back, [*(mine.get(run) or Backlog(run) for run in own), *others], backlogs)
