"""What a newcomer meets first: make, the pinned packages, the set-up script."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def normal(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].replace("_", "-").lower()


def test_every_dependency_is_pinned():
    project = PROJECT["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    wanted = {normal(name) for name in [*project["dependencies"], *extras, *PROJECT["dependency-groups"]["dev"]]}
    pinned = {normal(line) for line in PINS.splitlines() if "==" in line}
    assert wanted - pinned == set()


def test_pins_are_versions_with_hashes_and_no_addresses():
    pin, known = r"[a-z0-9-]+==[\w.]+( ; .+)?", r"    --hash=sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"({pin}( \\\n{known})+\n)+", PINS)
    assert "://" not in PINS


def test_nothing_is_installed_without_its_hash():
    setup = (ROOT / "tools" / "setup").read_text(encoding="utf-8")
    installs = [line for line in setup.splitlines() if re.search(r"\b(pip|uv) install\b", line)]
    assert len(installs) == 5
    for line in installs:
        assert "--require-hashes" in line or "--no-deps --no-build-isolation -e ." in line


def test_an_audit_says_what_it_found_and_what_it_could_not_look_up():
    verdict = runpy.run_path(str(ROOT / "tools" / "audit"))["verdict"]
    fine = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}
    unknown = {"name": "c", "skip_reason": "not found"}
    assert verdict(json.dumps({"dependencies": [fine]})) == (0, "audit: 1 packages, none with a known vulnerability")
    assert verdict(json.dumps({"dependencies": [fine, bad]})) == (1, "audit: b 2: CVE-1\naudit: b 2: CVE-2")
    code, text = verdict(json.dumps({"dependencies": [fine, unknown]}))
    assert code == 2 and "1 of 2 packages were looked up" in text
    code, text = verdict("")
    assert code == 2 and "nothing was looked up" in text


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^make (\S+)", shown, re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())


@pytest.fixture
def machine(tmp_path: Path):
    """A machine made of the given commands, with the set-up script and what it reads in a repository of its own."""
    repository = tmp_path / "repository"
    (repository / "tools").mkdir(parents=True)
    (repository / "tools" / "setup").symlink_to(ROOT / "tools" / "setup")
    (repository / "constraints.txt").write_text("")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sh", "dirname", "sed", "grep", "id", "rm"):
        (commands / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")

    def setup(**scripts: str) -> subprocess.CompletedProcess[str]:
        for name, body in scripts.items():
            command = commands / name.replace("_", ".")
            command.unlink(missing_ok=True)
            command.write_text(f"#!/bin/sh\n{body}\n")
            command.chmod(0o755)
        environment = {"PATH": str(commands), "HOME": str(tmp_path)}
        return subprocess.run(
            ["sh", str(repository / "tools" / "setup")], env=environment, capture_output=True, text=True, check=False
        )

    return setup


GOOD_PYTHON = 'case "$*" in *print*) echo python3.11-venv ;; *"-m venv"*) echo made-venv >&2; exit 9 ;; esac'
OLD_PYTHON = "exit 1"
JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
JAVA_8 = """echo 'java version "1.8.0_392"' >&2"""
NOT_ROOT = "echo 1000"


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_without_a_new_enough_python_setup_says_so_at_once(machine):
    assert "Python 3.11 or newer is needed" in one_sentence(machine(python3=OLD_PYTHON, java=JAVA_17))


@pytest.mark.parametrize("java", [JAVA_8, "exit 127"])
def test_without_java_and_without_the_right_to_install_it_setup_says_what_to_install(machine, java):
    line = one_sentence(machine(python3=GOOD_PYTHON, java=java, id=NOT_ROOT))
    assert "sudo apt-get install openjdk-17-jre-headless)" in line


def test_a_python_without_venv_is_noticed_before_anything_slow(machine):
    no_venv = 'case "$*" in *ensurepip*) exit 1 ;; *print*) echo python3.11-venv ;; esac'
    assert "sudo apt-get install python3.11-venv)" in one_sentence(machine(python3=no_venv, java=JAVA_17, id=NOT_ROOT))


def test_with_python_and_java_setup_goes_on_to_make_the_venv(machine):
    done = machine(python3=GOOD_PYTHON, java=JAVA_17)
    assert "made-venv" in done.stderr
    assert "apt-get" not in done.stderr


def test_root_on_debian_gets_java_installed(machine):
    if not Path("/etc/debian_version").exists():
        pytest.skip("not Debian")
    done = machine(python3=GOOD_PYTHON, java="exit 127", id="echo 0", **{"apt-get": 'echo "apt $*" >&2; exit 1'})
    assert "installing openjdk-17-jre-headless with apt-get" in done.stderr
    assert "installing default-jre-headless with apt-get" in done.stderr
    assert "could not be installed" in done.stderr


def test_ci_runs_what_make_runs():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in ci
    assert "make lint" in ci
    assert "make test " in ci
    assert "make docs" in ci
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
