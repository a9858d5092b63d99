"""Packed bodies: what the standard library unpacks is unpacked alike, and nothing larger than it may be."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.rpc.bodies import (
    MOST_GROWTH,
    MOST_MEMBERS,
    PIECE_BYTES,
    SMALL_BYTES,
    BrokenBodyError,
    TooLargeError,
    unpack,
)

bodies = st.builds(
    lambda seed, count, end: seed * count + end,
    st.binary(max_size=2000),
    st.sampled_from([1, 7, PIECE_BYTES // 1000, 100]),
    st.binary(max_size=300),
)


def raw(body: bytes) -> bytes:
    """Return a body as senders pack it that leave out what `deflate` begins with."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@given(parts=st.lists(bodies, min_size=1, max_size=4), level=st.integers(0, 9))
def test_what_was_packed_is_unpacked_to_the_byte_and_not_to_one_more_than_it_may_have(
    parts: list[bytes], level: int
) -> None:
    whole = b"".join(parts)
    packed = b"".join(gzip.compress(part, level) for part in parts)
    assert gzip.decompress(packed) == whole
    for body, packing in ((packed, "gzip"), (zlib.compress(whole, level), "deflate"), (raw(whole), "deflate")):
        assert unpack(body, packing, most=len(whole)) == whole
        if whole:
            with pytest.raises(TooLargeError):
                unpack(body, packing, most=len(whole) - 1)


@given(body=bodies, data=st.data())
def test_a_body_that_is_cut_or_goes_on_otherwise_is_broken(body: bytes, data: st.DataObject) -> None:
    for packed, packing in ((gzip.compress(body), "gzip"), (zlib.compress(body), "deflate")):
        cut = data.draw(st.integers(1, len(packed) - 1))
        for wrong in (packed[:cut], packed + b"\1" + packed[:cut], b"\1" + packed):
            with pytest.raises(BrokenBodyError):
                unpack(wrong, packing, most=1 << 24)


def test_a_body_becomes_so_many_times_as_large_or_is_small() -> None:
    assert len(unpack(gzip.compress(bytes(SMALL_BYTES)), "gzip", most=1 << 23)) == SMALL_BYTES
    packed = gzip.compress(bytes(1 << 23), 9)
    assert MOST_GROWTH * len(packed) < 1 << 23
    with pytest.raises(TooLargeError):
        unpack(packed, "gzip", most=1 << 23)
    stored = gzip.compress(bytes(100_000), 0)
    assert len(unpack(packed + stored, "gzip", most=1 << 24)) == (1 << 23) + 100_000


def test_a_body_that_becomes_too_much_takes_no_memory_and_is_given_up_early() -> None:
    packed = gzip.compress(bytes(200_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            unpack(packed, "gzip", most=1 << 23)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_body_of_very_many_small_ones_is_refused() -> None:
    small = gzip.compress(b"a")
    assert unpack(small * MOST_MEMBERS, "gzip", most=1 << 23) == b"a" * MOST_MEMBERS
    with pytest.raises(BrokenBodyError):
        unpack(small * (MOST_MEMBERS + 1), "gzip", most=1 << 23)
