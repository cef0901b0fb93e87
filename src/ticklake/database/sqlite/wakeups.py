"""Wake-ups between threads and processes that share a SQLite file: a datagram to the socket of each waiting reader.

A hint may be lost, so a waiting reader also checks once a second, without a query, whether the file has changed.
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
MAX_WAIT_SECONDS = 30.0
_LINUX_FDS = Path("/proc/self/fd")


class Hints:
    """The folder with the sockets of a file's readers, next to the file."""

    def __init__(self, database: Path) -> None:
        self._database = Path(os.path.realpath(database))
        self._folder = self._database.with_name(self._database.name + "-wake")

    def listen(self, channel: str) -> HintListener:
        with suppress(OSError):  # not writable: the listener still checks once a second
            self._make_folder()
        return HintListener(self._database, self._folder, _prefix(channel))

    def _make_folder(self) -> None:
        """Creates the folder with the permissions of its parent, regardless of the umask."""
        if not self._folder.exists():
            self._folder.mkdir(exist_ok=True)
            self._folder.chmod(self._folder.parent.stat().st_mode & 0o777)

    def send(self, channel: str) -> None:
        """Sends a hint. Never fails: the message is already committed, and a lost hint only costs a second."""
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
            pass  # its buffer is full of hints, or it is another user's: the reader's own check finds the message


class HintListener(Inheritable):
    """The socket of a reader. A datagram is a hint; its content is ignored."""

    def __init__(self, database: Path, folder: Path, prefix: str) -> None:
        super().__init__()
        self._database = database
        self._files = (database, database.with_name(database.name + "-wal"))
        self._path = folder / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
        self._socket = _datagrams()
        self._wake_receiver, self._wake_sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        with suppress(OSError), _Folder(folder) as opened:  # the file system has no sockets: only the checks remain
            self._socket.bind(opened.address(self._path.name))
        self._seen = self._state()

    def wait(self, timeout: float | None) -> bool:
        self.check_process(self._database)
        end = time.monotonic() + min(MAX_WAIT_SECONDS, MAX_WAIT_SECONDS if timeout is None else timeout)
        ready: list[object] = []
        while not ready and (left := end - time.monotonic()) > 0 and not self._changed():
            ready = readable((self._socket, self._wake_receiver), min(left, SAFETY_SECONDS))
        self._drain()
        return self._socket in ready

    def wake(self) -> None:
        with suppress(OSError):  # full: it wakes anyway; closed: no thread waits
            self._wake_sender.send(b"!")

    def close(self) -> None:
        if not self.inherited:
            self._path.unlink(missing_ok=True)
        for end in (self._socket, self._wake_receiver, self._wake_sender):
            end.close()

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        self.close()

    def _drain(self) -> None:
        for end in (self._socket, self._wake_receiver):
            with suppress(BlockingIOError):
                while end.recv(16):
                    pass
        self._seen = self._state()

    def _changed(self) -> bool:
        return self._state() != self._seen

    def _state(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(file) for file in self._files)


class _Folder:
    """Addresses sockets in a folder of any depth: a socket address has at most 107 bytes."""

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
