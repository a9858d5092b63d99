"""For how long an event loop has had something to do, as its selector tells."""

from __future__ import annotations

import asyncio
import time

from topk_bandit.process.watched_selector import WatchedSelector


def test_a_loop_is_busy_since_it_last_waited() -> None:
    selector = WatchedSelector()

    async def scenario() -> None:
        await asyncio.sleep(0.02)
        assert selector.busy_seconds() < 0.01
        for _ in range(2):
            begun = time.monotonic()
            while time.monotonic() - begun < 0.05:
                await asyncio.sleep(0.0)  # a round of the loop that has something to do
            assert selector.busy_seconds() >= 0.05
            await asyncio.sleep(0.02)
            assert selector.busy_seconds() < 0.01

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(scenario())


def test_what_is_there_after_a_moment_was_there_before() -> None:
    """A queue that another thread hands over one by one leaves the loop waiting for moments."""
    selector = WatchedSelector()

    async def scenario() -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < 0.05:
            await asyncio.sleep(0.0002)
        assert selector.busy_seconds() >= 0.02

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(scenario())
