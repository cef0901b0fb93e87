from __future__ import annotations

from collections.abc import Sequence

import pytest

from ticklake.events import Event, EventBus

EVENT = Event("e", "t")


class Diary:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def subscriber(self, name: str, *, fails: bool = False) -> Diary.Subscriber:
        return Diary.Subscriber(self, name, fails)

    class Subscriber:
        def __init__(self, diary: Diary, name: str, fails: bool) -> None:
            self._diary, self._name, self._fails = diary, name, fails

        def __call__(self, events: Sequence[Event]) -> Diary.Subscriber:
            if self._fails:
                raise ValueError(self._name)
            self._diary.lines.append(f"{self._name} got {len(events)}")
            return self

        def wait(self) -> None:
            self._diary.lines.append(f"{self._name} waited for")


def test_everyone_has_the_event_before_anyone_is_waited_for() -> None:
    bus, diary = EventBus(), Diary()
    for name in ("a", "b"):
        bus.subscribe(diary.subscriber(name))
    bus.publish_many([EVENT, EVENT])
    assert diary.lines == ["a got 2", "b got 2", "a waited for", "b waited for"]


def test_nobody_is_waited_for_when_the_publisher_says_so() -> None:
    bus, diary = EventBus(), Diary()
    bus.subscribe(diary.subscriber("a"))
    bus.publish(EVENT, wait=False)
    assert diary.lines == ["a got 1"]


def test_a_subscriber_that_fails_keeps_the_event_from_nobody_else() -> None:
    bus, diary = EventBus(), Diary()
    bus.subscribe(diary.subscriber("bad", fails=True))
    bus.subscribe(diary.subscriber("good"))
    with pytest.raises(ValueError, match="bad"):
        bus.publish(EVENT)
    assert diary.lines == ["good got 1", "good waited for"]


def test_a_subscriber_may_be_a_plain_function() -> None:
    bus, got = EventBus(), list[Event]()
    subscription = bus.subscribe(got.extend)
    bus.publish(EVENT)
    assert got == [EVENT]
    assert bus.unsubscribe(subscription)
    assert not bus.unsubscribe(subscription)
    bus.publish(EVENT)
    assert got == [EVENT]
