"""Whatever a server's or a role's default isolation level is: ours is our own."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest

from ticklake import BatchInfo, Database


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_default_isolation_level_changes_nothing(postgres_url: str, level: str) -> None:
    escaped = level.replace(" ", "%5C%20")
    url = f"{postgres_url}&options=-c%20default_transaction_isolation%3D{escaped}"
    acknowledged: list[int] = []
    problems: list[Exception] = []
    with Database(url) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        with run.transaction() as one, run._schema.autocommit() as other:
            levels = [work.execute("SHOW transaction_isolation", {}) for work in (one, other)]
        with run.writer("t") as writer:
            writer.send_many([BatchInfo(tick_start=tick) for tick in range(300)])

        def consume() -> None:
            try:
                with run.reader("t", group="g") as reader:
                    while messages := reader.poll_many(3, 1.0):
                        done = reader.ack_many(messages)
                        acknowledged.extend(m.payload.tick_start for m, ok in zip(messages, done, strict=True) if ok)
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert levels == [[("read committed",)]] * 2
    assert not problems
    assert len(acknowledged) == len(set(acknowledged)) == 300
