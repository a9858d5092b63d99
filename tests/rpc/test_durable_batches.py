"""Batches of rewards while a replica is missing, with a real pair of servers: each is written, and each says so."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import RedisStores, run, whole_log
from tests.rpc.whole import served
from tests.servers import running_pair, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.client import InvalidArgument, NotFound, RewardRange, Unavailable
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.durability import IN_MEMORY, Durability
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.events import Rewarded
from topk_bandit.store.journaled import REWARDS_AT_ONCE
from topk_bandit.store.redis import waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers import RunningServer

    from topk_bandit.client import AsyncClient
    from topk_bandit.store.log import Store
    from topk_bandit.store.redis.bandits import RedisStore

REPLICATED = Durability(synced=True, replicas=1)
HOME = BanditName("acme", "home")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with running_pair(valkey_binary(), "--appendfsync", "always") as pair:
        yield pair


@contextmanager
def hanging(server: RunningServer) -> Iterator[None]:
    """Let a server do nothing until the end of the block."""
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


@contextmanager
def missing(replica: RunningServer) -> Iterator[None]:
    """Let a replica do nothing until the end of the block, in which nobody waits long for it."""
    with hanging(replica), pytest.MonkeyPatch.context() as patch:
        patch.setattr(waits, "WAIT_SHARE", 0.3 / PATIENCE)
        yield


def count_waits(server: RunningServer) -> int:
    """Return how often somebody has waited for a replica."""
    with server.client() as client:
        return int(client.info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"])


async def slates(client: AsyncClient, n: int, **settings: object) -> list[str]:
    await client.create_bandit("home", slate_size=1, item_capacity=2, **settings)  # type: ignore[arg-type]
    await client.upsert_items("home", ["a", "b"])
    return [(await client.recommend("home", [1.0])).id for _ in range(n)]


async def rewarded(store: Store) -> Sequence[str]:
    return [
        logged.event.recommendation_id for logged in await whole_log(store, HOME) if isinstance(logged.event, Rewarded)
    ]


@pytest.mark.slow
def test_a_batch_is_written_at_once_though_a_replica_is_missing(pair: tuple[RunningServer, RunningServer]) -> None:
    primary, replica = pair

    async def scenario(store: Store) -> None:
        async with served(store, follows=False) as client:  # whose learning writes, and waits too
            ids = await slates(client, 250)
            values = dict.fromkeys([*ids[:2], "nobody's", *ids[2:]], 1.0)
            with missing(replica):
                before = count_waits(primary)
                outcome = await client.rewards("home", values)
                # A server that does not know the script yet is sent it, and is waited for again.
                assert before < count_waits(primary) <= before + 2, "a wait for each would take more than a minute"
            assert not outcome.receipts
            assert isinstance(outcome.errors.pop("nobody's"), NotFound)
            assert {type(error) for error in outcome.errors.values()} == {Unavailable}
            assert {error.details.reason for error in outcome.errors.values()} == {"NOT_DURABLE"}
            assert all(error.details.message.startswith("written, but") for error in outcome.errors.values())
            # Everything that was said to be written is, in the order of the batch.
            assert await rewarded(store) == list(outcome.errors) == ids
            again = await client.rewards("home", values)
            assert {receipt.outcome for receipt in again.receipts.values()} == {RewardOutcome.DUPLICATE}
            assert {receipt.durability for receipt in again.receipts.values()} == {REPLICATED}
            assert list(again.receipts) == ids
            assert await rewarded(store) == ids

    run(RedisStores(primary.unix_url, durability=REPLICATED), scenario)


def test_a_batch_of_a_bandit_that_asks_for_more_is_waited_for(pair: tuple[RunningServer, RunningServer]) -> None:
    """Who has not heard of the bandit's own class waits for what it knew, notices, and waits for what is asked for."""

    async def scenario(store: Store, other: Store) -> None:
        async with served(store) as client, served(other, worker="two") as second:
            with pair[0].client() as server:
                server.config_set("min-replicas-to-write", 1)
            ids = await slates(client, 4, durability=REPLICATED)
            results = await second.rewards("home", dict.fromkeys(ids[:2], 1.0))
            assert [results.receipts[one].outcome for one in ids[:2]] == [RewardOutcome.ACCEPTED] * 2
            assert {receipt.durability for receipt in results.receipts.values()} == {REPLICATED}
            with missing(pair[1]):
                results = await second.rewards("home", dict.fromkeys(ids[2:], 1.0))
            assert {error.details.reason for error in results.errors.values()} == {"NOT_DURABLE"}
            assert await rewarded(store) == ids

    run(RedisStores(pair[0].unix_url, durability=IN_MEMORY), scenario, connections=2)


def test_a_batch_is_written_by_a_server_that_forgot_its_scripts(pair: tuple[RunningServer, RunningServer]) -> None:
    async def scenario(store: Store) -> None:
        async with served(store) as client:
            ids = await slates(client, 3)
            with pair[0].client() as server:
                server.script_flush()
            results = await client.rewards("home", dict.fromkeys(ids, 1.0))
            assert [results.receipts[one].outcome for one in ids] == [RewardOutcome.ACCEPTED] * 3
            assert await rewarded(store) == ids

    run(RedisStores(pair[0].unix_url, durability=REPLICATED), scenario)


def test_a_reward_of_a_damaged_slate_stops_no_other(pair: tuple[RunningServer, RunningServer]) -> None:
    stores = RedisStores(pair[0].unix_url, durability=REPLICATED)

    async def scenario(store: Store) -> None:
        async with served(store) as client:
            ids = await slates(client, 3, reward_range=RewardRange(0.0, 1.0))
            with pair[0].client() as server:
                server.hset(f"{stores.prefix}:{{acme/home}}:recommendations", ids[1], "garbage")
            results = await client.rewards("home", {ids[0]: 1.0, ids[1]: 1.0, ids[2]: 2.0})
            assert list(results.receipts) == [ids[0]]
            assert results.errors[ids[1]].details.code == "INTERNAL"
            refused = results.errors[ids[2]]
            assert isinstance(refused, InvalidArgument)
            assert refused.field == "rewards[2].value"
            assert await rewarded(store) == [ids[0]]

    run(stores, scenario)


@pytest.mark.slow
def test_a_store_that_is_away_is_asked_once(pair: tuple[RunningServer, RunningServer]) -> None:
    """What was sent in vain may be written, and what was not sent says so."""
    primary, _ = pair

    async def scenario(store: Store, other: RedisStore) -> None:
        async with served(store) as client, served(other, worker="two") as second:
            ids = await slates(client, 250)
            with hanging(primary):
                other._link._timeout = 0.5
                results = await second.rewards("home", dict.fromkeys(ids, 1.0))
            assert {type(error) for error in results.errors.values()} == {Unavailable}
            untried = [one for one in ids if results.errors[one].details.message.startswith("not tried")]
            assert untried == ids[REWARDS_AT_ONCE:]
            again = await client.rewards("home", dict.fromkeys(ids, 1.0))
            assert {again.receipts[one].outcome for one in untried} == {RewardOutcome.ACCEPTED}
            assert await rewarded(store) == ids

    run(RedisStores(primary.unix_url), scenario, connections=2)
