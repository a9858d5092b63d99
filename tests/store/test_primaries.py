"""In which order the answers of sentinels count."""

from __future__ import annotations

import asyncio

from topk_bandit.store.redis.primaries import PrimaryConnection, PrimaryConnections, Sentinels

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


class AnswersWhenTold(Sentinels):
    """Sentinels whose answers come when the test says so."""

    def __init__(self) -> None:
        super().__init__([])
        self.questions: list[asyncio.Future[tuple[str, int]]] = []

    async def discover_master(self, service_name: str) -> tuple[str, int]:  # noqa: ARG002 - there is one
        """Return what the test answers to this question."""
        self.questions.append(asyncio.get_running_loop().create_future())
        return await self.questions[-1]


def test_an_answer_from_before_a_failover_that_comes_late_does_not_lead_back() -> None:
    async def scenario() -> None:
        sentinels = AnswersWhenTold()
        pool = PrimaryConnections("primary", sentinels, connection_class=PrimaryConnection)
        late, soon = (asyncio.create_task(pool.get_master_address()) for _ in range(2))
        await asyncio.sleep(0)
        sentinels.questions[1].set_result(NEW)
        assert await soon == NEW
        sentinels.questions[0].set_result(OLD)
        assert await late == NEW
        assert pool.master_address == NEW

    asyncio.run(scenario())


def test_the_answer_to_a_later_question_counts_whatever_it_is() -> None:
    async def scenario() -> None:
        sentinels = AnswersWhenTold()
        pool = PrimaryConnections("primary", sentinels, connection_class=PrimaryConnection)
        for address in (NEW, OLD, NEW):
            asked = asyncio.create_task(pool.get_master_address())
            await asyncio.sleep(0)
            sentinels.questions[-1].set_result(address)
            assert await asked == pool.master_address == address

    asyncio.run(scenario())
