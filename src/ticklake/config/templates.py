"""The configurations in this package: the reference of all options and a starter."""

from __future__ import annotations

from pathlib import Path

from ticklake.checks.places import local_path
from ticklake.config.errors import ConfigExists

REFERENCE = Path(__file__).with_name("reference.conf")
STARTER = Path(__file__).with_name("starter.conf")


def write_starter(directory: str | Path) -> Path:
    """Writes `ticklake.conf` to the directory. Never overwrites an existing file."""
    file = local_path(directory, "A configuration") / "ticklake.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        target = file.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise ConfigExists(file=file) from error
    try:
        with target:
            target.write(STARTER.read_text(encoding="utf-8"))
    except BaseException:  # a full disk or Ctrl-C must not leave half a configuration
        file.unlink()
        raise
    return file
