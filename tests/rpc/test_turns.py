"""In which order requests begin, and that calls are taken in before; rounds of a real event loop are counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topk_bandit.rpc.turns import ALONE_SECONDS, MOST_ROUNDS, QUIET_ROUNDS, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SLACK = 4
"""Rounds that tasks take to begin and to be waited for."""


@dataclass
class Desk:
    """Requests with turns, and in which round each began."""

    turns: Turns
    now: float = 0.0
    rounds: int = 0
    begun: list[tuple[str, int]] = field(default_factory=list)

    async def request(self, name: str) -> None:
        await self.turns.wait()
        self.begun.append((name, self.rounds))

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.begun]


@asynccontextmanager
async def desk(each_round: Callable[[Desk], None] = lambda _: None) -> AsyncIterator[Desk]:
    """Yield a desk whose clock stands still and whose rounds are counted, with something done in each round."""
    made: Desk = Desk(Turns(clock=lambda: made.now))

    async def count() -> None:
        while True:
            each_round(made)
            made.rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield made
    finally:
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting


def test_a_request_that_comes_alone_begins_at_once() -> None:
    async def play() -> None:
        async with desk() as made:
            for _ in range(3):
                with suppress(StopIteration):
                    made.request("alone").send(None)
                await asyncio.sleep(0)
                made.now += 2 * ALONE_SECONDS
            assert made.order == ["alone"] * 3

    asyncio.run(play())


def test_requests_that_come_together_begin_one_after_the_other_with_rounds_between() -> None:
    names = ["first", "second", "third", "fourth"]

    async def play() -> None:
        async with desk() as made:
            await asyncio.gather(*map(made.request, names))
            assert made.order == names
            gaps = [after[1] - before[1] for before, after in zip(made.begun[:-1], made.begun[1:], strict=True)]
            assert all(QUIET_ROUNDS <= gap <= QUIET_ROUNDS + SLACK for gap in gaps), gaps

    asyncio.run(play())


def test_calls_that_come_are_taken_in_before_the_next_request() -> None:
    last = 30

    def arrive(made: Desk) -> None:
        if made.rounds <= last and made.rounds % (QUIET_ROUNDS - 2) == 0:
            made.turns.note_arrival()

    async def play() -> None:
        async with desk(arrive) as made:
            await asyncio.gather(made.request("first"), made.request("second"))
            began = made.begun[1][1]
            assert last + QUIET_ROUNDS <= began <= last + QUIET_ROUNDS + SLACK

    asyncio.run(play())


def test_calls_without_end_hold_no_request_back_for_long() -> None:
    async def play() -> None:
        async with desk(lambda made: made.turns.note_arrival()) as made:
            await asyncio.gather(*map(made.request, ("first", "second", "third")))
            for before, after in zip(made.begun[:-1], made.begun[1:], strict=True):
                assert MOST_ROUNDS <= after[1] - before[1] <= MOST_ROUNDS + SLACK

    asyncio.run(play())


def test_who_gives_up_waiting_is_passed_over() -> None:
    async def play() -> None:
        async with desk() as made:
            tasks = {name: asyncio.create_task(made.request(name)) for name in ("first", "second", "third")}
            await asyncio.sleep(0)
            tasks["second"].cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            assert made.order == ["first", "third"]
            made.now += 2 * ALONE_SECONDS
            await asyncio.wait_for(made.request("later"), 10)

    asyncio.run(play())
