"""How far behind the groups of a node are, asked of the store itself."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ticklake.errors import TickLakeError
from ticklake.insights import GroupReport, groups_of
from ticklake.node import Node

log = logging.getLogger(__name__)


class LagSample(NamedTuple):
    """`up` tells whether the store answered; if not, nothing is known."""

    up: bool
    groups: list[tuple[str, GroupReport]]


def ask(node: Node) -> LagSample:
    """The groups of the node's runs."""
    try:
        found = [(run, one) for db in node.databases for run in node.runs() for one in groups_of(db, run)]
    except (TickLakeError, OSError) as error:
        log.debug("The store did not answer: %s", error)
        return LagSample(False, [])
    return LagSample(True, found)
