from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ticklake.backoff import pause_after


def test_a_pause_doubles_with_each_failure_up_to_the_longest():
    assert [pause_after(failures, first=0.5, longest=3.0) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@given(st.integers(1, 10**9), st.floats(0.001, 10), st.floats(0.001, 1000))
def test_a_pause_is_never_longer_than_the_longest_and_never_falls(failures: int, first: float, longest: float):
    pause = pause_after(failures, first=first, longest=longest)
    assert 0 < pause <= longest
    assert pause <= pause_after(failures + 1, first=first, longest=longest)
