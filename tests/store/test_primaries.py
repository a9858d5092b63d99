"""In which order the answers of sentinels count."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.servers import running_server, valkey_binary

from topk_bandit.store.redis import primaries
from topk_bandit.store.redis.primaries import PrimaryConnection, PrimaryConnections, Sentinels

if TYPE_CHECKING:
    import pytest
    from redis.asyncio import Redis

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


def test_no_connection_is_left_by_a_question_that_goes_on_though_it_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client library may swallow a cancellation."""

    async def ask(sentinel: Redis, _service: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            await sentinel.execute_command("PING")

    async def scenario(port: int) -> None:
        sentinels = Sentinels([("127.0.0.1", port)])
        asking = asyncio.create_task(sentinels.discover_master("primary"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        await sentinels.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        [pool] = [one.connection_pool for one in sentinels.sentinels]
        connections: list[Any] = [*pool._available_connections, *pool._in_use_connections]
        assert connections
        assert not any(one.is_connected for one in connections)

    monkeypatch.setattr(primaries, "_ask", ask)
    with running_server(valkey_binary()) as server:
        asyncio.run(scenario(server.port))
