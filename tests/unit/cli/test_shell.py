"""The command as a whole: exit codes, errors in one line, a quick start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"pyspark", "deltalake", "duckdb", "pyarrow", "rich", "pyhocon", "pydantic", "psycopg", "apsw"}


def test_help_lists_every_command_and_loads_nothing_heavy():
    script = (
        "import sys, json; from ticklake.cli import cli; cli.main(['--help'], standalone_mode=False);"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for command in ("config", "init", "runs", "sql", "status"):
        assert f"\n  {command} " in done.stdout
    assert set(json.loads(done.stderr)).isdisjoint(HEAVY)


def test_the_package_itself_loads_nothing_heavy():
    """Whoever needs only the version, or topics, does not pay for Spark."""
    script = (
        "import sys, json, ticklake; before = [name for name in sys.modules if name.startswith('ticklake.')];"
        "ticklake.__version__, dir(ticklake); print(json.dumps([before, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    own, loaded = json.loads(done.stdout)
    assert own == []
    assert set(loaded).isdisjoint(HEAVY | {"numpy", "google.protobuf", "click"})


@pytest.mark.parametrize(("face", "unneeded"), [("lake.flush", "pandas"), ("lake.read", "duckdb")])
def test_a_room_of_the_lake_does_not_load_what_only_some_of_its_users_need(face: str, unneeded: str):
    script = f"import sys, ticklake.{face}; print({unneeded!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_failure_is_one_line_and_exit_code_1(process, tmp_path):
    done = process("sql", "SELECT 1", "--lake", tmp_path / "none")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: No lake at {tmp_path}/none: the directory does not exist. Give the one that the indexers write to.\n"
    )


def test_a_failing_file_system_is_one_line_too(process, tmp_path):
    (tmp_path / "file").write_text("")
    done = process("init", tmp_path / "file" / "below")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["nonsense"], ["runs"], ["sql"], ["sql", "SELECT 1", "--limit", "-1"]])
def test_wrong_usage_is_exit_code_2(process, arguments):
    done = process(*arguments)
    assert done.returncode == 2
    assert "Usage: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_the_packages(process):
    from importlib.metadata import version

    assert process("--version").stdout == f"ticklake {version('ticklake')}\n"


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path, lake):
    query = "SELECT * FROM range(30000)"
    command = f"{sys.executable} -c 'from ticklake.cli import main; main()' sql '{query}' --lake {lake} --format csv"
    done = subprocess.run(["bash", "-c", f"{command} | head -2"], capture_output=True, text=True, check=True)
    assert done.stdout == "range\n0\n"
    assert done.stderr == ""
