"""What a poll asks the database is answered from indexes, however long the run is: held by the query's plan."""

from __future__ import annotations

import json
import re

import pytest

from ticklake.coordination.coordinator import PACKAGE, Coordinator
from ticklake.database.statements import statements
from ticklake.topics import Run

VALUES = {
    "indexer_class": "DummyIndexer",
    "table_id": "",
    "instance": "me",
    "node": "node/",
    "life": "node/life:",
    "lease_ms": 1000,
    "limit": 10,
    "first": 5,
    "last": 50,
    "timeout_ms": 1000,
    "filename": "batch_0_9.pb",
    "version": 1,
    "error": "bad",
    "lacks": "[[5, 5]]",
    "stamp": "1-2",
    "reach": 9,
    "filenames": json.dumps(["batch_0_9.pb", "batch_10_19.pb"]),
    "claims": json.dumps([("batch_0_9.pb", 1)]),
    "batches": json.dumps([("batch_90_99.pb", 90, 99)]),
}
FRONTIER = "SEARCH coordinator_frontiers USING PRIMARY KEY (indexer_class=? AND table_id=?)"
INDEXES = {
    "status": "idx_coordinator_claimed",
    "expired": "idx_coordinator_claimed",
    "release_earlier": "idx_coordinator_claimed",
    "failed": "idx_coordinator_failed",
    "incomplete": "idx_coordinator_short",
    "make_gaps_permanent": "idx_coordinator_gaps_pending",
}
HOT = [
    "incomplete",
    "set_missing",
    "failed",
    "reached",
    "status",
    "never_claimed",
    "expired",
    "overlapping_gaps",
    "take_over",
    "renew",
    "release",
    "release_earlier",
    "claimed_except",
    "complete",
    "fail",
    "make_gaps_permanent",
]


@pytest.mark.parametrize("name", HOT)
def test_no_table_is_read_whole(run: Run, name: str):
    Coordinator(run, "DummyIndexer", step=1)
    with run.transaction() as transaction:
        dialect = transaction.dialect
        text = statements(PACKAGE, dialect)[name]
        sigil = r":([a-z_]+)" if dialect == "sqlite" else r"%\(([a-z_]+)\)s"
        wanted = {key: value for key, value in VALUES.items() if key in re.findall(sigil, text)}
        if dialect == "postgres":
            # A planner that sees a table of no rows reads it whole, and is right.
            transaction.execute_script("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
        comments = re.compile(r"^--.*$", re.MULTILINE)
        plan = "\n".join(str(row[-1]) for row in transaction.execute(f"{explain} {comments.sub('', text)}", wanted))
    assert not re.search(r"SCAN coordinator_|Seq Scan on coordinator_", plan), plan
    # The key is no help where it is only the class and the table: all batches of a run have the same.
    assert not re.search(
        r"USING PRIMARY KEY \(indexer_class=\?( AND table_id=\?)?\)$", plan.replace(FRONTIER, ""), re.MULTILINE
    ), plan
    assert INDEXES.get(name, "") in plan, plan
