"""The pulse of an event loop that is held up, of one that is not, and of one whose tasks pile up."""

from __future__ import annotations

import asyncio
import time

from topk_bandit.process import pulse


def test_what_holds_up_the_event_loop_is_told_in_seconds() -> None:
    late: list[float] = []

    async def scenario() -> None:
        beating = asyncio.create_task(pulse.beat(lambda lag, _: late.append(lag), seconds=0.01))
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


def test_tasks_that_wait_for_ever_are_counted() -> None:
    counts: list[int] = []

    async def after(known: int) -> int:
        while len(counts) <= known:
            await asyncio.sleep(0.002)
        return counts[-1]

    async def scenario() -> tuple[int, int]:
        beating = asyncio.create_task(pulse.beat(lambda _, tasks: counts.append(tasks), seconds=0.01))
        alone = await after(0)
        waiting = [asyncio.create_task(asyncio.Event().wait()) for _ in range(30)]
        beside = await after(len(counts) + 1)
        for one in (beating, *waiting):
            one.cancel()
        return alone, beside

    alone, beside = asyncio.run(scenario())
    assert alone == 2, "the scenario and the pulse"
    assert beside == alone + 30
