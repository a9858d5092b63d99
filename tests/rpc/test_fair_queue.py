"""In which order requests begin, and that calls are taken in before; rounds of a real event loop are counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.waiting import PATIENCE

from topk_bandit.rpc.fair_queue import ALONE_SECONDS, QUIET_ROUNDS, TAKING_IN_SHARE, FairQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SLACK = 4
"""Rounds that tasks take to begin and to be waited for."""


@dataclass
class Desk:
    """Requests with fair_queue, each of which computes for a second, and in which round each began."""

    fair_queue: FairQueue
    now: float = 0.0
    rounds: int = 0
    begun: list[tuple[str, int]] = field(default_factory=list)

    async def request(self, name: str, *, seconds: float = 1.0, tenant: str = "") -> None:
        await self.fair_queue.wait(tenant)
        self.begun.append((name, self.rounds))
        self.now += seconds

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.begun]

    @property
    def gaps(self) -> list[int]:
        """How many rounds went by between one that began and the next."""
        return [after[1] - before[1] for before, after in zip(self.begun[:-1], self.begun[1:], strict=True)]


@asynccontextmanager
async def desk(each_round: Callable[[Desk], None] = lambda _: None) -> AsyncIterator[Desk]:
    """Yield a desk whose clock only requests move, and whose rounds are counted, with something done in each round."""
    made: Desk = Desk(FairQueue(clock=lambda: made.now))

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


def begins_at_once(made: Desk) -> bool:
    """Begin a request, and tell whether it did not wait."""
    coroutine = made.request("alone")
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


def test_a_request_that_comes_alone_begins_at_once() -> None:
    async def play() -> None:
        async with desk() as made:
            for _ in range(3):
                assert begins_at_once(made)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                made.now += 2 * ALONE_SECONDS

    asyncio.run(play())


def test_one_that_comes_upon_another_waits_for_its_turn() -> None:
    async def play() -> None:
        async with desk() as made:
            assert begins_at_once(made)
            assert not begins_at_once(made), "in the same round"
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not begins_at_once(made), "just after it"

    asyncio.run(play())


def test_after_others_in_the_queue_one_that_comes_alone_begins_at_once() -> None:
    async def play() -> None:
        async with desk() as made:
            await asyncio.gather(*map(made.request, ("first", "second", "third")))
            for _ in range(SLACK):
                await asyncio.sleep(0)
            made.now += 2 * ALONE_SECONDS
            assert begins_at_once(made)

    asyncio.run(play())


def test_requests_that_come_together_begin_one_after_the_other_with_rounds_between() -> None:
    names = ["first", "second", "third", "fourth"]

    async def play() -> None:
        async with desk() as made:
            await asyncio.gather(*map(made.request, names))
            assert made.order == names
            assert all(QUIET_ROUNDS <= gap <= QUIET_ROUNDS + SLACK for gap in made.gaps), made.gaps

    asyncio.run(play())


def test_requests_that_have_come_are_taken_in_before_the_next_one_begins() -> None:
    last = 30

    def arrive(made: Desk) -> None:
        if made.rounds <= last and made.rounds % (QUIET_ROUNDS - 2) == 0:
            made.fair_queue.note_arrival()

    async def play() -> None:
        async with desk(arrive) as made:
            await asyncio.gather(made.request("first"), made.request("second"))
            assert last + QUIET_ROUNDS <= made.begun[1][1] <= last + QUIET_ROUNDS + SLACK

    asyncio.run(play())


def test_requests_that_come_without_end_hold_none_back_for_longer_than_a_few_compute() -> None:
    rounds_a_second = 10

    def arrive(made: Desk) -> None:
        made.fair_queue.note_arrival()
        made.now += 1.0 / rounds_a_second

    async def play() -> None:
        async with desk(arrive) as made:
            await asyncio.gather(*map(made.request, ("first", "second", "third")))
            # What a request took is known to a round or two: it computes within one.
            least = int(TAKING_IN_SHARE) * rounds_a_second
            assert all(least <= gap <= least + 3 * int(TAKING_IN_SHARE) + SLACK for gap in made.gaps), made.gaps

    asyncio.run(play())


def test_requests_that_compute_next_to_nothing_hold_none_back() -> None:
    async def play() -> None:
        async with desk() as made:
            await asyncio.gather(*(made.request(str(number), seconds=0.0) for number in range(5)))
            assert all(gap <= SLACK for gap in made.gaps), made.gaps

    asyncio.run(play())


async def request_and_give_up(made: Desk, count: int, who: slice) -> None:
    """Have requests come together, of which some give up in the queue."""
    waiting = [asyncio.create_task(made.request(str(number))) for number in range(count)]
    await asyncio.sleep(0)
    for task in waiting[who]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_who_gives_up_waiting_is_passed_over() -> None:
    async def play() -> None:
        async with desk() as made:
            await request_and_give_up(made, 12, slice(1, -1))
            assert made.order == ["0", "11"]
            assert made.gaps[0] <= QUIET_ROUNDS + SLACK, "no round is spent on those that have gone"

    asyncio.run(play())


def test_when_all_give_up_the_next_one_is_not_forgotten() -> None:
    async def play() -> None:
        async with desk() as made:
            await request_and_give_up(made, 3, slice(1, None))
            async with asyncio.timeout(PATIENCE):
                await made.request("later")
            assert made.order == ["0", "later"]

    asyncio.run(play())


def test_tenants_are_served_one_after_the_other() -> None:
    async def play() -> None:
        async with desk() as made:
            loud = [made.request(f"loud {number}", tenant="loud") for number in range(6)]
            quiet = [made.request(f"{name} {number}", tenant=name) for name in ("calm", "shy") for number in range(2)]
            await asyncio.gather(*loud, *quiet)
            # The first began at once, when nobody else was there.
            assert made.order[1:7] == ["loud 1", "calm 0", "shy 0", "loud 2", "calm 1", "shy 1"]
            assert made.order[7:] == ["loud 3", "loud 4", "loud 5"]

    asyncio.run(play())


def test_a_tenant_whose_requests_have_all_given_up_has_no_turn() -> None:
    async def play() -> None:
        async with desk() as made:
            tasks = [asyncio.create_task(made.request(f"{name}", tenant=name)) for name in ("first", "gone", "last")]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert made.order == ["first", "last"]

    asyncio.run(play())
