"""The lag of an event loop that is held up, of one that is not, and of one whose tasks pile up."""

from __future__ import annotations

import asyncio
import time

from tests.waiting import until_async

from topk_bandit.process.loop_lag import watch_loop_lag


def test_the_lag_of_the_event_loop_is_reported_in_seconds() -> None:
    late: list[float] = []

    async def scenario() -> None:
        watching = asyncio.create_task(watch_loop_lag(lambda lag, _: late.append(lag), seconds=0.01))
        await until_async(lambda: late, what="it reports")
        before = len(late)
        time.sleep(0.3)  # noqa: ASYNC251 - that is the point
        await until_async(lambda: len(late) > before, what="it reports again")
        watching.cancel()

    asyncio.run(scenario())
    assert max(late) >= 0.28
    assert min(late) >= 0.0


def test_tasks_that_wait_for_ever_are_counted() -> None:
    counts: list[int] = []

    async def after(known: int) -> int:
        await until_async(lambda: len(counts) > known, what="it counts again")
        return counts[-1]

    async def scenario() -> tuple[int, int]:
        watching = asyncio.create_task(watch_loop_lag(lambda _, tasks: counts.append(tasks), seconds=0.01))
        alone = await after(0)
        waiting = [asyncio.create_task(asyncio.Event().wait()) for _ in range(30)]
        beside = await after(len(counts) + 1)
        for one in (watching, *waiting):
            one.cancel()
        return alone, beside

    alone, beside = asyncio.run(scenario())
    assert alone == 2, "the scenario and the watching task"

    assert beside == alone + 30
