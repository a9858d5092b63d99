"""An event of a log that no model can take is the service's fault: no caller is blamed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import RedisStores, dump, run
from tests.contracts.samples import ITEMS, SETTINGS, recommendation, request
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary

from topk_bandit.client import Internal, Source
from topk_bandit.domain.bandits import BanditName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.servers import RunningServer

    from topk_bandit.client import AsyncClient
    from topk_bandit.store.redis.bandits import RedisStore

HOME = BanditName("acme", "home")

CALLS: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "UpsertItems": lambda client: client.upsert_items("home", ["fig"]),
    "RetireItems": lambda client: client.retire_items("home", ["apple"]),
    "UpdateBandit": lambda client: client.update_bandit("home", default_reward=0.5),
    "ResetBandit": lambda client: client.reset_bandit("home"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


async def spoil(store: RedisStore) -> None:
    """Write a reward for a slate to the log whose context has other numbers than the bandit takes."""
    await store.create_bandit(HOME, SETTINGS, incarnation="first", quota=1)
    items_position = (await store.change_items(HOME, upserted=ITEMS, retired=[])).items_position
    await store.record_recommendation(
        HOME, request(context=(0.5,)), recommendation("r"), incarnation="first", items_position=items_position
    )
    await store.record_reward(HOME, "r", 1.0)


@pytest.mark.parametrize("call", CALLS)
def test_no_caller_is_to_blame_for_an_event_that_can_not_be_folded(
    server: RunningServer, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is changed that no model would learn of: slates go on as they were, and a repetition finds the same."""

    async def scenario(store: RedisStore) -> None:
        await spoil(store)
        before = await dump(store, HOME)
        async with served(store) as client:
            for number in range(2):
                with pytest.raises(Internal) as caught:
                    await CALLS[call](client)
                assert caught.value.reference in caplog.text
                assert await dump(store, HOME) == before
                assert "event 3 can't be folded" in (await client.stats("home")).damage
                slate = await client.recommend("home", [0.5, 0.5, 0.5], request_id=f"r{number}")
                assert slate.source is Source.SERVICE
                before = await dump(store, HOME)

    run(RedisStores(server.url), scenario)
    assert "event 3 can't be folded: contexts: expected 3 numbers" in caplog.text
