"""Virtual time leaps, and work on executors takes some of it."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.simulation.virtual_time import Pace, run


def test_a_day_passes_at_once_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[str, float]]()

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(sleeper("late", 86_400.0), sleeper("early", 0.5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await asyncio.Event().wait()
        return [*seen, ("end", loop.time())]

    began = time.monotonic()
    assert run(main(), computing_seconds=lambda: 0.0) == [("early", 0.5), ("late", 86_400.0), ("end", 86_410.0)]
    assert time.monotonic() - began < 3_600


def test_work_takes_its_time_and_is_done_on_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(lambda: asyncio.get_running_loop() is loop)
        assert loop.time() == 2.0
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        assert loop.time() == 4.0
        await loop.run_in_executor(Pace(), lambda: None)
        assert loop.time() == 6.0
        await loop.run_in_executor(Pace(lambda: 7.0), lambda: None)
        assert loop.time() == 13.0

    run(main(), computing_seconds=lambda: 2.0)


def test_what_waits_for_nothing_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing is due"):
        run(main(), computing_seconds=lambda: 0.0)
