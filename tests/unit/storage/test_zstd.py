from __future__ import annotations

import io
import random
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import BadFile
from ticklake.storage.zstd import ZstdStream, compress


def read(stored: bytes, size: int = -1) -> bytes:
    with io.BufferedReader(ZstdStream(io.BytesIO(stored), "key")) as stream:
        return b"".join(iter(lambda: stream.read(size), b""))


@given(st.binary(max_size=5000), st.integers(1, 200), st.integers(1, 4000))
def test_what_was_compressed_comes_back(piece: bytes, times: int, size: int) -> None:
    assert read(compress(piece * times), size) == piece * times


def test_our_frames_carry_a_checksum() -> None:
    assert zstandard.get_frame_parameters(compress(b"abc")).has_checksum


def test_several_frames_in_a_row_are_one_stream() -> None:
    plain = zstandard.ZstdCompressor(write_checksum=False).compress(b"b" * 100_000)
    assert read(compress(b"a" * 3000) + plain + compress(b"") + compress(b"c")) == b"a" * 3000 + b"b" * 100_000 + b"c"


def test_a_frame_that_ends_where_a_step_ends_is_followed_by_the_next() -> None:
    first = b""
    while len(compress(first)) != 2048:
        first += bytes([len(first) * 7919 % 251 ^ len(first) % 13])
        assert len(first) < 10_000
    assert read(compress(first) + compress(b"next")) == first + b"next"


def test_every_truncation_is_noticed() -> None:
    stored = compress(bytes(range(256)) * 40)
    for length in range(len(stored)):
        with pytest.raises(BadFile, match="cut off"):
            read(stored[:length])


def test_bytes_after_the_end_are_noticed() -> None:
    for garbage in (b"\0", b"garbage", b"\x28\xb5\x2f\xfd"):
        with pytest.raises(BadFile, match="zstd stream"):
            read(compress(b"abc") + garbage)


def test_no_flipped_bit_gives_other_bytes() -> None:
    content = bytes(range(256)) * 8
    stored = compress(content)
    noticed = 0
    for bit in range(len(stored) * 8):
        flipped = bytearray(stored)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(flipped)) == content
        except BadFile:
            noticed += 1
    assert noticed > len(stored) * 7


def test_an_error_tells_how_far_it_got() -> None:
    stored = bytearray(compress(random.Random(1).randbytes(1_000_000)))
    stored[-1] ^= 1
    with pytest.raises(BadFile) as caught:
        read(bytes(stored), 1000)
    assert caught.value.key == "key"
    assert 800_000 < caught.value.offset <= 1_000_000


def test_a_bomb_is_read_in_small_steps() -> None:
    bomb = compress(bytes(1 << 28))
    tracemalloc.start()
    try:
        stream = ZstdStream(io.BytesIO(bomb), "key")
        assert sum(iter(lambda: stream.readinto(bytearray(1 << 16)), 0)) == 1 << 28
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()
