from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "trades"


def table(*options: str) -> dict[str, int]:
    """The numbers that the example prints."""
    command = [sys.executable, str(EXAMPLE), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.endswith("every trade has exactly one result\n")
    return {name: int(value.replace(",", "")) for name, value in re.findall(r"^(.+?) +([\d,]+)$", done.stdout, re.M)}


@pytest.mark.chaos
def test_every_trade_has_exactly_one_result_whichever_validators_are_killed() -> None:
    numbers = table("--trades", "1000", "--kills", "3")
    assert (numbers["trades"], numbers["sent"], numbers["validators killed"]) == (1000, 1200, 3)
    assert numbers["valid"] + numbers["invalid"] == numbers["results"] == 1000
    assert numbers["invalid"] > 0


@pytest.mark.slow
@pytest.mark.chaos
def test_the_whole_example_ends_well() -> None:
    numbers = table()
    assert (numbers["trades"], numbers["sent"], numbers["results"]) == (10_000, 12_000, 10_000)


def test_the_code_of_the_messages_is_that_of_their_proto_file(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    assert protoc.main(["protoc", f"-I{EXAMPLE}", f"--python_out={tmp_path}", str(EXAMPLE / "trades.proto")]) == 0
    assert (tmp_path / "trades_pb2.py").read_text() == (EXAMPLE / "trades_pb2.py").read_text()
