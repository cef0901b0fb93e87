"""A disk that really is full: a tmpfs, seen by the processes of one program only, and gone with the last of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MEBIBYTES = 256
_INSIDE = "TICKLAKE_OWN_MOUNTS"


@cache
def allowed() -> bool:
    """Mounts need root, or a kernel that lets users be root among themselves."""
    return sys.platform == "linux" and not _run(*_apart(), *_mount(Path(tempfile.gettempdir())))


def enter() -> None:
    """Begins this program again where it may mount; where nobody lets it, it goes on as it is."""
    if _INSIDE not in os.environ and allowed():
        command = [*_apart(), sys.executable, *sys.argv]
        os.execvpe(command[0], command, os.environ | {_INSIDE: "yes"})


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A disk of its own in this folder, for those who have entered."""
    folder.mkdir()
    inside = _INSIDE in os.environ
    if inside and (complaint := _run(*_mount(folder))):
        raise OSError(complaint)
    try:
        yield
    finally:
        if inside:
            _run("umount", "--lazy", str(folder))


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Not a byte is free on the disk of this folder."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 20)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            yield
    finally:
        filler.unlink()


def _apart() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]), "--"]


def _mount(folder: Path) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={MEBIBYTES}m,mode=700", "ticklake", str(folder)]


def _run(*command: str) -> str:
    """What it complains of, if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return (done.returncode and (done.stderr.strip() or f"{command[0]} failed")) or ""
