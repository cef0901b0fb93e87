"""`make bench`: runs every benchmark and writes bench/RESULTS.md. `python -m bench indexing topics` runs just those."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.results import chart, markdown

HERE = Path(__file__).parent
BENCHMARKS = (
    "codec", "formats", "analytics", "indexing", "scale", "visibility", "many_runs", "competing", "reading", "growth",
    "consumer", "events", "topics", "web",
)  # fmt: skip


def main(wanted: list[str]) -> None:
    parts = [heading()]
    for name in wanted or BENCHMARKS:
        print(f"measuring {name} …", flush=True)
        with tempfile.TemporaryDirectory(prefix="ticklake-bench-") as directory:
            section = importlib.import_module(f"bench.{name}").measure(Path(directory))
        (HERE / f"{name}.svg").write_text(chart(section))
        text = markdown(section)
        print(text, flush=True)
        parts.append(f"{text}\n![{section.title}]({name}.svg)\n")
        if not wanted:
            (HERE / "RESULTS.md").write_text("\n".join(parts))


def heading() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        "# Measured\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.stdout.strip() or 'unknown'}, {os.cpu_count()} cores,"
        f" {memory} GiB, {platform.system()}, Python {platform.python_version()}. Made by `make bench`;"
        " machines are noisy, so look at the ratios, which come from one run.\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
