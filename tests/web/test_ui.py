"""`ticklake ui` as a process, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from ticklake.cli import cli
from ticklake.errors import WebMissing

COMMAND = [sys.executable, "-c", "from ticklake.cli import main; main()", "ui", "--port", "0"]


def test_it_serves_pages_with_a_token_of_its_own_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TICKLAKE_")}
    command = [*COMMAND, "--lake", str(tmp_path / "lake"), "--prefix", "/below"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as ui:
        try:
            assert ui.stderr is not None
            url, _, token = ui.stderr.readline().removeprefix("Listening on ").strip().partition("#token=")
            assert url.startswith("http://127.0.0.1:") and url.endswith("/below/") and len(token) > 30
            with httpx.Client(trust_env=False, headers={"authorization": f"Bearer {token}"}) as client:
                assert client.get(f"{url.rstrip('/')}/tables").status_code == 200
            ui.send_signal(signal.SIGTERM)
            assert ui.wait(60) == 0
        finally:
            ui.kill()


def test_a_prefix_that_is_no_path_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["ui", "--lake", str(tmp_path), "--prefix", "below/"])
    assert done.exit_code == 2
    assert "'below/' is not a path such as /ticklake." in done.output


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ticklake.web.server", None)
    done = CliRunner().invoke(cli, ["ui", "--lake", str(tmp_path)])
    assert isinstance(done.exception, WebMissing)
