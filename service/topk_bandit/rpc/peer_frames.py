"""What the workers of a service write to each other: calls, and their answers, as frames of bytes.

A frame is its length and its content. A call's content is its number, which method it is, the caller's ids, and the
message; an answer's is the number of its call, whether it is a message or a status, and that. Both ends are the same
program, and nothing of it is kept: the layout may change with any version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

__all__ = ["Answer", "Asked", "read_frame", "write_frame"]

_LENGTH = struct.Struct("!I")
_ASKED = struct.Struct("!QBBB")
_ANSWER = struct.Struct("!Q?")


class Asked(NamedTuple):
    """A call.

    Attributes
    ----------
    number
        Which of the connection's calls it is.
    method
        Place of its method among `METHODS` of `rpc.peers`.
    request_id, traceparent
        The ids of the call that it is a part of.
    payload
        The request.
    """

    number: int
    method: int
    request_id: str
    traceparent: str
    payload: bytes

    def pack(self) -> bytes:
        """Return the content of its frame."""
        request_id, traceparent = self.request_id.encode(), self.traceparent.encode()
        head = _ASKED.pack(self.number, self.method, len(request_id), len(traceparent))
        return b"".join((head, request_id, traceparent, self.payload))

    @classmethod
    def unpack(cls, content: bytes) -> Asked:
        """Return what a frame has."""
        number, method, id_bytes, parent_bytes = _ASKED.unpack_from(content)
        middle = _ASKED.size + id_bytes
        end = middle + parent_bytes
        request_id, traceparent = content[_ASKED.size : middle].decode(), content[middle:end].decode()
        return cls(number, method, request_id, traceparent, content[end:])


class Answer(NamedTuple):
    """What a call was answered with: a message, or a status if it was refused; nothing if it was not answered."""

    number: int
    is_message: bool
    payload: bytes

    def pack(self) -> bytes:
        """Return the content of its frame."""
        return _ANSWER.pack(self.number, self.is_message) + self.payload

    @classmethod
    def unpack(cls, content: bytes) -> Answer:
        """Return what a frame has."""
        number, is_message = _ANSWER.unpack_from(content)
        return cls(number, is_message, content[_ANSWER.size :])


def write_frame(writer: asyncio.StreamWriter, content: bytes) -> None:
    """Send a frame."""
    writer.write(_LENGTH.pack(len(content)) + content)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the content of the next frame.

    Raises
    ------
    asyncio.IncompleteReadError, OSError
        There is none: the other end is gone.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)
