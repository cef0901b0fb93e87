"""Wrapping and unwrapping, without a database."""

from __future__ import annotations

import uuid

import pytest
from google.protobuf.any_pb2 import Any
from hypothesis import given
from hypothesis import strategies as st

from ticklake.contracts import BatchInfo, TopicEnvelope
from ticklake.errors import NotAMessage, UndecodableMessage
from ticklake.topics.envelope import new_message_id, unwrap, wrap


def test_an_envelope_is_what_other_producers_write():
    sent = BatchInfo(simulation_run_id="r", tick_start=1, tick_end=2)
    wrapped = wrap(sent, now_ms=1_700_000_000_000)
    envelope, payload = TopicEnvelope.FromString(wrapped.data), Any()
    payload.Pack(sent)
    assert (envelope.message_id, envelope.timestamp) == (wrapped.message_id, 1_700_000_000_000)
    assert envelope.payload == payload


@given(st.integers(0, 2**63 - 1), st.text(), st.integers(0, 2**48 - 1))
def test_what_is_wrapped_comes_out_again(tick: int, key: str, now: int):
    sent = BatchInfo(storage_key=key, tick_end=tick)
    opened = unwrap(wrap(sent, now).data)
    assert (opened.payload, opened.timestamp) == (sent, now)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_one_clear_error(data: bytes):
    try:
        unwrap(data)
    except UndecodableMessage as error:
        assert "cannot be decoded" in str(error)


def test_an_unknown_type_names_itself():
    data = TopicEnvelope(payload=Any(type_url="type.googleapis.com/some.Other")).SerializeToString()
    with pytest.raises(UndecodableMessage, match=r"some\.Other"):
        unwrap(data)


def test_only_messages_are_wrapped():
    with pytest.raises(NotAMessage, match="str"):
        wrap("text", 0)  # type: ignore[arg-type]


@given(st.integers(0, 2**48 - 2))
def test_message_ids_are_uuids_that_sort_by_time(now: int):
    first, second = new_message_id(now), new_message_id(now + 1)
    assert uuid.UUID(first).version == 7
    assert uuid.UUID(first).variant == uuid.RFC_4122
    assert first < second
