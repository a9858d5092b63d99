"""Threads that call an event loop's coroutines hear of its end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.waiting import PATIENCE, until

from topk_bandit.client.loops import LoopClosedError, on_this_loop


@pytest.mark.parametrize("begun", [False, True])
def test_who_waits_for_a_loop_that_is_closed_gets_an_error(*, begun: bool) -> None:
    async def never() -> None:
        began.set()
        await asyncio.Event().wait()

    async def wrapped() -> object:
        return on_this_loop(never)

    def wait() -> None:
        with pytest.raises(LoopClosedError):
            call()
        raised.set()

    loop, began, raised = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    loop.set_exception_handler(lambda _loop, _context: None)  # what is left behind would be reported to it
    call = loop.run_until_complete(wrapped())
    threading.Thread(target=wait, daemon=True).start()
    if begun:
        loop.run_until_complete(began.wait())
    until(lambda: begun or loop._ready, what="the call has come to the loop")  # type: ignore[attr-defined]
    loop.close()
    assert raised.wait(PATIENCE)
