"""Why slates were given out: explained by the model that decided, which is folded again if it has moved on."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Shop, replayed, request, running_worker, worker_status
from tests.contracts.harness import MemoryStores, run, whole_log
from tests.long_forms import usual_or_long

from topk_bandit.bandits.explanations import NEXT_BEST
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import BanditName, Item
from topk_bandit.domain.errors import InvalidArgumentError, NotFoundError, NotReadyError
from topk_bandit.domain.operators import ModelSource
from topk_bandit.domain.quotas import Quotas
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.store.events import Recommended
from topk_bandit.store.log import Snapshot
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.bandits.harness import Worker

    from topk_bandit.domain.operators import Reasons
    from topk_bandit.store.log import Store

SLATES = usual_or_long(40, long=100)


@asynccontextmanager
async def operators_of(worker: Worker) -> AsyncIterator[Operators]:
    with ThreadPoolExecutor(1) as executor:
        yield Operators(
            worker.store,
            worker.models,
            executor,
            logs=WholeLogs(worker.store, None),
            quotas=TenantQuotas(worker.store, Quotas()),
            clock_ms=lambda: 0,
            worker=worker_status,
        )


def total(reasons: Reasons) -> float:
    items = sum(one.own + one.content + one.prior for one in reasons.items)
    return reasons.offset + reasons.context + items + sum(one.value for one in reasons.pairs)


async def recommended(store: Store) -> list[Recommended]:
    return [logged.event for logged in await whole_log(store, NAME) if isinstance(logged.event, Recommended)]


@pytest.mark.slow
@pytest.mark.long_form
def test_every_slate_is_chosen_again_and_its_parts_add_up_to_its_mean() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, operators_of(worker) as operators:
            shop = Shop(worker, stores, np.random.default_rng(11))
            await shop.create()
            await shop.trade(165)
            known = await recommended(store)
            assert len(known) >= SLATES
            sources, explored = set(), 0
            for event in known[-SLATES:]:
                recommendation = event.recommendation
                explanation = await operators.explain_recommendation(NAME, recommendation.recommendation_id)
                assert (explanation.request, explanation.recommendation) == (event.request, recommendation)
                reasons = explanation.reasons
                assert reasons is not None
                assert reasons.chosen_again
                assert abs(total(reasons) - reasons.shown.mean) < 1e-9
                if recommendation.observations > 20:  # before that rewards may be alike
                    assert len(reasons.next_best) == NEXT_BEST
                    assert abs(reasons.shown.mean - recommendation.mean) < 1e-9
                assert abs(reasons.shown.standard_deviation - recommendation.standard_deviation) < 1e-9
                for one in (reasons.shown, *reasons.next_best):  # what waits for its reward narrows only the bounds
                    assert one.mean <= one.upper_bound
                    assert one.upper_bound <= one.mean + math.sqrt(reasons.beta) * one.standard_deviation + 1e-9
                assert reasons.shown.slate == recommendation.slate
                assert recommendation.slate not in [one.slate for one in reasons.next_best]
                if recommendation.best_slate and reasons.shown.score is not None:
                    explored += 1
                    assert recommendation.best_slate in [one.slate for one in reasons.next_best]
                    assert reasons.shown.score <= (reasons.next_best[0].score or 0.0) + 1e-4
                sources.add(explanation.source)
            assert ModelSource.REPLAYED in sources
            assert explored > SLATES // 40

    run(stores, scenario)


def test_the_live_model_explains_what_it_has_just_decided() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker, operators_of(worker) as operators:
            shop = Shop(worker, stores, np.random.default_rng(12))
            await shop.create()
            await shop.trade(20)
            model = await worker.models.follow(NAME)
            worker.models._listener.cancel()  # type: ignore[union-attr]  # so that it learns nothing more
            given = await shop.recommend()
            assert given.model_version == model.version
            explanation = await operators.explain_recommendation(NAME, given.recommendation_id)
            assert explanation.source is ModelSource.LIVE
            assert explanation.reasons is not None
            assert explanation.reasons.chosen_again

    run(stores, scenario)


def test_a_trimmed_log_tells_what_it_still_can() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, operators_of(worker) as operators:
            shop = Shop(worker, stores, np.random.default_rng(13))
            await shop.create()
            await shop.trade(110)
            log, record = await whole_log(store, NAME), await store.get_bandit(NAME)
            models = replayed(record.incarnation, log)
            kept = [model for model in models if model.since_checkpoint == 0][-2:]
            for model in kept:
                snapshot = Snapshot(model.version, encode_model(model))
                behind = (await store.get_bandit(NAME)).snapshot_position
                assert await store.save_snapshot(NAME, snapshot, incarnation=record.incarnation, behind=behind)
            events = [(one.position, one.event) for one in log if isinstance(one.event, Recommended)]
            gone = [event for position, event in events if position <= kept[0].version]
            left = [event for position, event in events if position > kept[0].version]
            before = [one for one in left if one.recommendation.model_version < kept[0].version]
            with pytest.raises(NotReadyError, match="the log begins at") as raised:
                await operators.explain_recommendation(NAME, gone[-1].recommendation.recommendation_id)
            assert raised.value.reason == "LOG_TRIMMED"
            for event in (*before, left[-1]):
                explanation = await operators.explain_recommendation(NAME, event.recommendation.recommendation_id)
                assert explanation.recommendation == event.recommendation
                assert (explanation.reasons is None) == (explanation.source is ModelSource.TRIMMED) == (event in before)

    run(stores, scenario)


def test_what_never_was_is_not_found() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, operators_of(worker) as operators:
            with pytest.raises(NotFoundError):
                await operators.explain_recommendation(BanditName("shop", "none"), "f" * 32)
            await worker.bandits.create_bandit(NAME, SETTINGS)
            with pytest.raises(NotFoundError, match="recommendation ffff"):
                await operators.explain_recommendation(NAME, "f" * 32)

    run(stores, scenario)


def test_top_slates_are_the_best_of_all_by_their_mean() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, operators_of(worker) as operators:
            with pytest.raises(NotFoundError):
                await operators.list_top_slates(NAME, (1.0, 0.5), limit=3)
            await worker.bandits.create_bandit(NAME, SETTINGS)
            with pytest.raises(NotReadyError, match="0 items can be shown"):
                await operators.list_top_slates(NAME, (1.0, 0.5), limit=3)
            await worker.bandits.upsert_items(
                NAME, [*(Item(f"i{n}") for n in range(6)), Item("hidden", available=False)]
            )
            rng = np.random.default_rng(5)
            for number in range(40):
                given = await worker.recommender.recommend(
                    NAME, request(f"r{number}", context=rng.normal(size=2).tolist())
                )
                await worker.recommender.reward(NAME, given.recommendation_id, float(rng.normal()))
            found = await operators.list_top_slates(NAME, (0.3, -1.0), limit=8)
            version, top = found.model_version, found.slates
            assert (found.item_count, found.rules, found.relaxed_rules) == (6, (), ())
            model = await worker.models.follow(NAME)
            assert version == model.version == (await store.get_bandit(NAME)).log_position
            everything = all_rankings(model.items.find_eligible(None).places, slate_size=SETTINGS.slate_size)
            moments = model.state.predict(np.array([0.3, -1.0]), everything)
            best = np.argsort(-moments.mean, kind="stable")[:8]
            assert [one.slate for one in top] == [model.items.find_ids(everything[place]) for place in best]
            assert np.allclose([one.mean for one in top], moments.mean[best])
            assert np.allclose([one.standard_deviation**2 for one in top], moments.variance[best])
            assert [one.upper_bound for one in top] == [one.mean for one in top]
            with pytest.raises(InvalidArgumentError, match="context"):
                await operators.list_top_slates(NAME, (1.0,), limit=3)

    run(stores, scenario)


def test_a_baseline_slate_has_parts_and_nothing_beside_it() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, limits=LIMITS) as worker, operators_of(worker) as operators:
            shop = Shop(worker, stores, np.random.default_rng(14))
            await shop.create()
            await shop.trade(16)
            await shop._update(baseline_item_ids=("i1", "i2", "i3"))
            asked = request("few", candidates=["i1", "nobody", "none"])
            given = await worker.recommender.recommend(NAME, asked)
            assert given.baseline
            await shop.trade(3)
            explanation = await operators.explain_recommendation(NAME, given.recommendation_id)
            assert explanation.reasons is not None
            assert explanation.reasons.chosen_again
            assert (explanation.reasons.next_best, explanation.reasons.beta) == ((), 0.0)
            assert abs(total(explanation.reasons) - explanation.reasons.shown.mean) < 1e-9

    run(stores, scenario)
