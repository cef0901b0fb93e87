"""Processes that send, claim, acknowledge, extend and release at random, are killed and stopped, and write down each
act before and after it, each to its own file: `topic_clients.py FOLDER URL RUN ACTS SEED BUG`.

A line is `[number, time, kind, group, asked]`, and then `[number, time, answer]`. Times are of the monotonic clock, one
for all processes of a machine. `play` records, and checks what was recorded (see `histories.py`).
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from histories import Act, Unanswered, Violation, check

from ticklake import BatchInfo, Database
from ticklake.database.statements import statements

TOPIC, GROUPS = "t", ("g", "h")
CLIENTS, LEASE, BATCH = 6, 0.4, 6
PAUSE = 0.06
"""Seconds between faults, about."""
LIFE = (2_000, 30_000)
"""Bytes that a client has written when it may be killed."""
GRACE = 10.0
"""Seconds for which PostgreSQL may go on with the statement of a client that was killed."""
PATIENCE = 120.0
BUGS = {
    "an ack without fence": ("ack", r"AND (claimed_by = :consumer|claim_version = :version)", ""),
    "leases ignored": ("expire", r"AND available_at <> 0 AND available_at <= now_ms\(\)", ""),
    "a message skipped": ("advance", r"SET frontier = (:\w+)", r"SET frontier = \1 + (\1 % 10 = 0)"),
}


class Report(NamedTuple):
    """What one recording, or several, have shown."""

    acts: int = 0
    histories: int = 0
    killed: int = 0
    refused: int = 0
    violations: Sequence[Violation] = ()

    def __str__(self) -> str:
        acts, wrong = f"{self.acts:,} acts in {self.histories:,} histories", len(self.violations)
        return f"{acts}, {self.killed:,} clients killed, {self.refused:,} acks refused, violations {wrong:,}"


def play(folder: Path, url: str, run_id: str, acts: int, seed: int, bug: str = "") -> Report:
    """Records at least as many acts and checks them."""
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, str(folder), url, run_id, str(acts), str(seed), bug]
    with subprocess.Popen(command, start_new_session=True) as herd:
        try:
            assert herd.wait() == 0, "see above"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(herd.pid, signal.SIGKILL)
    recording = Recording(folder, 0.0 if url.startswith("sqlite") else GRACE)
    violations = list(check(recording.histories, recording.unanswered, LEASE))
    refused = sum(act.kind == "ack" and act.answer is False for acts in recording.histories.values() for act in acts)
    return Report(recording.acts, len(recording.histories), len(recording.killed), refused, violations)


class Recording:
    """The files of a folder, as a history of each message in each group."""

    def __init__(self, folder: Path, grace: float) -> None:
        self.acts = 0
        self.histories: dict[str, list[Act]] = defaultdict(list)
        self.unanswered: list[Unanswered] = []
        self.killed: dict[str, float] = json.loads((folder / "killed.json").read_text())
        for file in sorted(folder.glob("*.jsonl")):
            self._add(file, self.killed.get(file.stem, 0.0) + grace)
        for acts in self.histories.values():
            if not any(act.kind == "end" for act in acts):
                acts.append(Act("absent", "nobody", inf, inf))

    def _add(self, file: Path, last: float) -> None:
        by, lines = file.stem, written(file)
        answers = {line[0]: line[1:] for line in lines if len(line) == 3}
        for number, begun, kind, group, asked in (line for line in lines if len(line) == 5):
            ended, answer = answers.get(number, (last, None))
            self.acts += 1
            for message, act in _acts(Act(kind, by, begun, ended), asked, answer):
                for one in GROUPS if kind == "send" else (group,):
                    self.histories[f"{message} in {one}"].append(act)
            if kind == "claim" and answer is None:
                self.unanswered.append(Unanswered(by, begun, ended, asked))


def _acts(call: Act, asked: Any, answer: Any) -> Iterator[tuple[str, Act]]:
    """What a call did with each message."""
    if call.kind == "claim":
        for message, version, attempts in answer or ():
            yield message, call._replace(version=version, attempts=attempts)
    elif call.kind == "send":
        for message in asked:
            yield message, call._replace(answer=answer)
    else:
        for (message, version), done in zip(asked, answer or [None] * len(asked), strict=True):
            yield message, call._replace(version=version, answer=done)


def written(file: Path) -> list[Any]:
    """Each line; one without an end was cut off by a kill."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Journal:
    """An append-only file of acts."""

    def __init__(self, file: Path, group: str) -> None:
        self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        self._group = group
        self.acts = 0

    def act(self, kind: str, asked: Any, do: Callable[[], Any]) -> Any:
        self.acts += 1
        self._write(self.acts, time.monotonic(), kind, self._group, asked)
        answer = do()
        self._write(self.acts, time.monotonic(), answer)
        return answer

    def _write(self, *what: Any) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")


