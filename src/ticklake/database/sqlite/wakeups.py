"""Wake-ups between the threads and processes that share a SQLite file: a datagram to each waiting reader's socket.

A hint may get lost: whoever waits also looks, once a second, whether the file has changed; that is no query.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from ticklake.database.fork import Fork, Inheritable
from ticklake.database.readiness import readable

SAFETY_SECONDS = 1.0
LONGEST_SECONDS = 30.0
_LINUX_FDS = Path("/proc/self/fd")


class Hints:
    """The folder in which the sockets of a file's readers lie, beside the file."""

    def __init__(self, database: Path) -> None:
        self._database = Path(os.path.realpath(database))
        self._folder = self._database.with_name(self._database.name + "-wake")

    def listen(self, channel: str) -> HintListener:
        with suppress(OSError):  # not ours to write: the listener looks once a second
            self._make_folder()
        return HintListener(self._database, self._folder, _prefix(channel))

    def _make_folder(self) -> None:
        """For everyone who may use the file, whatever the umask of the first reader is."""
        if not self._folder.exists():
            self._folder.mkdir(exist_ok=True)
            self._folder.chmod(self._folder.parent.stat().st_mode & 0o777)

    def send(self, channel: str) -> None:
        """Never fails: what it is about is committed already, and a lost hint costs its reader a second."""
        with suppress(OSError):
            names = [name for name in os.listdir(self._folder) if name.startswith(_prefix(channel))]  # noqa: PTH208  at every send
            if names:
                with _Folder(self._folder) as folder, _datagrams() as sender:
                    for name in names:
                        self._hint(sender, folder.address(name), name)

    def _hint(self, sender: socket.socket, address: str, name: str) -> None:
        try:
            sender.sendto(b"!", address)
        except (ConnectionRefusedError, FileNotFoundError):
            (self._folder / name).unlink(missing_ok=True)  # its reader was killed
        except OSError:
            pass  # its buffer is full of hints already, or it is another user's: the safety look finds the message


class HintListener(Inheritable):
    """One reader's socket: a datagram is the hint, its content is nothing."""

    def __init__(self, database: Path, folder: Path, prefix: str) -> None:
        super().__init__()
        self._database = database
        self._files = (database, database.with_name(database.name + "-wal"))
        self._path = folder / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
        self._socket = _datagrams()
        self._mine, self._others = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mine.setblocking(False)
        self._others.setblocking(False)
        with suppress(OSError), _Folder(folder) as opened:  # no socket here (a file system without): safety looks only
            self._socket.bind(opened.address(self._path.name))
        self._seen = self._state()

    def wait(self, timeout: float | None) -> bool:
        self.check_process(self._database)
        end = time.monotonic() + min(LONGEST_SECONDS, LONGEST_SECONDS if timeout is None else timeout)
        ready: list[object] = []
        while not ready and (left := end - time.monotonic()) > 0 and not self._changed():
            ready = readable((self._socket, self._mine), min(left, SAFETY_SECONDS))
        self._drain()
        return self._socket in ready

    def wake(self) -> None:
        with suppress(OSError):  # full: it will wake anyway; closed: nobody waits
            self._others.send(b"!")

    def close(self) -> None:
        if not self.inherited:
            self._path.unlink(missing_ok=True)
        for end in (self._socket, self._mine, self._others):
            end.close()

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        self.close()

    def _drain(self) -> None:
        for end in (self._socket, self._mine):
            with suppress(BlockingIOError):
                while end.recv(16):
                    pass
        self._seen = self._state()

    def _changed(self) -> bool:
        return self._state() != self._seen

    def _state(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(file) for file in self._files)


class _Folder:
    """A folder whose sockets can be named however deep it lies: an address has at most 107 bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle = -1

    def __enter__(self) -> _Folder:
        if _LINUX_FDS.exists():
            self._handle = os.open(self._folder, os.O_RDONLY)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def address(self, name: str) -> str:
        return str((_LINUX_FDS / str(self._handle) if self._handle >= 0 else self._folder) / name)


def _datagrams() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _prefix(channel: str) -> str:
    return hashlib.sha256(channel.encode()).hexdigest()[:12] + "-"


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
