"""What many processes did with a topic could have happened one step at a time; the checker sees where it could not."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import topic_clients
from histories import Act, Unanswered, check

LEASE, SEED, SOME = 10.0, 7, 2_000


def send(begun: float = 0, answer: bool | None = True) -> Act:
    return Act("send", "w", begun, begun + 1 if answer else inf, answer=answer)


def claim(by: str, begun: float, version: int, attempts: int | None = None) -> Act:
    return Act("claim", by, begun, begun + 1, version, version if attempts is None else attempts)


def act(kind: str, by: str, begun: float, version: int, answer: bool | None = True) -> Act:
    return Act(kind, by, begun, begun + 1 if answer is not None else inf, version, answer=answer)


def end(answer: bool = True) -> Act:
    return Act("end", "", 1000, 1001, answer=answer)


LOST = Unanswered("dead", 2, 3, 1)
ABSENT = Act("absent", "", inf, inf)

POSSIBLE = {
    "sent, claimed, acknowledged": [send(), claim("a", 2, 1), act("ack", "a", 4, 1), end()],
    "an ack repeated": [send(), claim("a", 2, 1), act("ack", "a", 4, 1), act("ack", "a", 6, 1), end()],
    "taken over after the lease": [send(), claim("a", 2, 1), claim("b", 11, 2), act("ack", "b", 14, 2), end()],
    "taken over, and the late ack refused": [
        send(), claim("a", 2, 1), claim("b", 13, 2), act("ack", "a", 15, 1, False), act("ack", "b", 17, 2), end()
    ],
    "a late ack that nobody was faster than": [send(), claim("a", 2, 1), act("ack", "a", 100, 1), end()],
    "given back and taken at once": [
        send(), claim("a", 2, 1), act("release", "a", 4, 1), claim("b", 5, 2, 1), act("ack", "b", 7, 2), end()
    ],
    "held longer by an extension": [
        send(), claim("a", 2, 1), act("extend", "a", 9, 1), claim("b", 19, 2), act("ack", "b", 22, 2), end()
    ],
    "claimed while it is sent": [
        Act("send", "w", 0, 9), claim("a", 2, 1), act("ack", "a", 4, 1), end()
    ],
    "two acts at the same time, in the order that fits": [
        send(), claim("a", 2, 1), Act("ack", "a", 12, 20, 1, answer=False), Act("claim", "b", 12, 20, 2, 2),
        act("ack", "b", 21, 2), end()
    ],
    "an ack that was killed and had its effect": [send(), claim("a", 2, 1), act("ack", "a", 4, 1, None), end()],
    "an ack that was killed and had none": [
        send(), claim("a", 2, 1), act("ack", "a", 4, 1, None), claim("b", 13, 2), act("ack", "b", 15, 2), end()
    ],
    "a release that was killed and had its effect": [
        send(), claim("a", 2, 1), act("release", "a", 4, 1, None), claim("b", 6, 2, 1), act("ack", "b", 8, 2), end()
    ],
    "a send that was killed and had none": [send(answer=None), ABSENT],
    "a send that was killed and had its effect": [send(answer=None), claim("a", 2, 1), act("ack", "a", 4, 1), end()],
    "a claim that was killed and had its effect": [send(), claim("b", 13, 2), act("ack", "b", 15, 2), end()],
}  # fmt: skip

IMPOSSIBLE = {
    "claimed by two at once": [send(), claim("a", 2, 1), claim("b", 5, 2), act("ack", "b", 8, 2), end()],
    "claimed by two as one version": [send(), claim("a", 2, 1), claim("b", 13, 1, 2), act("ack", "b", 15, 1), end()],
    "a version that falls": [send(), claim("a", 2, 2, 1), claim("b", 13, 1, 2), act("ack", "b", 15, 1), end()],
    "acknowledged twice": [
        send(), claim("a", 2, 1), claim("b", 13, 2), act("ack", "a", 15, 1), act("ack", "b", 17, 2), end()
    ],
    "a stale ack accepted": [send(), claim("a", 2, 1), claim("b", 13, 2), act("ack", "a", 15, 1), end()],
    "an ack accepted of what was given back": [
        send(), claim("a", 2, 1), act("release", "a", 4, 1), act("ack", "a", 6, 1), end()
    ],
    "an ack accepted of another's claim": [send(), claim("a", 2, 1), act("ack", "b", 4, 1), end()],
    "a good ack refused": [send(), claim("a", 2, 1), act("ack", "a", 4, 1, False), claim("b", 13, 2), end()],
    "delivered after an ack": [
        send(), claim("a", 2, 1), act("ack", "a", 4, 1), claim("b", 13, 2), act("ack", "b", 15, 2), end()
    ],
    "taken over during an extension": [
        send(), claim("a", 2, 1), act("extend", "a", 9, 1), claim("b", 13, 2), act("ack", "b", 15, 2), end()
    ],
    "an extension of what was lost": [
        send(), claim("a", 2, 1), claim("b", 13, 2), act("extend", "a", 15, 1), act("ack", "b", 17, 2), end()
    ],
    "lost": [send(), ABSENT],
    "lost after its claim": [send(), claim("a", 2, 1), ABSENT],
    "never delivered": [send(), end(False)],
    "acknowledged by nobody": [send(), claim("a", 2, 1), end()],
    "delivered before it was sent": [send(5), claim("a", 2, 1), act("ack", "a", 8, 1), end()],
    "from nowhere": [claim("a", 2, 1), act("ack", "a", 4, 1), end()],
    "an attempt too many": [send(), claim("a", 2, 1, 2), act("ack", "a", 4, 1), end()],
    "a claim that nobody can have got": [send(5), claim("b", 7, 2), act("ack", "b", 9, 2), end()],
}  # fmt: skip


@pytest.mark.parametrize("acts", POSSIBLE.values(), ids=POSSIBLE)
def test_what_has_an_order_is_accepted(acts: list[Act]) -> None:
    assert list(check({"m": acts}, [LOST], LEASE)) == []
    assert list(check({"m": acts[::-1]}, [LOST], LEASE)) == []


@pytest.mark.parametrize("acts", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_has_none_is_refused(acts: list[Act]) -> None:
    (violation,) = check({"m": acts, "fine": POSSIBLE["an ack repeated"]}, [LOST], LEASE)
    assert violation.message == "m"
    assert "m: " in str(violation)


def test_no_more_claims_got_lost_than_the_killed_can_have_made() -> None:
    hidden = POSSIBLE["a claim that was killed and had its effect"]
    assert list(check({"m": hidden}, [LOST], LEASE)) == []
    assert [violation.message for violation in check({"m": hidden, "n": hidden}, [LOST], LEASE)] == ["all"]


@pytest.mark.timeout(10)
def test_a_history_of_many_at_once_is_searched_in_a_moment() -> None:
    """Acts that all overlap, of which only one order fits; then none."""
    claims = [Act("claim", f"c{n}", 1 + 11 * n, 1000, n + 1, n + 1) for n in range(60)]
    acts = [Act("send", "w", 0, 1000), *claims, Act("ack", "c59", 999, 1000, 60), end()]
    assert list(check({"m": acts}, [], LEASE)) == []
    assert [*check({"m": [*acts, Act("ack", "c58", 999, 1000, 59)]}, [], LEASE)]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.mark.chaos
@pytest.mark.parametrize("acts", [SOME, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_what_processes_did_with_a_topic_has_an_order(tmp_path: Path, url: str, acts: int) -> None:
    acts -= 1_000 if acts == SOME and not url.startswith("sqlite") else 0  # a client takes longer to connect there
    report = topic_clients.play(tmp_path / "acts", url, uuid4().hex, acts, SEED)
    assert not report.violations, "\n".join(map(str, report.violations))
    assert report.acts >= acts
    assert report.histories > acts / 10
    assert report.killed >= acts // 1000 - SOME // 1000
    assert report.refused


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("bug", topic_clients.BUGS)
def test_a_bug_that_is_planted_leaves_a_history_that_is_refused(tmp_path: Path, bug: str) -> None:
    report = topic_clients.play(tmp_path / "acts", f"sqlite:///{tmp_path / 'db'}", "r", 1_500, SEED, bug)
    assert report.violations