class Client:
    """Holds some messages, keeps others for too long, remembers some that it has lost, and acts at random."""

    def __init__(self, folder: Path, url: str, run_id: str, name: str, group: str, seed: int) -> None:
        self._run = Database(url, min_idle=0).run(run_id)
        self._name, self._group = name, group
        self._rng = random.Random(f"{seed} {name}")
        self._writer = self._run.writer(TOPIC)
        self._reader = self._run.reader(
            TOPIC, group=group, claim_timeout=LEASE, max_delivery_attempts=1_000_000, consumer=name
        )
        self._journal = Journal(folder / f"{name}.jsonl", group)
        self._sent = 0
        self._held: list[Any] = []
        self._late: list[tuple[float, Any]] = []
        self._gone: list[Any] = []

    def work(self, acts: int) -> None:
        kinds = {self._send: 3, self._claim: 8, self._ack: 8, self._extend: 3, self._release: 3, self._ack_late: 3}
        while self._journal.acts < acts:
            (act,) = self._rng.choices(list(kinds), list(kinds.values()))
            act()

    def drain(self) -> None:
        """Until everything is acknowledged, whoever held it; then a last look at each message."""
        deadline = time.monotonic() + PATIENCE
        while any(status.lag for status in self._run.groups.list(TOPIC) if status.group == self._group):
            assert time.monotonic() < deadline, f"{self._group} does not come to its end"
            self._claim(100, LEASE)
            self._all("ack", self._taken(100), self._reader.ack_many)
        after = 0
        while page := self._run.browse(TOPIC, after=after, limit=1000, group=self._group):
            keys = [(stored.opened().payload.storage_key, 0) for stored in page]  # type: ignore[union-attr]
            states = [stored.state == "acknowledged" for stored in page]
            self._journal.act("end", keys, states.copy)
            after = page[-1].id

    def _send(self) -> None:
        keys = [f"{self._name}.{self._sent + number}" for number in range(self._rng.randint(1, BATCH))]
        self._sent += len(keys)
        self._journal.act("send", keys, lambda: bool(self._writer.send_many(BatchInfo(storage_key=k) for k in keys)))

    def _claim(self, limit: int = 0, timeout: float = 0.0) -> None:
        limit = limit or self._rng.randint(1, BATCH)
        found: list[Any] = []

        def claim() -> list[tuple[str, int, int]]:
            found.extend(self._reader.poll_many(limit, timeout))
            return [(one.payload.storage_key, one.claim_version, one.attempts) for one in found]

        self._journal.act("claim", limit, claim)
        self._held += found

    def _ack(self) -> None:
        """Now and then one is kept until its lease is over."""
        messages = self._taken()
        if messages and self._rng.random() < 0.2:
            self._late.append((time.monotonic() + self._rng.uniform(0.5, 1.5) * LEASE, messages.pop()))
        self._all("ack", messages, self._reader.ack_many)
        self._gone = (self._gone + messages)[-20:]

    def _extend(self) -> None:
        messages = self._taken()
        self._all("extend", messages, self._reader.extend)
        self._held += messages

    def _release(self) -> None:
        messages = self._taken()
        self._all("release", messages, self._reader.release)
        self._gone = (self._gone + messages)[-20:]

    def _ack_late(self) -> None:
        """What was kept too long, and what was acknowledged or given back already."""
        due = [message for when, message in self._late if when < time.monotonic()]
        self._late = [(when, message) for when, message in self._late if message not in due]
        lost = self._rng.sample(self._gone, min(2, len(self._gone)))
        act = self._rng.choice([self._reader.ack_many, self._reader.ack_many, self._reader.extend])
        self._all("extend" if act == self._reader.extend else "ack", due + lost, act)

    def _taken(self, count: int = 0) -> list[Any]:
        count = count or self._rng.randint(1, BATCH)
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _all(self, kind: str, messages: Sequence[Any], do: Callable[[Sequence[Any]], list[bool]]) -> None:
        unique = {message.id: message for message in messages}
        if unique:
            asked = [(one.payload.storage_key, one.claim_version) for one in unique.values()]
            self._journal.act(kind, asked, lambda: do(list(unique.values())))


