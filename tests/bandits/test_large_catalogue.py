"""Large catalogues: what a bandit keeps beside its rows is the same however it came there, and 100,000 items fit."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tests.bandits.harness import (
    NAME,
    SETTINGS,
    Archive,
    Shop,
    assert_same,
    replayed,
    request,
    running_worker,
    whole_log,
)
from tests.contracts.harness import MemoryStores, run

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.items import Items
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import MAX_ITEM_CAPACITY, Item, ItemMask
from topk_bandit.domain.features import Features
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import ItemsChanged

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
            shop, archive = Shop(worker, stores, np.random.default_rng(1)), Archive(store)
            await shop.create()
            with_parts, replay = 0, []
            for _ in range(12):
                await shop.trade(20, archive=archive)
                model = await worker.models.follow(NAME)
                await archive.look()
                replay = replayed(model.incarnation, archive.events, limits=LIMITS, after=replay)
                assert_same(model, replay[-1])
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


def test_a_hundred_thousand_items_fit_into_the_memory_that_a_bandit_has() -> None:
    """Slates are of the candidates alone, and the model that is folded again is the same to the bit."""
    stores, n_items, budget = MemoryStores(), MAX_ITEM_CAPACITY, MemoryBudget()
    ids = [f"item-{number:07}" for number in range(n_items)]
    settings = replace(SETTINGS, item_capacity=n_items, slate_size=6)
    limits = budget.limits(context_dim=settings.context_dim, slate_size=settings.slate_size)

    async def scenario(store: Store) -> None:
        rng = np.random.default_rng(5)
        async with running_worker(store, limits=limits) as worker:
            await worker.bandits.create_bandit(NAME, settings)
            for first in range(0, n_items, 10_000):
                await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in ids[first : first + 10_000]])
            for _ in range(60):
                candidates = [ids[number] for number in rng.choice(n_items, size=200, replace=False)]
                given = await worker.recommender.recommend(NAME, request(candidates=candidates))
                assert set(given.slate) <= set(candidates)
                await worker.recommender.reward(NAME, given.recommendation_id, float(rng.normal()))
            hidden, retired = ids[7], ids[50_000]
            stock = ItemMask(features=frozenset(), creates=False)
            await worker.bandits.upsert_items(NAME, [Item(hidden, available=False)], stock)
            await worker.bandits.retire_items(NAME, [retired])
            model = await worker.models.follow(NAME)
            assert model.memory_bytes < budget.model_bytes
            assert model.items.memory_bytes < (len(ids[0]) + 44) * n_items
            assert (model.items.available, model.items.retired) == (
                tuple(item_id for item_id in ids if item_id not in {hidden, retired}),
                (retired,),
            )
            await (archive := Archive(store)).look()
            assert_same(model, replayed(model.incarnation, archive.events, limits=limits)[-1])

    run(stores, scenario)


def test_what_items_with_features_take_is_what_their_memory_says() -> None:
    """By what Python traced of a tenth of a full catalogue, each item with a price and a kind."""
    n_items = 10_000
    ids = [f"item-{number:07}" for number in range(n_items)]
    gc.collect()
    tracemalloc.start()
    try:
        items = Items()
        for first in range(0, n_items, 4000):
            upserted = tuple(
                Item(ids[n], features=Features.of({"price": n / 7, "kind": f"kind {n % 8}"}))
                for n in range(first, min(first + 4000, n_items))
            )
            items = items.apply(ItemsChanged(upserted))
            del upserted
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert abs(items.memory_bytes - taken) < 0.1 * taken
    assert taken < 90 * n_items
