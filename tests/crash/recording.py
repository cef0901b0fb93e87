"""What a program does to a directory, seen by strace: every write, sync and change of a name, of all its threads."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from disk import ROOT, Event, Folder, Mark, Naming, Resize, Sync, Write

_CALLS = (
    "openat,open,creat,lseek,write,pwrite64,writev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,link,"
    "linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "mmap,fallocate,pwritev,pwritev2,copy_file_range,sendfile,splice,sync_file_range,symlink,symlinkat"
)
_LINE = re.compile(
    r"(?P<task>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>(?P<rest>.*)|(?P<call>\w+)\((?P<arguments>.*))$"
)
_RESULT = re.compile(r"(?P<arguments>.*)\) += (?P<result>-?\d+|0x[0-9a-f]+|\?)(?P<more>.*)")
# Of a write; one that is longer is refused.
_LONGEST = 1 << 24
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPEN = re.compile(r"(?:(-?\d+)|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


class Unmodelled(Exception):
    """The program did something to the directory that the model of a disk knows nothing of."""


class _Handle(NamedTuple):
    number: int
    path: str
    gone: bool


@cache
def why_not() -> str:
    """Why nothing can be recorded here; empty where it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "strace may not trace processes here"


def record(command: Sequence[str], root: Path, marks: Path, log: Path) -> list[Event]:
    """Runs a program and tells what it did below `root`, which it makes; lines that it writes to `marks` are marks."""
    options = ["-f", "-qq", "-y", "-xx", "-s", str(_LONGEST), "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(log)]
    subprocess.run(["strace", *options, *command], check=True, stdin=subprocess.DEVNULL)
    reader = Reader(str(root), str(marks))
    with log.open() as lines:
        for line in lines:
            reader.take(line.rstrip("\n"))
    return reader.events


class Reader:
    """Lines of strace, one after the other, become events."""

    def __init__(self, root: str, marks: str) -> None:
        self.events: list[Event] = []
        self._root, self._marks = root, marks
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._sizes: dict[int, int] = {}
        self._count = 0
        self._positions: dict[tuple[int, int], int] = {}
        self._opened: dict[tuple[int, str], int] = {}
        self._appending: set[tuple[int, int]] = set()
        self._pending: dict[str, tuple[str, int]] = {}
        self._begun = 0

    def take(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        task, call = found["task"], found["call"] or found["resumed"]
        text, begun = found["arguments"], len(self.events)
        if found["resumed"]:
            head, begun = self._pending.pop(task)
            text = head + found["rest"]
        elif text.endswith(_UNFINISHED):
            self._pending[task] = text.removesuffix(_UNFINISHED), begun
            return
        done = _RESULT.match(text)
        if done is not None and done["result"] != "?" and not done["result"].startswith("-"):
            self._begun = begun
            self._act(call, done["arguments"], int(done["result"], 0))

    def _act(self, call: str, arguments: str, result: int) -> None:
        act = getattr(self, f"_{call}", None)
        if act is not None:
            act(arguments, result)
        elif any(self._inside(handle.path) for handle in _handles(arguments)) or any(
            self._inside(_decoded(text).decode(errors="replace")) for text in _TEXT.findall(arguments)
        ):
            raise Unmodelled(f"{call}({arguments[:200]})")

    # Names

    def _openat(self, arguments: str, result: int) -> None:
        path = _paths(arguments)[0]
        if not self._inside(path):
            return
        inode = self._find(path)
        if inode is None:
            # Without O_CREAT, another thread creates it: its call has taken effect, and its end was not seen yet. The
            # root was empty at first, and a test compares what was recorded with what is there in the end.
            inode = self._new()
            self._sizes[inode] = 0
            self._change((path, inode))
        if inode in self._folders:
            return
        if "O_TRUNC" in arguments and self._sizes[inode]:
            self._resize(inode, 0)
        self._opened[result, path] = inode
        self._positions[result, inode] = 0
        self._appending.discard((result, inode))
        if "O_APPEND" in arguments:
            self._appending.add((result, inode))

    def _open(self, arguments: str, result: int) -> None:
        self._openat(f"AT_FDCWD<>, {arguments}", result)

    def _mkdirat(self, arguments: str, result: int) -> None:
        path = _paths(arguments)[0]
        if path == self._root or not self._inside(path):
            return
        inode = self._new()
        self._folders[inode] = {}
        self.events.append(Folder(inode))
        self._change((path, inode))

    def _mkdir(self, arguments: str, result: int) -> None:
        self._mkdirat(f"AT_FDCWD<>, {arguments}", result)

    def _renameat(self, arguments: str, result: int) -> None:
        old, new = _paths(arguments)
        if self._inside(old):
            self._change((old, None), (new, self._find(old)))

    def _renameat2(self, arguments: str, result: int) -> None:
        self._renameat(arguments, result)

    def _rename(self, arguments: str, result: int) -> None:
        self._renameat(_at(arguments), result)

    def _linkat(self, arguments: str, result: int) -> None:
        old, new = _paths(arguments)
        if self._inside(new):
            self._change((new, self._find(old)))

    def _link(self, arguments: str, result: int) -> None:
        self._linkat(_at(arguments), result)

    def _unlinkat(self, arguments: str, result: int) -> None:
        path = _paths(arguments)[0]
        # Sockets, by which readers are woken, are no files and are not looked at.
        if self._inside(path) and self._find(path) is not None:
            self._change((path, None))

    def _unlink(self, arguments: str, result: int) -> None:
        self._unlinkat(f"AT_FDCWD<>, {arguments}", result)

    _rmdir = _unlink

    # Data

    def _write(self, arguments: str, result: int) -> None:
        handle = _handles(arguments)[0]
        data = b"".join(_decoded(text) for text in _TEXT.findall(arguments))[:result]
        if self._inside(handle.path) and len(data) != result:
            raise Unmodelled(f"a write of {result} bytes to {handle.path}")
        if handle.path == self._marks:
            self.events += [Mark(line) for line in data.decode().splitlines()]
        inode = self._inode(handle)
        if inode is not None:
            key = handle.number, inode
            at = self._sizes[inode] if key in self._appending else self._positions[key]
            self._positions[key] = at + len(data)
            self._put(inode, at, data)

    _writev = _write

    def _pwrite64(self, arguments: str, result: int) -> None:
        inode = self._inode(_handles(arguments)[0])
        if inode is not None:
            self._put(inode, int(arguments.rpartition(", ")[2]), _decoded(_TEXT.findall(arguments)[0])[:result])

    def _lseek(self, arguments: str, result: int) -> None:
        handle = _handles(arguments)[0]
        inode = self._inode(handle)
        if inode is not None:
            self._positions[handle.number, inode] = result

    def _ftruncate(self, arguments: str, result: int) -> None:
        inode = self._inode(_handles(arguments)[0])
        if inode is not None:
            self._resize(inode, int(arguments.rpartition(", ")[2]))

    def _fsync(self, arguments: str, result: int) -> None:
        handle = _handles(arguments)[0]
        inode = self._find(handle.path) if self._inside(handle.path) and not handle.gone else self._inode(handle)
        if inode is not None:
            self.events.append(Sync(inode, self._begun))

    _fdatasync = _fsync

    def _mmap(self, arguments: str, result: int) -> None:
        shared = "MAP_SHARED" in arguments and "PROT_WRITE" in arguments
        for handle in _handles(arguments):
            # What SQLite keeps in its shared memory it can do without.
            if shared and self._inside(handle.path) and not handle.path.endswith("-shm"):
                raise Unmodelled(f"mmap({handle.path})")

    def _put(self, inode: int, at: int, data: bytes) -> None:
        self._sizes[inode] = max(self._sizes[inode], at + len(data))
        self.events.append(Write(inode, at, data))

    def _resize(self, inode: int, size: int) -> None:
        self._sizes[inode] = size
        self.events.append(Resize(inode, size))

    # Paths

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _inside(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root + "/")

    def _find(self, path: str) -> int | None:
        inode: int | None = ROOT
        for name in path.removeprefix(self._root).split("/"):
            if name and inode is not None:
                inode = self._folders.get(inode, {}).get(name)
        return inode

    def _inode(self, handle: _Handle) -> int | None:
        """The file behind a descriptor, whatever it is called by now."""
        if not self._inside(handle.path):
            return None
        known = self._opened.get((handle.number, handle.path))
        found = None if handle.gone else self._find(handle.path)
        inode = known if found is None else found
        return None if inode in self._folders else inode

    def _change(self, *changes: tuple[str, int | None]) -> None:
        named: list[tuple[int, str, int | None]] = []
        for path, inode in changes:
            folder, _, name = path.rpartition("/")
            place = self._find(folder)
            if place is None or not self._inside(path):
                raise Unmodelled(f"{path} is in no folder that was seen")
            if inode is None:
                del self._folders[place][name]
            else:
                self._folders[place][name] = inode
            named.append((place, name, inode))
        self.events.append(Naming(tuple(named)))


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _handles(arguments: str) -> list[_Handle]:
    found = _OPEN.finditer(arguments)
    return [_Handle(int(one[1] or -1), _decoded(one[2]).decode(), bool(one[3])) for one in found]


def _paths(arguments: str) -> list[str]:
    """Paths as they are given, each behind the folder that it is relative to."""
    pairs = re.findall(r'(?:-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(?:\(deleted\))?, "((?:\\x[0-9a-f]{2})*)"', arguments)
    return [str(Path(_decoded(folder).decode()) / _decoded(path).decode()) for folder, path in pairs]


def _at(arguments: str) -> str:
    """The arguments of a call that names no folders as those of one that does."""
    return ", ".join(f"AT_FDCWD<>, {text}" for text in arguments.split(", "))
