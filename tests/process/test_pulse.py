"""The pulse of an event loop that is held up, and of one that is not."""

from __future__ import annotations

import asyncio
import time

from topk_bandit.process import pulse


def test_what_holds_up_the_event_loop_is_told_in_seconds() -> None:
    late: list[float] = []

    async def scenario() -> None:
        beating = asyncio.create_task(pulse.beat(late.append, seconds=0.01))
        while not late:
            await asyncio.sleep(0.005)
        before = len(late)
        time.sleep(0.3)  # noqa: ASYNC251 - that is the point
        while len(late) <= before:
            await asyncio.sleep(0.005)
        beating.cancel()

    asyncio.run(scenario())
    assert max(late) >= 0.28
    assert min(late) >= 0.0
