"""Finds the Java that Spark would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ticklake.lake.errors import JavaMissing

OLDEST = 17
_SECONDS = 20


class Java(NamedTuple):
    """A Java that Spark can use."""

    version: int
    command: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Returns the Java of `JAVA_HOME` or else of `PATH`. Raises `JavaMissing` if Spark cannot use it."""
    command = _command(environment)
    try:
        shown = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(reason=f"{command} cannot be started") from error
    version = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if version is None:
        raise JavaMissing(reason=f"{command} does not print its version")
    if int(version[1]) < OLDEST:
        raise JavaMissing(reason=f"{command} is Java {version[1]}")
    return Java(int(version[1]), command)


def _command(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    path = str(Path(home) / "bin") if home else environment.get("PATH", "")
    command = shutil.which("java", path=path)
    if command is None:
        raise JavaMissing(reason=f"JAVA_HOME is {home}, which has no bin/java" if home else "found none")
    return command
