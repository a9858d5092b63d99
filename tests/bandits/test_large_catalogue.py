"""A bandit with more items than its rows can show: what it keeps beside them is the same however it came there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.bandits.harness import NAME, Shop, assert_same, rebuilt, replayed, running_worker, whole_log
from tests.contracts.harness import MemoryStores, run

from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.learning.limits import Limits

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store

LIMITS = Limits(rows=8, pending_rows=4)
"""Eight items, and three numbers of a context with what all share, are more than twice as many."""


def has_parts(model: Model) -> bool:
    return model.state.posterior.observed_rows.parts is not None


def test_a_replay_and_a_snapshot_are_the_model_to_the_bit() -> None:
    """Through changes of items, capacity, half-life and prior, late rewards and slates that end without one."""
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, limits=LIMITS) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with_parts = 0
            for _ in range(12):
                await shop.trade(20)
                model = await worker.models.follow(NAME)
                assert_same(model, await rebuilt(store, limits=LIMITS))
                with_parts += has_parts(model)
            assert with_parts > 4, "its catalogue has hardly outgrown its rows"

    run(stores, scenario)


def test_it_goes_on_from_any_checkpoint() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, limits=LIMITS) as worker:
            shop = Shop(worker, stores, np.random.default_rng(3))
            await shop.create()
            await shop.trade(120)
            record = await store.get_bandit(NAME)
            models = replayed(record.incarnation, await whole_log(store, NAME), limits=LIMITS)
            checkpoints = [model for model in models if not model.since_checkpoint]
            kept = [one for one in checkpoints if has_parts(one)]
            assert len(kept) > 4
            for model in kept:
                assert_same(decode_model(encode_model(model), limits=LIMITS), model)

    run(stores, scenario)
