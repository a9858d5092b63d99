"""Where slates are chosen: short decisions at once, long ones away from the event loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import NAME, SETTINGS, CountingThreads, Shop, request, running_worker, settles
from tests.contracts.harness import MemoryStores, run
from tests.waiting import PATIENCE, until_async

from topk_bandit.bandits.choices import ITEMS_AT_ONCE, ROWS_TIMES_ITEMS_AT_ONCE, SLATE_SIZE_AT_ONCE
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import ConstantBeta, Exploration, Item, Kernel
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.log import Store

ITEMS, REWARDS = 400, 54


def test_only_long_decisions_leave_the_event_loop() -> None:
    assert (REWARDS - 8) * ITEMS < ROWS_TIMES_ITEMS_AT_ONCE < REWARDS * ITEMS
    stores, rng = MemoryStores(), np.random.default_rng(1)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            # Slates that are all different stay rows of their own.
            exploration = Exploration(ConstantBeta(1.0), uniform_share=1.0)
            await Shop(worker, stores, rng).create(replace(SETTINGS, item_capacity=ITEMS, exploration=exploration))
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(ITEMS)])
            with CountingThreads() as deciders:
                recommender = Recommender(
                    store,
                    worker.models,
                    deciders,
                    quotas=TenantQuotas(store, Quotas()),
                    hooks=Hooks(),
                    new_id=fresh_ids(),
                )
                some = [f"i{n}" for n in range(300)]
                for number in range(REWARDS):
                    slate = await recommender.recommend(NAME, request(context=rng.normal(size=2), candidates=some))
                    await recommender.reward(NAME, slate.recommendation_id, float(number))
                await until_async(lambda: settles(worker), what="all rewards are learned")
                assert deciders.works == 0
                at_once = await recommender.recommend(NAME, request(candidates=some))
                assert deciders.works == 0
                handed_over = await recommender.recommend(NAME, request())
                assert deciders.works == 1
                assert (at_once.observations, handed_over.observations) == (REWARDS, REWARDS)

    run(stores, scenario)


@pytest.mark.parametrize(
    ("items", "slate_size", "leaves"),
    [
        (ITEMS_AT_ONCE, 3, False),
        (ITEMS_AT_ONCE + 1, 3, True),
        (20, SLATE_SIZE_AT_ONCE, False),
        (20, SLATE_SIZE_AT_ONCE + 1, True),
    ],
)
def test_many_items_and_large_slates_leave_the_event_loop_before_anything_is_learned(
    *, items: int, slate_size: int, leaves: bool
) -> None:
    hooks = Decisions()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            settings = replace(SETTINGS, item_capacity=items, slate_size=slate_size)
            await worker.bandits.create_bandit(NAME, settings)
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(items)])
            with CountingThreads() as deciders:
                recommender = Recommender(
                    store,
                    worker.models,
                    deciders,
                    quotas=TenantQuotas(store, Quotas()),
                    hooks=hooks,
                    new_id=fresh_ids(),
                )
                slate = await recommender.recommend(NAME, request())
                assert (slate.observations, deciders.works) == (0, int(leaves))
                assert [one.slate for one in hooks.slates] == [slate.slate]

    run(MemoryStores(), scenario)


class Decisions(Hooks):
    """Keeps the slates that were decided."""

    def __init__(self) -> None:
        self.slates: list[Recommendation] = []

    def decided(self, recommendation: Recommendation, seconds: float) -> None:
        assert 0.0 <= seconds < PATIENCE
        self.slates.append(recommendation)


def fresh_ids() -> Callable[[], str]:
    return map("request-{}".format, range(10**6)).__next__


@pytest.mark.parametrize(
    ("kernel", "power"),
    [
        (Kernel.ADAPTIVE, 0.5),
        (Kernel.WEIGHTED_CONVOLUTIONAL, 1.0),
        (Kernel.CONVOLUTIONAL, 0.0),
        (Kernel.WEIGHTED, 1.0),
    ],
)
def test_the_stats_tell_how_ranks_are_weighed(kernel: Kernel, power: float) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create(replace(SETTINGS, kernel=kernel))
            assert (await worker.bandits.stats(NAME)).hyperparameters.rank_weight_power == power
            if kernel is Kernel.ADAPTIVE:
                await shop.trade(60)
                model = await worker.models.follow(NAME)
                chosen = model.state.posterior.kernel.shape
                assert chosen is not None
                stats = (await worker.bandits.stats(NAME)).hyperparameters
                assert (stats.rank_weight_power, stats.pair_scale, stats.constant_variance) == chosen[:3]
                assert (stats.shared_context, stats.edges_reached) == (model.state.shared, model.state.edges_reached)

    stores = MemoryStores()
    run(stores, scenario)
