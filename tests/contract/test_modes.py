"""Files and folders have the mode that their user's umask gives them: no more, and no less."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
# All that a pipeline makes: storage, database, wake-ups, lake, a node's lock and token, a queue, a configuration.
WORK = """
import json, os, sys
from pathlib import Path
root, tests, umasks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
sys.path[:0] = [str(tests / "crash"), str(tests / "web")]
import indexed
from click.testing import CliRunner
from ticklake.cli import cli
from ticklake.events import Event, IndexerQueue
from ticklake.node.instance import Instance
from ticklake.topics import Database
from ticklake.web.security.guard import find_token

def work(root):
    url = indexed.make_run(root, shape=(16, 16), ticks=40, organisms=3)
    for command in (["optimize"], ["vacuum", "--older-than", "0h", "--force"]):
        done = CliRunner().invoke(cli, [*command, "--lake", str(root / "lake")])
        assert done.exit_code == 0, (done.output, done.exception)
    assert CliRunner().invoke(cli, ["init", str(root / "config")]).exit_code == 0
    Instance(root / "node", "node").acquire()
    find_token("localhost", root / "node", {})
    queue = IndexerQueue(root / "queue" / "events.db")
    queue.start()
    queue.offer([Event.new("tick")])
    with Database(url) as database:
        listener = database.run(indexed.RUN_ID).listen("batch-topic")
        found = [(str(path.relative_to(root)), path.lstat().st_mode) for path in root.rglob("*")]
        listener.close()
    queue.stop()
    return found

modes = {}
for umask in umasks:
    os.umask(int(umask, 8))
    modes[umask] = work(root / umask)
print(json.dumps(modes))
"""
TOKEN = "node/http-token"


def test_every_file_has_the_mode_of_its_user(tmp_path: Path) -> None:
    umasks = [0o002, 0o027, 0o077]
    command = [sys.executable, "-c", WORK, str(tmp_path), str(TESTS), *map(oct, umasks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for umask in umasks:
        modes = dict(found[oct(umask)])
        assert stat.S_IMODE(modes.pop(TOKEN)) == 0o600
        assert {path.partition("/")[0] for path in modes} == {"storage", "database", "lake", "config", "node", "queue"}
        assert any(path.endswith("-wal") for path in modes)
        assert any(stat.S_ISSOCK(mode) for mode in modes.values())
        assert {path: oct(mode) for path, mode in modes.items() if not fits(mode, umask)} == {}


def fits(mode: int, umask: int) -> bool:
    """SQLite makes its files with 644, whatever more the umask would allow."""
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
        return stat.S_IMODE(mode) == 0o777 & ~umask
    return stat.S_IMODE(mode) in (0o666 & ~umask, 0o644 & ~umask)
