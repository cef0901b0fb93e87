"""Reverts one fix at a time in a copy of the source, and lets a scene or a test find the bug: `reverted.py [NAME…]`.

Each file in `reverted/` is a patch that brings one bug back; above it are the commands each of which must find it.
It prints a table for `docs/proof.md`, and fails if a bug was not found.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SECONDS = 400


class Reverted(NamedTuple):
    name: str
    command: str
    patch: Path

    def apply(self, folder: Path) -> str:
        """Copies the source to this folder and brings the bug back; what the patch tool complains of."""
        shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        tool = ["git", "apply", "--unsafe-paths", f"--directory={folder}", str(self.patch)]
        return subprocess.run(tool, capture_output=True, text=True, check=False, cwd=folder).stderr

    def play(self) -> list[str]:
        """What the harness found wrong."""
        with tempfile.TemporaryDirectory(prefix="tl-reverted-") as folder:
            if complaint := self.apply(Path(folder)):
                raise SystemExit(f"{self.patch} does not apply: {complaint}")
            try:
                done = subprocess.run(
                    self._arguments(),
                    # What a scene keeps of a failure goes with the copy: it says nothing of the source as it is.
                    env=os.environ | {"PYTHONPATH": f"{folder}/src", "TMPDIR": folder},
                    cwd=HERE.parents[1],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                return [f"it did not end: after {SECONDS} s"]
        ended = "took " in done.stdout or " in " in done.stdout.splitlines()[-1]
        if done.returncode not in (0, 1) or not ended:
            return [f"it did not end: {done.stderr.strip()[-200:]}"]
        complaints = (line for line in done.stdout.splitlines() if line.startswith(("wrong ", "FAILED ")))
        return [complaint.partition(" ")[2].strip() for complaint in complaints]

    def _arguments(self) -> list[str]:
        script, *options = shlex.split(self.command)
        if script == "pytest":
            return [sys.executable, "-m", "pytest", "-n", "0", "-q", *options]
        return [sys.executable, str(HERE / script), *options]


def known() -> list[Reverted]:
    found = []
    for patch in sorted((HERE / "reverted").glob("*.patch")):
        commands = patch.read_text().partition("\n\n")[0]
        found += [Reverted(patch.stem, command, patch) for command in commands.splitlines()]
    return found


def main(wanted: list[str]) -> None:
    missed = 0
    for one in known():
        if wanted and one.name not in wanted:
            continue
        found = one.play()
        missed += not found or found[0].startswith("it did not end")
        said = found[0].partition(" (acts")[0] if found else "nothing"
        sys.stdout.write(f"| {one.name} | `{one.command}` | {said} |\n")
        sys.stdout.flush()
    raise SystemExit(missed)


if __name__ == "__main__":
    main(sys.argv[1:])
