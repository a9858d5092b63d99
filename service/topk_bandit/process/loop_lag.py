"""The lag of a worker's event loop: a task wakes up regularly, and reports how late that was and how many tasks run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["INTERVAL_SECONDS", "watch_loop_lag"]

INTERVAL_SECONDS = 0.25


async def watch_loop_lag(report: Callable[[float, int], None], *, seconds: float = INTERVAL_SECONDS) -> None:
    """Sleep again and again until cancelled; report each time how late it woke up and how many tasks there are.

    A computation on the event loop holds up this task and every call for equally long. A number of tasks that only
    grows shows that they wait for something that never happens.
    """
    now = asyncio.get_running_loop().time
    while True:
        due = now() + seconds
        await asyncio.sleep(seconds)
        report(max(0.0, now() - due), len(asyncio.all_tasks()))
