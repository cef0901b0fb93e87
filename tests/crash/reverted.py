"""Reverts one fix at a time in a copy of the source, and lets `scenes.py` find the bug: `reverted.py [NAME…]`.

Each file in `reverted/` is a patch that brings one bug back; its first line is the command that must find it.
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
            script, *options = shlex.split(self.command)
            done = subprocess.run(
                [sys.executable, HERE / script, *options],
                env=os.environ | {"PYTHONPATH": f"{folder}/src"},
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        if done.returncode not in (0, 1) or "took " not in done.stdout:
            return [f"it did not end: {done.stderr.strip()[-200:]}"]
        return [line.removeprefix("wrong").strip() for line in done.stdout.splitlines() if line.startswith("wrong")]


def known() -> list[Reverted]:
    found = []
    for patch in sorted((HERE / "reverted").glob("*.patch")):
        command = patch.read_text().partition("\n")[0]
        found.append(Reverted(patch.stem, command, patch))
    return found


def main(wanted: list[str]) -> None:
    missed = 0
    for one in known():
        if wanted and one.name not in wanted:
            continue
        found = one.play()
        missed += not found or found[0].startswith("it did not end")
        said = found[0].partition(": ")[2].partition(" (acts")[0] if found else "nothing"
        sys.stdout.write(f"| {one.name} | `{one.command}` | {said} |\n")
        sys.stdout.flush()
    raise SystemExit(missed)


if __name__ == "__main__":
    main(sys.argv[1:])