class Herd:
    """The clients, each forked from a process that has imported everything and done nothing else."""

    def __init__(self, folder: Path, url: str, run_id: str, acts: int, seed: int) -> None:
        self._folder, self._where, self._seed = folder, (url, run_id), seed
        self._rng = random.Random(seed)
        self._left = dict.fromkeys(range(CLIENTS), -(-acts // CLIENTS))
        self._lives = 0
        self.killed: dict[str, float] = {}

    def run(self) -> None:
        running = {number: self._start(number) for number in self._left}
        while running:
            time.sleep(self._rng.uniform(0.3, 1.7) * PAUSE)
            number = self._rng.choice(list(running))
            name, process = running[number]
            self._torment(name, process)
            if self._ended(name, process, os.WNOHANG):
                del running[number]
            if name in self.killed:
                self._left[number] -= sum(len(line) == 5 for line in written(self._journal(name)))
                running[number] = self._start(number)
        for number in range(len(GROUPS)):
            self._ended(*self._start(number, drain=True))
        (self._folder / "killed.json").write_text(json.dumps(self.killed))

    def _torment(self, name: str, process: int) -> None:
        journal = self._journal(name)
        if not journal.exists() or journal.stat().st_size < self._rng.randint(*LIFE):
            return  # nobody would get anywhere
        if self._rng.random() < 0.25:
            freeze(process)
            return
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)

    def _ended(self, name: str, process: int, how: int = 0) -> bool:
        found, status = os.waitpid(process, how)
        if not found:
            return False
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), f"{name} has failed"
        if status:
            self.killed[name] = time.monotonic()
        return True

    def _journal(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def _start(self, number: int, *, drain: bool = False) -> tuple[str, int]:
        """A client's name and process."""
        self._lives += 1
        name, group = f"{number}-{self._lives}", GROUPS[number % len(GROUPS)]
        if process := os.fork():
            return name, process
        status = 1
        try:
            client = Client(self._folder, *self._where, name, group, self._seed)
            client.drain() if drain else client.work(self._left[number])
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # without a goodbye: what it holds is left to expire


def freeze(process: int) -> None:
    """For longer than its lease: a zombie that wakes up."""
    os.kill(process, signal.SIGSTOP)
    time.sleep(1.5 * LEASE)
    os.kill(process, signal.SIGCONT)


def plant(bug: str) -> None:
    """Spoil a statement, in every process that is forked from this one."""
    name, right, wrong = BUGS[bug]
    known = statements("ticklake.topics", "sqlite")
    spoiled = re.sub(right, wrong, known[name])
    assert spoiled != known[name], f"the statement {name} has changed: plant the bug anew"
    known[name] = spoiled  # type: ignore[index]


def main() -> None:
    logging.getLogger("ticklake").setLevel(logging.CRITICAL)
    folder, url, run_id, acts, seed, bug = sys.argv[1:]
    if bug:
        plant(bug)
    Herd(Path(folder), url, run_id, int(acts), int(seed)).run()


if __name__ == "__main__":
    main()
