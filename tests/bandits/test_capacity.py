"""A bandit's capacity for items is raised while it lives, and what it learned stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Shop, assert_same, rebuilt, request, running_worker
from tests.contracts.harness import run

from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item, Kernel
from topk_bandit.domain.errors import ExhaustedError, InvalidArgumentError

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.store.log import BanditRecord, Store


async def raised(worker: Worker, item_capacity: int) -> BanditRecord:
    return await worker.bandits.update_bandit(NAME, lambda settings: replace(settings, item_capacity=item_capacity))


def test_items_that_found_no_capacity_find_it_once_the_capacity_is_raised(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create(replace(SETTINGS, item_capacity=8))
            await shop.trade(19)
            with pytest.raises(ExhaustedError, match="room for 8 items"):
                await worker.bandits.upsert_items(NAME, [Item("late")])
            before = await worker.models.follow(NAME)
            assert (await raised(worker, 40)).settings.item_capacity == 40
            after = await worker.models.follow(NAME)
            assert after.state.posterior.kernel.n_items == 40
            assert after.state.observations == before.state.observations
            assert after.since_checkpoint == 0
            assert after.memory_bytes >= after.state.memory_bytes + after.items.memory_bytes
            assert_same(decode_model(encode_model(after), limits=LIMITS), after)
            await worker.bandits.upsert_items(NAME, [Item(f"late-{n}") for n in range(32)])
            slates = [await worker.recommender.recommend(NAME, request(candidates=[f"late-{n}" for n in range(9)]))]
            assert set(slates[0].slate) <= {f"late-{n}" for n in range(9)}
            assert_same(await worker.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_a_kernel_without_a_part_for_items_is_not_raised_above_its_slates_while_it_has_a_prior(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            worker.notebook.write("tastes", {"i0": 1.0, "i1": -1.0})
            settings = replace(SETTINGS, kernel=Kernel.WEIGHTED, item_capacity=3, prior_study="tastes")
            await worker.bandits.create_bandit(NAME, settings)
            before = await store.get_bandit(NAME)
            with pytest.raises(InvalidArgumentError, match="KERNEL_WEIGHTED"):
                await raised(worker, 4)
            assert await store.get_bandit(NAME) == before

    run(stores, scenario)
