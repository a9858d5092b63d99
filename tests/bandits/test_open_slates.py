"""Slates that await their reward are in the store: they cost a model nothing, and are learned from their event."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import NAME, SETTINGS, assert_same, begun, request, running_worker, then
from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import recommendation
from tests.long_forms import usual_or_long

from topk_bandit.bandits.budget import MIB, MemoryBudget
from topk_bandit.bandits.history import History
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import Expired, Recommended, Rewarded, Shown
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

LIMITS = Limits(rows=200, pending_rows=8)
SLATE = ("i0", "i1", "i3")
MOST_BYTES = 850
"""What docs/operations.md says that an open slate of 5 numbers and 6 items costs in the store, and a little."""


def recommended(number: int) -> Recommended:
    asked = request(f"q{number}", context=(float(number % 7), 1.0))
    return Recommended(asked, replace(recommendation(f"r{number}"), slate=SLATE))


def shown(number: int) -> Shown:
    return Shown(recommended(number).request.context, SLATE, 0)


@pytest.mark.slow
@pytest.mark.long_form
def test_slates_that_wait_cost_a_model_nothing() -> None:
    few, many = 1000, usual_or_long(20_000, long=200_000)
    model, sizes = begun(limits=LIMITS), {}
    for number in range(many):
        model = then(model, recommended(number))
        if number + 1 in {few, many}:
            without_history = replace(model, history=History())
            sizes[model.open_slates] = (without_history.memory_bytes, len(encode_model(without_history)))
    assert sorted(sizes) == [few, many]
    assert sizes[few][0] == sizes[many][0]
    assert sizes[many][1] <= sizes[few][1] + 64, "but for digits"
    assert decode_model(encode_model(model), limits=LIMITS).open_slates == many
    oldest = then(model, Rewarded("r0", 0.5, shown(0)))
    assert (oldest.open_slates, oldest.state.observations) == (many - 1, 1)


def test_a_slate_that_counts_no_more_is_learned_from_its_event() -> None:
    model = begun(limits=LIMITS)
    for number in range(LIMITS.pending_rows + 1):
        model = then(model, recommended(number))
    assert "r0" not in model.state.pending_ids
    other = Shown((2.5, -1.0), ("i7", "i2", "i5"), 0)
    learned = then(model, Rewarded("r0", 0.5, other)).state.posterior.observed_rows
    assert learned.contexts.tolist() == [model.state.encode(np.array([2.5, -1.0])).tolist()]
    assert learned.rankings.tolist() == [[7, 2, 5]]
    expired = then(model, Expired("r0", 0.5, other)).state.posterior.observed_rows
    assert (expired.contexts.tolist(), expired.rankings.tolist()) == (learned.contexts.tolist(), [[7, 2, 5]])


def test_open_slates_are_counted() -> None:
    model = begun(limits=LIMITS)
    for number in range(5):
        model = then(model, recommended(number))
    for event, left in (
        (Rewarded("r0", 1.0, shown(0)), 4),
        (Expired("r1", None, None), 3),
        (Expired("r2", -1.0, shown(2)), 2),
        (Rewarded("r4", 1.0, shown(4)), 1),
    ):
        model = then(model, event)
        assert model.open_slates == left
    assert (model.state.observations, model.tally.defaults, model.tally.expirations) == (3, 1, 2)


@pytest.mark.parametrize(
    "event", [Rewarded("r0", 1.0, shown(0)), Expired("r0", None, None), Expired("r0", 1.0, shown(0))]
)
def test_more_ends_than_beginnings_are_no_log(event: Event) -> None:
    with pytest.raises(CorruptDataError, match="none is open"):
        then(begun(limits=LIMITS), event)
    closed = then(then(begun(limits=LIMITS), recommended(0)), event)
    with pytest.raises(CorruptDataError, match="none is open"):
        then(closed, event)


def test_a_log_that_says_too_little_or_too_much_is_refused() -> None:
    model, later = then(begun(limits=LIMITS), recommended(0)), recommended(1)
    for event, problem in (
        (recommended(0), "which is open"),
        (Expired("r0", 1.0, None), "not what was shown"),
        (replace(later, recommendation=replace(later.recommendation, slate=("i0", "i1", "nowhere"))), "'nowhere'"),
    ):
        with pytest.raises(CorruptDataError, match=problem):
            then(model, event)


@pytest.mark.slow
def test_thousands_may_wait_and_each_is_still_learned(embedded: EmbeddedStore) -> None:
    """A worker with little memory goes on recommending, and learns the oldest slate though the log has lost it."""
    stores, count = RedisStores(embedded.url), 3000
    settings = replace(SETTINGS, item_capacity=50, slate_size=6, context_dim=5)
    ids, rng = [f"item-{number:03d}" for number in range(50)], np.random.default_rng(3)

    async def record(store: Store, number: int, *, incarnation: str) -> None:
        slate = tuple(rng.choice(ids, 6, replace=False).tolist())
        asked, given = request(f"q{number}", context=rng.normal(size=5).tolist()), recommendation(f"{number:032x}")
        await store.record_recommendation(
            NAME, asked, replace(given, slate=slate), incarnation=incarnation, items_position=2
        )

    async def wait_for_all(store: Store) -> None:
        born = (await store.get_bandit(NAME)).incarnation
        for first in range(0, count, 50):
            batch = range(first, first + 50)
            await asyncio.gather(*(record(store, number, incarnation=born) for number in batch))

    async def scenario(store: Store) -> None:
        async with running_worker(store, budget=MemoryBudget(model_bytes=MIB // 16)) as worker:
            await worker.bandits.create_bandit(NAME, settings)
            await worker.bandits.upsert_items(NAME, [Item(one) for one in ids])
            await wait_for_all(store)
            before = await worker.models.follow(NAME)
            assert before.open_slates == (await store.get_bandit(NAME)).pending == count
            assert (await store.read_log(NAME, start=1, limit=1)).first_position > 3, "the first slate is in no log"
            given = await worker.recommender.recommend(NAME, request("one more", context=(0.5,) * 5))
            assert not given.degraded
            assert (await worker.recommender.reward(NAME, f"{0:032x}", 2.0)).outcome is RewardOutcome.ACCEPTED
            assert (
                await worker.recommender.reward(NAME, given.recommendation_id, 1.0)
            ).outcome is RewardOutcome.ACCEPTED
            after = await worker.models.follow(NAME)
            assert (after.open_slates, after.state.observations) == (count - 1, 2)
            stats = await worker.bandits.stats(NAME)
            assert (stats.pending, stats.observations) == (count - 1, 2)
            assert stats.store_bytes > 0.8 * MOST_BYTES * count
            await assert_another_worker_agrees(store, after)
            keys = KeySpace(stores.prefix).bandit(NAME)
            used = [
                await store._link.call("MEMORY USAGE", key, "SAMPLES", 0)  # type: ignore[attr-defined]
                for key in (keys.recommendations, keys.deadlines)
            ]
            assert 0.8 * MOST_BYTES < sum(used) / count < MOST_BYTES

    async def assert_another_worker_agrees(store: Store, model: Model) -> None:
        async with running_worker(store) as other:
            assert_same(await other.models.follow(NAME), model)

    run(stores, scenario)
