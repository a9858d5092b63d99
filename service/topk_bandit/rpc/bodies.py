"""Bodies of HTTP requests: read up to a limit, and unpacked one at a time into exactly what they take.

A packed body of some kilobytes may stand for many megabytes. So it is read as it was sent, and may become only so many
times as large. It is counted piece by piece while nothing of it is kept, and unpacked only if it fits. One that does
not fit costs no more memory than its own bytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import StreamReader

__all__ = [
    "MOST_GROWTH",
    "PACKINGS",
    "SMALL_BYTES",
    "BrokenBodyError",
    "TooLargeError",
    "UnknownPackingError",
    "read_body",
    "unpack",
]

PACKINGS = ("gzip", "deflate")
"""What a `Content-Encoding` may be."""

MOST_MEMBERS = 1000
"""So many parts, each packed by itself, may be one behind the other in a body."""

MOST_GROWTH, SMALL_BYTES = 100, 1 << 18
"""A body may become so many times as large, or have so many bytes: who has much work done has to send much."""

PIECE_BYTES = 1 << 16
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


class TooLargeError(Exception):
    """A body has more bytes than it may have, or becomes too many times as large."""


class BrokenBodyError(Exception):
    """A body is not packed as its header says."""


class UnknownPackingError(Exception):
    """A body is packed in a way that is not known here."""


async def read_body(content: StreamReader, packing: str, *, most: int, declared_length: int | None) -> bytes:
    """Read a body to its end and unpack it.

    Parameters
    ----------
    packing
        The `Content-Encoding`, "" for none.
    most
        How many bytes it may have, packed and unpacked.
    declared_length
        How many it has by its header, if that says so.

    Raises
    ------
    TooLargeError, BrokenBodyError, UnknownPackingError
        It can't be had.
    """
    packing = packing.strip().lower()
    if packing not in {"", "identity", *PACKINGS}:
        raise UnknownPackingError
    if declared_length is not None and declared_length > most:
        raise TooLargeError
    body = await _read(content, most)
    return unpack(body, packing, most=most) if packing in PACKINGS and body else body


async def _read(content: StreamReader, most: int) -> bytes:
    pieces, size = list[bytes](), 0
    while piece := await content.readany():
        size += len(piece)
        if size > most:
            raise TooLargeError
        pieces.append(piece)
    return b"".join(pieces)


def unpack(body: bytes, packing: str, *, most: int) -> bytes:
    """Return what a body of `PACKINGS` stands for, which may have `most` bytes, and grow by `MOST_GROWTH`.

    Raises
    ------
    TooLargeError, BrokenBodyError
        It has more, or is not packed like that.
    """
    most = min(most, max(MOST_GROWTH * len(body), SMALL_BYTES))
    # Some senders leave out the two bytes that "deflate" begins with.
    bits = _GZIP if packing == "gzip" else _ZLIB if body[0] & 0xF == zlib.DEFLATED else _RAW
    size = 0
    try:
        for piece in _pieces(body, bits):
            size += len(piece)
            if size > most:
                raise TooLargeError
        return b"".join(_pieces(body, bits))
    except zlib.error:
        raise BrokenBodyError from None


def _pieces(body: bytes, bits: int) -> Iterator[bytes]:
    """Yield what a body stands for, piece by piece."""
    left, at, members = memoryview(body), 0, 1
    unpacker = zlib.decompressobj(bits)
    while at < len(body):
        if unpacker.eof:
            unpacker, members = zlib.decompressobj(bits), members + 1
        part = left[at : at + PIECE_BYTES]
        yield from _unpack_piece(unpacker, part)
        at += len(part) - len(unpacker.unused_data)
        if members > MOST_MEMBERS:
            raise BrokenBodyError
    if not unpacker.eof:
        raise BrokenBodyError


def _unpack_piece(unpacker: zlib._Decompress, packed: bytes | memoryview) -> Iterator[bytes]:
    """Yield what a piece of a body adds, until it is used up or a member ends in it."""
    piece = b""
    while not unpacker.eof and (packed or len(piece) == PIECE_BYTES):
        piece = unpacker.decompress(packed, PIECE_BYTES)
        packed = unpacker.unconsumed_tail
        yield piece
