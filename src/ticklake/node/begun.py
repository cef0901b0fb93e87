"""The runs that this node's simulation has begun and not ended, in a file of the node's directory."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from ticklake.checks.places import local_path
from ticklake.disk import open_directory
from ticklake.services import BegunRun
from ticklake.storage import replace_file

MOST = 100
"""So many runs are remembered. Older ones have to be closed by hand or by their silence."""


class Begun:
    """The begun runs of one node. Only the holder of the node's lock uses it, so all other lives are over.

    Each entry names the directory itself: a copy of it belongs to another node, which must not close these runs.
    """

    def __init__(self, directory: str | Path, name: str, run_id: str) -> None:
        self._folder = local_path(directory, "A node")
        self._name, self._run_id = f"{name}.runs", run_id
        self._lock = self._folder / f"{name}.lock"

    def begin(self, storage: str) -> None:
        """Records, durably, that the node begins its run in this storage."""
        own = BegunRun(self._run_id, storage)
        self._write([*(one for one in self._read() if one != own), own])

    def earlier(self) -> list[BegunRun]:
        return [one for one in self._read() if one.run_id != self._run_id]

    def forget(self, begun: BegunRun) -> None:
        self._write([one for one in self._read() if one != begun])

    def _read(self) -> list[BegunRun]:
        try:
            found = json.loads((self._folder / self._name).read_text(encoding="utf-8"))
            if found["directory"] != self._place():
                return []
            return [BegunRun(str(one["run"]), str(one["storage"])) for one in found["runs"]]
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def _write(self, runs: list[BegunRun]) -> None:
        listed = [{"run": one.run_id, "storage": one.storage} for one in runs[-MOST:]]
        text = json.dumps({"directory": self._place(), "runs": listed}, indent=1)
        self._folder.mkdir(parents=True, exist_ok=True)
        with open_directory(self._folder) as folder:
            replace_file(folder, self._name, text.encode())

    def _place(self) -> str:
        """Returns the path of the directory and the inode of its lock. A copy on another machine has another inode."""
        with suppress(OSError):
            return f"{os.path.realpath(self._folder)}#{self._lock.stat().st_ino}"
        return os.path.realpath(self._folder)
