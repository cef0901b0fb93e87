from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from ticklake import BatchInfo
from ticklake.consumer.deliveries import Delivery, first_of_each_event
from ticklake.topics import Message


def delivery(event: int) -> Delivery:
    return Delivery(str(event), Message(str(uuid4()), "t", BatchInfo(), 0, 1, 1))


@given(st.lists(st.integers(0, 5)))
def test_the_first_of_each_event_goes_ahead_of_its_twins_in_the_same_order(events: list[int]) -> None:
    deliveries = [delivery(event) for event in events]
    firsts, twins = first_of_each_event(deliveries)
    assert [int(one.event_id) for one in firsts] == list(dict.fromkeys(events))
    assert sorted([*firsts, *twins], key=deliveries.index) == deliveries
    assert twins == [one for one in deliveries if one not in firsts]
