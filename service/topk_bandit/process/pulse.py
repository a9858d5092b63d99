"""The pulse of a worker's event loop: it wakes up regularly, and tells how late it was and how many tasks there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PULSE_SECONDS", "beat"]

PULSE_SECONDS = 0.25


async def beat(pulsed: Callable[[float, int], None], *, seconds: float = PULSE_SECONDS) -> None:
    """Sleep again and again until cancelled; tell each time how late it woke up and how many tasks there are.

    What holds up this task, such as a computation on the event loop, holds up every call for as long. Where the number
    of tasks grows on and on, they wait for what never comes.
    """
    now = asyncio.get_running_loop().time
    while True:
        due = now() + seconds
        await asyncio.sleep(seconds)
        pulsed(max(0.0, now() - due), len(asyncio.all_tasks()))
