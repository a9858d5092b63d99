"""Failovers of a real pair of servers under Sentinel: what was acknowledged is there, or its loss is counted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import NAME, SETTINGS, request, running_worker
from tests.contracts.harness import RedisStores, insist, waiting_little, whole_log
from tests.long_forms import usual_or_long
from tests.servers import NEVER_MS, running_sentinel, valkey_binary
from tests.waiting import until_async

from topk_bandit.domain.bandits import Item
from topk_bandit.domain.durability import FSYNC, Durability
from topk_bandit.domain.errors import NotDurableError, NotFoundError, UnavailableError
from topk_bandit.store.events import Rewarded

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.servers import SentinelPair

    from topk_bandit.store.log import Store

pytestmark = pytest.mark.timeout(usual_or_long(1200, long=3600))
REPLICATED = Durability(synced=True, replicas=1)
TIMES = usual_or_long(1, long=10)


@dataclass
class Ledger:
    """What a storefront was answered to rewards, by recommendation."""

    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    refused: int = 0
    not_durable: int = 0

    async def visit(self, worker: Worker) -> None:
        """Ask for a slate, and post its reward."""
        slate = await worker.recommender.recommend(NAME, request())
        if slate.degraded:
            self.refused += 1
            await asyncio.sleep(0.02)
            return
        self.unknown.add(slate.recommendation_id)
        try:
            await worker.recommender.reward(NAME, slate.recommendation_id, 1.0)
        except NotDurableError:
            self.not_durable += 1
        except (UnavailableError, NotFoundError):  # it was sent again, to a server that never heard of the slate
            self.refused += 1
        else:
            self.unknown.discard(slate.recommendation_id)
            self.acknowledged.add(slate.recommendation_id)

    async def visits(self, worker: Worker, *, count: int) -> None:
        """Visit so often."""
        for _ in range(count):
            await self.visit(worker)


async def lost(store: Store, ledger: Ledger) -> int:
    """Return how many acknowledged rewards the log does not have."""
    log = await whole_log(store, NAME)
    return len(ledger.acknowledged - {one.event.recommendation_id for one in log if isinstance(one.event, Rewarded)})


async def begun(worker: Worker, other: Worker, pair: SentinelPair, ledger: Ledger) -> None:
    """Open the shop, which a second worker follows, and let the replica have all of it."""
    await asyncio.to_thread(pair.until_ready_to_fail_over)
    await worker.bandits.create_bandit(NAME, SETTINGS)
    await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])
    await other.models.get_model(NAME)
    await ledger.visits(worker, count=10)
    await asyncio.to_thread(pair.until_ready_to_fail_over)


async def until_away(worker: Worker, old: int) -> None:
    """Wait until the log is that of another server, which has nothing after position `old`."""

    async def is_away() -> bool:
        return (await worker.store.get_bandit(NAME)).log_position < old

    await until_async(is_away, what="the log is that of the other server")


def run_failover(durability: Durability, scenario: object) -> None:
    assert callable(scenario)
    for _ in range(TIMES):
        with running_sentinel(valkey_binary(), "--appendfsync", "always", down_after_ms=NEVER_MS) as pair:
            stores = RedisStores(pair.url, durability=durability)

            async def main(pair: SentinelPair = pair, stores: RedisStores = stores) -> None:
                async with AsyncExitStack() as stack:
                    workers = [
                        await stack.enter_async_context(
                            running_worker(await stack.enter_async_context(stores.connect()))
                        )
                        for _ in range(2)
                    ]
                    ledger = Ledger()
                    await begun(workers[0], workers[1], pair, ledger)
                    await scenario(workers, pair, ledger)

            asyncio.run(main())


def counted(workers: list[Worker], what: str) -> int:
    return sum(worker.hooks.counts[what] for worker in workers)


async def until_counted(workers: list[Worker]) -> None:
    """Wait until a loss was noticed, and longer than both workers take to do so."""
    await until_async(lambda: counted(workers, "lost events"), what="a loss is noticed")
    for worker in workers:
        await insist(lambda one=worker: one.models.follow(NAME))


@pytest.mark.long_form
def test_what_a_cut_replica_lacks_is_counted() -> None:
    async def scenario(workers: list[Worker], pair: SentinelPair, ledger: Ledger) -> None:
        worker = workers[0]
        await asyncio.to_thread(pair.cut)
        kept = (await worker.store.get_bandit(NAME)).log_position
        await ledger.visits(worker, count=20)
        assert not ledger.refused
        old = (await worker.store.get_bandit(NAME)).log_position
        await asyncio.to_thread(pair.lose_primary)
        await until_away(worker, old)
        await until_counted(workers)
        gone = await lost(worker.store, ledger)
        assert gone == 20
        assert counted(workers, "lost rewards") == gone
        assert counted(workers, "lost events") == old - kept
        stats = await worker.bandits.stats(NAME)
        assert (stats.lost_events, stats.lost_rewards) == (old - kept, gone)
        await ledger.visits(worker, count=5)
        assert await lost(worker.store, ledger) == gone
        assert counted(workers, "lost rewards") == gone

    run_failover(FSYNC, scenario)


@pytest.mark.long_form
def test_nothing_that_was_acknowledged_as_replicated_is_lost() -> None:
    async def scenario(workers: list[Worker], pair: SentinelPair, ledger: Ledger) -> None:
        worker, acknowledged = workers[0], len(ledger.acknowledged)
        assert acknowledged == 10
        await asyncio.to_thread(pair.cut)
        with waiting_little("WAIT"):
            await ledger.visits(worker, count=3)
        assert ledger.not_durable == 3
        assert len(ledger.acknowledged) == acknowledged
        old = (await worker.store.get_bandit(NAME)).log_position
        await asyncio.to_thread(pair.lose_primary)
        await until_away(worker, old)
        assert await lost(worker.store, ledger) == 0

    run_failover(REPLICATED, scenario)


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.parametrize("durability", [FSYNC, REPLICATED], ids=str)
def test_a_planned_failover_is_followed_at_once(durability: Durability) -> None:
    """Sentinel informs the old primary long after it has promoted the other one; here it never does."""

    async def scenario(workers: list[Worker], pair: SentinelPair, ledger: Ledger) -> None:
        worker = workers[0]
        with pair.primary.client() as old, pair.replica.client() as new:
            old.execute_command("ACL SETUSER", "default", "-replicaof", "-slaveof")
            await asyncio.to_thread(pair.fail_over)
            (key,) = [key for key in new.keys("*:log") if b"home" in key]

            async def visited() -> tuple[int, int]:
                """Return by how much the old primary's log grew, and the new one's."""
                before = old.xlen(key), new.xlen(key)
                with waiting_little("WAIT"):  # the old primary has no replica once the other one is promoted
                    await ledger.visits(worker, count=5)
                return old.xlen(key) - before[0], new.xlen(key) - before[1]

            async def has_turned() -> bool:
                of_old, of_new = await visited()
                return of_old == 0 and of_new >= 5

            await until_async(has_turned, what="the new primary is promoted, and does not copy the old one any more")
            assert (old.info("replication")["role"], new.info("replication")["role"]) == ("master", "master")
            assert (await visited())[0] == 0
        for one in workers:
            await insist(lambda one=one: one.models.follow(NAME))
        gone = await lost(worker.store, ledger)
        if durability == REPLICATED:
            assert gone == 0
            return
        assert gone <= counted(workers, "lost rewards") <= gone + len(ledger.unknown)

    run_failover(durability, scenario)
