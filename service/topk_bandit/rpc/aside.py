"""Work on large requests, in a thread, so that others are answered meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

__all__ = ["do_aside"]

_LARGE_BYTES = 1 << 16


_Request = TypeVar("_Request", bound="bytes | Message")
_Result = TypeVar("_Result")


async def do_aside(work: Callable[[_Request], _Result], request: _Request) -> _Result:
    """Return what comes of a request, as bytes or as a message; a large one is worked on in a thread."""
    size = len(request) if isinstance(request, bytes) else request.ByteSize()
    return work(request) if size < _LARGE_BYTES else await asyncio.to_thread(work, request)
