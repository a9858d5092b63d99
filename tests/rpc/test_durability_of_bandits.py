"""A bandit's own class of durability over the wire, with a real server as it may be set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import RedisStores, run
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary

from topk_bandit.client import Durability, FailedPrecondition, InvalidArgument, NotFound

if TYPE_CHECKING:
    from topk_bandit.store.log import Store

FSYNC = Durability(synced=True)


def test_a_bandit_may_want_more_than_the_service() -> None:
    async def scenario(store: Store) -> None:
        async with served(store) as client:
            bandit = await client.create_bandit("home", slate_size=1, item_capacity=2, durability=FSYNC)
            assert bandit.durability == FSYNC
            await client.create_bandit("other", slate_size=1, item_capacity=2)
            for name, reached in (("home", FSYNC), ("other", Durability())):
                await client.upsert_items(name, ["a", "b"])
                slate = await client.recommend(name, [1.0])
                assert (await client.reward(name, slate.id, 1.0)).durability == reached
            assert (await client.update_bandit("home", durability=None)).durability is None

    with running_server(valkey_binary(), "--appendfsync", "always") as server:
        run(RedisStores(server.unix_url), scenario)


@pytest.mark.parametrize(
    ("wanted", "problem"), [("fsync", "appendfsync is everysec"), ("replicated:2", "min-replicas-to-write is 0")]
)
def test_what_the_store_can_not_keep_is_refused_and_changes_nothing(wanted: str, problem: str) -> None:
    async def scenario(store: Store) -> None:
        own = Durability.parse(wanted)
        async with served(store) as client:
            with pytest.raises(FailedPrecondition, match=problem) as refused:
                await client.create_bandit("home", slate_size=1, item_capacity=2, durability=own)
            assert refused.value.reason == "DURABILITY_NOT_KEPT"
            with pytest.raises(NotFound):
                await client.get_bandit("home")
            before = await client.create_bandit("home", slate_size=1, item_capacity=2)
            with pytest.raises(FailedPrecondition, match=problem):
                await client.update_bandit("home", durability=own)
            assert await client.get_bandit("home") == before
            with pytest.raises(InvalidArgument, match=r"none of memory, fsync, replicated:1 to replicated:9") as wrong:
                await client.create_bandit("away", slate_size=1, item_capacity=2, durability="often")  # type: ignore[arg-type]
            assert wrong.value.field == "bandit.durability"

    with running_server(valkey_binary()) as server:
        run(RedisStores(server.unix_url), scenario)
