"""The configurations that come with TickLake: the reference of all options and one to start from."""

from __future__ import annotations

from pathlib import Path

from ticklake.config.errors import ConfigExists
from ticklake.places import local_path

REFERENCE = Path(__file__).with_name("reference.conf")
STARTER = Path(__file__).with_name("starter.conf")


def write_starter(directory: str | Path) -> Path:
    """Writes `ticklake.conf` into the directory, never over one that is there."""
    file = local_path(directory, "A configuration") / "ticklake.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        target = file.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise ConfigExists(file=file) from error
    try:
        with target:
            target.write(STARTER.read_text(encoding="utf-8"))
    except BaseException:  # a full disk, Ctrl-C: half a file would be taken for a configuration next time
        file.unlink()
        raise
    return file
