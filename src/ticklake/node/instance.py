"""A lock file in the node's directory. The operating system releases it when the process ends."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ticklake.checks.places import local_path
from ticklake.disk import try_lock
from ticklake.node.errors import InstanceRunning

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}-[0-9a-f]{16}")
_KEPT_SECONDS = 7 * 86400.0
"""The file of a life that was killed is kept this long. By then, its claims have expired."""

Instances = Literal["refuse", "compete"]


class Instance:
    """The lock of a node. With `refuse` it is exclusive; with `compete` it is shared among nodes that also compete."""

    def __init__(self, directory: str | Path, name: str, instances: Instances = "refuse") -> None:
        self._file = local_path(directory, "A node") / f"{name}.lock"
        self._name = name
        self._shared = instances == "compete"
        self._held: int | None = None
        self._node = ""
        self._life = secrets.token_hex(4)
        self._life_lock: int | None = None

    def acquire(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        if not try_lock(descriptor, shared=self._shared):
            os.close(descriptor)
            holder = read_holder(self._file)
            raise InstanceRunning(
                name=self._name, directory=self._file.parent, pid=holder.get("pid"), host=holder.get("host")
            )
        self._held = descriptor
        self._node = self._node_id(descriptor)
        if self._shared:
            self._begin_life()
        self.write_holder()

    def consumer(self) -> str:
        """Returns `NODE/LIFE`, the start of the names of this node's consumers; empty before the lock is held."""
        return f"{self._node}/{self._life}" if self._held is not None and self._node else ""

    def is_over(self, life: str) -> bool:
        """Returns whether another life of this node has ended. If it is not known, returns False.

        All others have ended if this process holds the lock alone. A life that competes holds a lock of its own.
        """
        if not self._shared:
            return self._held is not None
        try:
            descriptor = os.open(self._life_file(life), os.O_RDWR)
        except OSError:
            return False
        try:
            return try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)

    def _begin_life(self) -> None:
        """Locks a file of this life, and removes the files of lives that were killed long ago."""
        self._life_lock = os.open(self._life_file(self._life), os.O_RDWR | os.O_CREAT, 0o666)
        try_lock(self._life_lock)  # nobody else knows this file yet
        for file in self._file.parent.glob(f"{glob.escape(self._name)}.*.life"):
            with suppress(OSError):
                life = file.name.removeprefix(f"{self._name}.").removesuffix(".life")
                if time.time() - file.stat().st_mtime > _KEPT_SECONDS and self.is_over(life):
                    file.unlink()

    def _life_file(self, life: str) -> Path:
        return self._file.with_name(f"{self._name}.{life}.life")

    def _node_id(self, lock: int) -> str:
        """Returns the node's name with a part that belongs to this lock file.

        A copy of the directory, or a lock file that was removed and made again, is another node: the process that
        holds the first lock may be alive. If the lock file or the id is lost, this only costs a wait.
        """
        secret = f"{self._secret()}/{os.fstat(lock).st_ino}"
        return f"{self._name}-{hashlib.sha256(secret.encode()).hexdigest()[:16]}"

    def _secret(self) -> str:
        """Returns a random text that the directory keeps."""
        file = self._file.with_name(f"{self._name}.id")
        with suppress(OSError, ValueError):
            if _NODE_ID.fullmatch(found := file.read_text(encoding="utf-8")):
                return found
        made = f"{self._name}-{secrets.token_hex(8)}"
        with suppress(OSError):  # without it, the next life waits for the claims of this one
            file.write_text(made, encoding="utf-8")
        return made

    def write_holder(self, **more: object) -> None:
        """Writes process and host to the lock file, for refused nodes and for commands that look for this node."""
        if self._held is not None:
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), **more}).encode()
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, text, 0)

    def release(self) -> None:
        if self._held is not None:
            if not self._shared:
                os.ftruncate(self._held, 0)
            os.close(self._held)
            self._held = None
        if self._life_lock is not None:
            self._life_file(self._life).unlink(missing_ok=True)
            os.close(self._life_lock)
            self._life_lock = None


def read_holder(file: Path) -> dict[str, Any]:
    """Reads what the holder of a lock wrote to it; empty if there is nothing."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
