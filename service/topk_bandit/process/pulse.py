"""The pulse of a worker's event loop: it wakes up regularly, and tells how late it was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PULSE_SECONDS", "beat"]

PULSE_SECONDS = 0.25


async def beat(pulsed: Callable[[float], None], *, seconds: float = PULSE_SECONDS) -> None:
    """Sleep again and again until cancelled, and tell after each time how many seconds late the sleep ended.

    What holds up this task, such as a computation on the event loop, holds up every call for as long.
    """
    now = asyncio.get_running_loop().time
    while True:
        due = now() + seconds
        await asyncio.sleep(seconds)
        pulsed(max(0.0, now() - due))
