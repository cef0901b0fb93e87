"""The lock of a table: anybody who may write the table can have it, and whoever waits for long is told."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ticklake.errors import LakeUnwritable
from ticklake.lake.delta import Location, folder
from ticklake.lake.delta.folder import TableFolder

LOCK = "_ticklake.lock"
NOBODY = 65534


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with TableFolder.open_or_create(Location.of(tmp_path / "cells")):
        return tmp_path / "cells" / "_delta_log"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be somebody else")
def test_a_lock_that_root_makes_belongs_to_the_owner_of_the_log(log: Path) -> None:
    os.chown(log, NOBODY, NOBODY)
    with TableFolder(Location.of(log.parent)) as table, table.committing():
        assert ((log / LOCK).stat().st_uid, (log / LOCK).stat().st_gid) == (NOBODY, NOBODY)


def test_a_lock_that_cannot_be_opened_is_told(log: Path) -> None:
    (log / LOCK).mkdir()
    with TableFolder(Location.of(log.parent)) as table, pytest.raises(LakeUnwritable, match=LOCK), table.removing():
        pass


@pytest.mark.timeout(60)
@pytest.mark.warns("Still waiting for the lock")
def test_whoever_waits_for_a_lock_is_told_and_a_deleted_lock_is_none(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, eventually: Callable[..., None]
) -> None:
    monkeypatch.setattr(folder, "_PATIENCE", 0.0)
    had = threading.Event()

    def wait() -> None:
        with TableFolder(Location.of(log.parent)) as table, table.committing():
            # Nobody else can have it now.
            with (log / LOCK).open() as mine, pytest.raises(BlockingIOError):
                fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            had.set()

    with (log / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: str(log / LOCK) in caplog.text)
        (log / LOCK).unlink()
    waiting.join()
    assert had.is_set()
