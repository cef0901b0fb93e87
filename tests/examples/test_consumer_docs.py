"""The code on the pages about consumers and events runs, and prints what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["consumer.md", "events.md"])
def test_the_code_of_the_page_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    code = "".join(text for kind, text in blocks if kind == "python")
    expected = "".join(text for kind, text in blocks if kind == "text")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected
