"""A topic with several publishers of batches, several groups and several readers in each, under faults and operators'
acts; every message is accounted for, to the last one.

It ends in peace: nobody publishes, everybody reads until nothing is left. Then what was sent must be what was
delivered, in every group; the lag must have agreed with the account; retention must remove only what was delivered.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import psycopg
from account import Account, lines, some
from crew import Crew, wait
from pipeline import Server
from post_child import LEASE, TOPIC, Journal, Place, Sender, claim, publish, read
from report import Findings, Script

from ticklake import Database
from ticklake.database.names import schema_name
from ticklake.topics import Run

ACTS = {
    "pause": 3,  # a publisher stands still in the middle of whatever it does
    "kill publisher": 2,
    "kill reader": 2,
    "zombie": 1,  # a reader stands still for longer than its lease
    "reset": 3,  # an operator sets a group back to the earliest message, to the end, to a time
    "join": 2,  # a new group starts at the end; later it is set back to the earliest message
    "retention": 2,
    "clock": 1,  # set back by an hour, for everybody
    "fork": 2,  # a publisher in a transaction, or a reader with claims, forks a process that uses what it has opened
}
ON_SQLITE = {
    "move": 1,  # the file of the run is moved away under living publishers, at the end of the scene
}
ON_A_SERVER = {
    "overtake": 4,  # of two transactions at once, the one that began later also commits later
    "foreign": 2,  # a transaction of somebody else stays open
    "vacuum": 1,
    "cut": 1,  # all connections
    "restart": 1,
}
GROUPS = ("steady", "again", "hops")
"""`again` is set back to the earliest message, `hops` to the end or to a time, `steady` nowhere."""
GROUPS_AT_MOST = 4
SMALL = 5
SENDS_AN_ACT = 6
"""By each publisher, before the next act."""
PATIENCE = 20.0


def play(
    root: Path, url: str, run_id: str, seed: int, acts: int, *, server: Server | None = None, only: Collection[str] = ()
) -> Findings:
    scene = Post(root, url, run_id, seed, server)
    script = Script(ACTS | (ON_A_SERVER if server else ON_SQLITE), scene.rng, only)
    try:
        scene.begin()
        for _ in range(acts if script else 0):
            scene.wait_for_messages()
            scene.act(script.draw())
        scene.wait_for_messages()
        scene.end()
    except TimeoutError as error:
        scene.complain(str(error))
    finally:
        scene.crew.close()
    return scene.findings


class Post:
    def __init__(self, root: Path, url: str, run_id: str, seed: int, server: Server | None) -> None:
        self.crew, self.rng, self.findings = Crew(root), random.Random(seed), Findings()
        self._place = Place(root, url, run_id, seed)
        self._server = server
        self._account = Account()
        # Few are as telling as many: where everybody writes all the time, some races are never lost.
        others = self.rng.sample(GROUPS[1:], self.rng.randint(0, 2))
        self._readers = {group: self.rng.randint(1, 2) for group in ("steady", *others)}
        self._publishers = self.rng.randint(2, 4)
        self._reads: dict[str, str] = {}
        self._lives = 0
        self._clock_is_wrong = self._moving = False
        self._guests: list[Any] = []
        self._journal, self._sent = Journal(root / "p0.sent"), 0

    def begin(self) -> None:
        with self._run() as run:
            for group in self._readers:
                run.reader(TOPIC, group=group).close()
                self._account.groups[group]
        for _ in range(self._publishers):
            self._publisher()
        self._start_readers()

    def act(self, name: str) -> None:
        self.findings.acts[name] += 1
        getattr(self, f"_{name.replace(' ', '_')}")()

    def complain(self, what: str) -> None:
        acts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.acts.items()))
        self.findings.complaints.append(f"seed {self._place.seed}: {what} (acts: {acts})")

    def wait_for_messages(self) -> None:
        """Every publisher has had time for another one, and every reader for another look."""
        self._replace_dead()
        before = {name: self._outcomes(name) for name in self._names("p")}
        self._wait(
            lambda: all(
                self._outcomes(name) >= done + SENDS_AN_ACT for name, done in before.items() if self.crew.alive(name)
            ),
            "a publisher is stuck",
        )

    def end(self) -> None:
        """No more messages: the lag must say what is open, and in the end nothing may be."""
        (self._place.folder / "enough").touch()
        for name in self._names("p"):
            self._wait(lambda name=name: not self.crew.alive(name), f"{name} does not end")
            self.crew.end(name)
        for name in self._names("r"):
            self.crew.end(name)
        self._send_guests_home()
        self._check_lag()
        self._start_readers()
        self._drain()
        for name in self._names("r"):
            self.crew.end(name)
        account = self._account.read(self._place.folder)
        self.findings.figures.update(
            sent=len(account.sent), rolled_back=len(account.undone), uncertain=len(account.unknown),
            delivered=sum(len(got) for got in account.got.values()), groups=len(account.groups),
        )  # fmt: skip
        for complaint in account.complaints():
            self.complain(complaint)
        forks = self._place.folder / "forks"
        for what in {what for _, what in (lines(forks) if forks.exists() else ())} - {"refused"}:
            self.complain(f"a forked process used what its parent had opened: {what}")
        self._retention(0)
        if wrong := {key for group in account.groups for key in account.lost(group) if key in self._account.removed}:
            self.complain(f"retention removed {len(wrong):,} that a group never got, {some(wrong)}")
        if self._moving:
            self._move_away()

    # Faults

    def _pause(self) -> None:
        """Until the others have sent more. On SQLite he may keep the lock: then nobody can."""
        name, *others = self.rng.sample(names := self._names("p"), len(names))
        before = {other: self._outcomes(other) for other in others}
        self.crew.freeze(name, LEASE, lambda: any(self._outcomes(other) > done for other, done in before.items()))

    def _kill_publisher(self) -> None:
        self.crew.end(self.rng.choice(self._names("p")))
        self._publisher()

    def _kill_reader(self) -> None:
        name = self.rng.choice(self._names("r"))
        self.crew.end(name)
        self._reader(self._reads[name])

    def _zombie(self) -> None:
        self.crew.freeze(self.rng.choice(self._names("r")), 1.5 * LEASE)

    def _fork(self) -> None:
        """The child must be refused, and its end must not disturb its parent."""
        forks = self._place.folder / "forks"
        before = _count(forks)
        name = self.rng.choice(self._names("p") + self._names("r"))
        self.crew.send(name, signal.SIGUSR1)
        self._wait(lambda: _count(forks) > before or not self.crew.alive(name), "a process that was to fork does not")

    def _cut(self) -> None:
        assert self._server
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        self._server.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others};")
        self._send_guests_home()

    def _restart(self) -> None:
        assert self._server
        self._send_guests_home()
        begun = time.monotonic()
        self._server.restart()
        self._account.downtimes.append((begun, time.monotonic()))

    def _send_guests_home(self) -> None:
        while self._guests:
            self._guests.pop().close()

    def _overtake(self) -> None:
        with self._frozen(), self._interleaved():
            self._quiet(lambda: not any(self._lags().values()))

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """A quiet moment: no publisher moves, and the readers have caught up. (On SQLite one would keep the lock.)"""
        for name in self._names("p") if self._server else ():
            self.crew.send(name, signal.SIGSTOP)
        self._quiet(lambda: not any(self._lags().values()))
        yield
        for name in self._names("p"):
            self.crew.send(name, signal.SIGCONT)

    @contextmanager
    def _interleaved(self) -> Iterator[None]:
        """Of two transactions the younger one takes ids between those of the older one, and commits at the end.

        All that is committed first is few enough for a single claim. SQLite has one writer at a time: nothing happens.
        """
        if not self._server:
            yield
            return
        older, younger = Sender(self._place, self._journal), Sender(self._place, self._journal)
        older.send(self._taken(SMALL))
        younger.send(self._taken(SMALL))
        older.send(self._taken(SMALL))
        older.commit()
        yield
        younger.commit()

    def _quiet(self, condition: Callable[[], bool]) -> None:
        """Waits for the readers, if they are quick."""

        def quiet() -> bool:
            self._replace_dead()
            return condition()

        wait(3 * LEASE, quiet)

    def _taken(self, count: int) -> range:
        keys = range(self._sent, self._sent + count)
        self._sent = keys.stop
        return keys

    # What operators do

    def _reset(self, group: str = "") -> None:
        group = group or self.rng.choice([name for name in self._readers if name != "steady"] or ["steady"])
        to: str | datetime = "earliest"
        if group == "hops":
            back = timedelta(seconds=self.rng.uniform(0.2, 2))
            to = "end" if self._clock_is_wrong or self.rng.random() < 0.5 else datetime.now(UTC) - back
        begun = time.monotonic()
        with self._run() as run:
            run.groups.reset(TOPIC, group, to)
            ended = time.monotonic()
        since = -inf if to == "earliest" else ended if to == "end" else begun - back.total_seconds()
        self._account.groups[group].reset(begun, ended, since)

    def _join(self) -> None:
        """While something is about to commit that lies behind the end. Often the operator thinks better of it."""
        if len(self._readers) == GROUPS_AT_MOST:
            self._reset()
            return
        group = f"joined{len(self._readers)}"
        with self._frozen():
            with self._interleaved():
                with self._run() as run:
                    run.reader(TOPIC, group=group, start="end").close()
                self._account.groups[group].since = time.monotonic()
                self._readers[group] = 1
                self._reader(group)
            self._quiet(lambda: bool([*self._place.folder.glob(f"*.{group}.read")]) and not self._lags()[group])
            if self.rng.random() < 0.7:
                self._reset(group)

    def _retention(self, keep: int = 300) -> None:
        """Written down is what was accepted and is not there after. The publishers go on all the while."""
        with self._run() as run:
            run.remove_outdated(TOPIC, max_count=keep)
            accepted = set(Account().read(self._place.folder).sent)
            gone = accepted - self._stored(run)
        self._account.removed |= dict.fromkeys(gone - self._account.removed.keys(), time.monotonic())

    def _clock(self) -> None:
        """An hour back. Somebody has just claimed a few and died: by the clock, they are his for another hour."""
        if not self._clock_is_wrong:
            self._claim_and_die()
        self._clock_is_wrong = True
        if self._server:
            self._server.psql(
                f'SET search_path TO "{schema_name(self._place.run_id)}"; '
                "CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS "
                "$$ BEGIN RETURN clock_timestamp() - interval '1 hour'; END $$;"
            )
        else:
            (self._place.folder / "clock").write_text("-3600")

    def _claim_and_die(self) -> None:
        self._lives += 1
        name = f"c{self._lives}"
        journal = self._place.folder / f"{name}.steady.read"
        self.crew.start(name, claim, self._place, name, "steady")
        self._wait(lambda: journal.exists() and journal.stat().st_size > 0, "nothing can be claimed")
        self.crew.end(name)

    def _foreign(self) -> None:
        """It has a number, so that snapshots keep it, and the server may forget nothing that came after it."""
        self._guests.append(psycopg.connect(self._place.url))
        self._guests[-1].execute("SELECT pg_current_xact_id()")

    def _vacuum(self) -> None:
        assert self._server
        self._server.psql(f'VACUUM ANALYZE "{schema_name(self._place.run_id)}".topic_messages;')

    def _move(self) -> None:
        self._moving = True

    def _move_away(self) -> None:
        """At the end, under living publishers: what is accepted must be in the database that is there."""
        (self._place.folder / "enough").unlink()
        names = [self._publisher() for _ in range(2)]
        self._wait(lambda: all(self._outcomes(name) > 2 for name in names), "a publisher does not begin")
        moved = self._place.folder / "moved"
        moved.mkdir()
        directory = Path(self._place.url.removeprefix("sqlite:///"))
        for file in directory.glob(f"{schema_name(self._place.run_id)}*"):
            file.rename(moved / file.name)
        at, before = time.monotonic(), {name: self._outcomes(name) for name in names}
        self._wait(
            lambda: all(self._outcomes(name) > before[name] + 5 or not self.crew.alive(name) for name in names),
            "a publisher is stuck after the database was moved away",
        )
        for name in names:
            self.crew.end(name)
        account = Account().read(self._place.folder)
        with self._run() as run:
            lost = {key for key, begun in account.sent.items() if begun > at} - self._stored(run)
        if lost:
            self.complain(f"{len(lost):,} were accepted after the database had been moved away, and are in none")

    # The scene

    def _publisher(self) -> str:
        self._lives += 1
        name = f"p{self._lives}"
        self.crew.start(name, publish, self._place, name)
        return name

    def _reader(self, group: str) -> None:
        self._lives += 1
        name = f"r{self._lives}"
        self._reads[name] = group
        self.crew.start(name, read, self._place, name, group)

    def _start_readers(self) -> None:
        for group, count in self._readers.items():
            for _ in range(count):
                self._reader(group)

    def _drain(self) -> None:
        """Until no group has a lag. Whoever dies is replaced; if nothing moves for a while, that is the finding."""
        seen = self._lags()
        while any(seen.values()):
            self._replace_dead()
            if not wait(PATIENCE, lambda seen=seen: self._lags() != seen, every=0.05):  # type: ignore[misc]
                stuck = ", ".join(f"{group} with a lag of {lag:,}" for group, lag in seen.items() if lag)
                self.complain(f"stood still for {PATIENCE:.0f} s: {stuck}; {self.crew.last_error()}")
                return
            seen = self._lags()

    def _check_lag(self) -> None:
        """Nobody moves: each group's lag is between what it was not given and what it did not acknowledge."""
        account = self._account.read(self._place.folder)
        for group, lag in self._lags().items():
            low, high = account.owed(group)
            known = group in ("steady", "again")
            if lag < low or (known and lag > high):
                between = f"{low:,} to {high:,}" if known else f"{low:,} or more"
                self.complain(f"group {group}: its lag is {lag:,}, and by the account {between} are open")

    def _lags(self) -> dict[str, int]:
        with self._run() as run:
            return {status.group: status.lag for status in run.groups.list(TOPIC)}

    @staticmethod
    def _stored(run: Run) -> set[str]:
        found: set[str] = set()
        after = 0
        while page := run.browse(TOPIC, after=after, limit=5_000):
            found |= {str(stored.opened().payload.storage_key) for stored in page}  # type: ignore[union-attr]
            after = page[-1].id
        return found

    @contextmanager
    def _run(self) -> Iterator[Run]:
        with Database(self._place.url, max_pool_size=1, min_idle=0) as database:
            yield database.run(self._place.run_id)

    def _outcomes(self, name: str) -> int:
        file = self._place.folder / f"{name}.sent"
        return sum(line[1] != "try" for line in lines(file)) if file.exists() else 0

    def _replace_dead(self) -> None:
        for name in [name for name in self.crew.processes if not self.crew.alive(name)]:
            self.crew.end(name)
            if name in self._reads:
                self._reader(self._reads[name])
            else:
                self._publisher()

    def _names(self, kind: str) -> list[str]:
        return [name for name in self.crew.processes if name.startswith(kind)]

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        if not wait(PATIENCE, condition, every=0.02):
            raise TimeoutError(f"{otherwise}; {self.crew.last_error()}")


def _count(journal: Path) -> int:
    return len([*lines(journal)]) if journal.exists() else 0
