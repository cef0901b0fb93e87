from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import BadFile
from ticklake.storage import delimited
from ticklake.storage.delimited import MAX_MESSAGE_BYTES, frame, split
from ticklake.storage.zstd import ZstdStream, compress


def read(content: bytes) -> tuple[list[int], list[bytes]]:
    blocks = list(split(io.BytesIO(content), "key"))
    return [offset for offsets, _ in blocks for offset in offsets], [data for _, block in blocks for data in block]


@pytest.fixture(params=[1, 3, 7, 64, 1 << 20], ids=lambda size: f"blocks of {size}")
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", request.param)


def test_messages_come_back_with_their_offsets(block_bytes: None) -> None:
    messages = [b"", b"a", b"b" * 127, b"c" * 128, b"d" * 20_000, b"", b"e" * 3]
    offsets, found = read(frame(messages))
    assert found == messages
    assert offsets == [len(frame(messages[:number])) for number in range(len(messages))]


@given(st.lists(st.binary(max_size=300)), st.integers(1, 1000))
def test_any_messages_survive_any_block_size(messages: list[bytes], block: int) -> None:
    before, delimited.BLOCK_BYTES = delimited.BLOCK_BYTES, block
    try:
        assert read(frame(messages))[1] == messages
    finally:
        delimited.BLOCK_BYTES = before


def test_a_torn_tail_is_an_error_at_its_offset(block_bytes: None) -> None:
    content = frame([b"abc", b"d" * 300])
    for length in range(5, len(content)):
        with pytest.raises(BadFile) as caught:
            read(content[:length])
        assert caught.value.offset == 4


def test_a_length_without_an_end_is_an_error(block_bytes: None) -> None:
    with pytest.raises(BadFile, match="a message length is expected"):
        read(frame([b"abc"]) + b"\xff" * 20)


class Counted(io.BytesIO):
    """Counts how often it is read from."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def test_a_length_beyond_the_file_is_an_error_before_anything_is_read_for_it() -> None:
    stream = Counted(delimited.varint(200_000_000) + bytes(5 << 20))
    with pytest.raises(BadFile, match=f"200000000 bytes, after {5 << 20} bytes"):
        list(split(stream, "key"))
    assert stream.reads == 1


def test_a_length_without_an_end_is_not_looked_for_in_the_rest_of_the_file() -> None:
    stream = Counted(b"\xff" * (5 << 20))
    with pytest.raises(BadFile, match="a message length is expected"):
        list(split(stream, "key"))
    assert stream.reads == 1


@pytest.mark.parametrize("compressed", [False, True])
def test_a_length_beyond_the_maximum_is_an_error(compressed: bool) -> None:
    content = delimited.varint(MAX_MESSAGE_BYTES + 1) + b"abc"
    stream = io.BufferedReader(ZstdStream(io.BytesIO(compress(content)), "key")) if compressed else io.BytesIO(content)
    with pytest.raises(BadFile, match="longer than"):
        list(split(stream, "key"))


def test_a_torn_compressed_message_is_an_error() -> None:
    stream = io.BufferedReader(ZstdStream(io.BytesIO(compress(delimited.varint(3_000_000) + b"a" * 2_500_000)), "key"))
    with pytest.raises(BadFile, match="after 2500000 bytes"):
        list(split(stream, "key"))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_an_error(content: bytes) -> None:
    try:
        offsets, messages = read(content)
    except BadFile:
        return
    assert offsets == sorted(set(offsets))
    assert sum(map(len, messages)) <= len(content)
