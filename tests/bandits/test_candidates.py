"""Candidates that can't be shown: passed over and counted, refused if that is wanted, or answered by the baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import NAME, SETTINGS, assert_same, rebuilt, request, running_worker
from tests.contracts.harness import run

from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import InvalidArgumentError, NotFoundError, NotReadyError
from topk_bandit.domain.features import Feature, Features, Numeric, width_of
from topk_bandit.domain.slates import RecommendationRequest

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.store.log import Store

BASELINE = ("i5", "i4", "i3")
GONE = ["old", "i7", "never"]
"""One is retired, one unavailable, one unknown."""


async def opened(worker: Worker, *, baseline: tuple[str, ...] = ()) -> None:
    await worker.bandits.create_bandit(NAME, replace(SETTINGS, baseline_item_ids=baseline))
    await worker.bandits.upsert_items(
        NAME, [*(Item(f"i{n}") for n in range(7)), Item("i7", available=False), Item("old")]
    )
    await worker.bandits.retire_items(NAME, ["old"])


def test_candidates_that_can_not_be_shown_are_passed_over_and_counted(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await opened(worker)
            asked = request("r1", candidates=["i0", *GONE, "i1", "i2"])
            given = await worker.recommender.recommend(NAME, asked)
            assert (set(given.slate), given.passed_over, given.baseline) == ({"i0", "i1", "i2"}, 3, False)
            assert await worker.recommender.recommend(NAME, asked) == given
            hidden = request("r2", candidates=["i0", "i7", "i1", "i2"])
            strict = await worker.recommender.recommend(NAME, hidden, strict_candidates=True)
            assert strict.passed_over == 1, "it is there, and may come back"
            assert (await worker.bandits.stats(NAME)).passed_over == 4
            before = await store.get_bandit(NAME)
            for one in ("old", "never"):
                with pytest.raises(NotFoundError, match=one):
                    await worker.recommender.recommend(
                        NAME, request(candidates=["i0", "i1", "i2", one]), strict_candidates=True
                    )
            assert await store.get_bandit(NAME) == before

    run(stores, scenario)


@pytest.mark.parametrize("baseline", [(), ("i5", "i4", "i7"), ("i5", "i4", "old"), ("i5", "i4", "unborn")])
def test_too_few_items_are_told_with_their_numbers(stores: Stores, baseline: tuple[str, ...]) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await opened(worker, baseline=baseline)
            before = await store.get_bandit(NAME)
            with pytest.raises(NotReadyError, match="2 items can be shown, 3 were passed over") as caught:
                await worker.recommender.recommend(NAME, request(candidates=["i0", *GONE, "i1"]))
            assert caught.value.reason == "TOO_FEW_ITEMS"
            assert caught.value.numbers == {"items_left": 2, "passed_over": 3, "slate_size": 3}
            assert ("baseline" in str(caught.value)) == bool(baseline)
            with pytest.raises(InvalidArgumentError, match="candidate_item_ids: has 2 items"):
                await worker.recommender.recommend(NAME, request(candidates=["i0", "i1"]))
            assert await store.get_bandit(NAME) == before
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}", available=False) for n in range(5)])
            with pytest.raises(NotReadyError, match="2 items can be shown"):
                await worker.recommender.recommend(NAME, request())

    run(stores, scenario)


def test_the_baseline_slate_is_given_to_requests_with_features_too(stores: Stores) -> None:
    schema = (Feature("basket", Numeric()),)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            described = replace(
                SETTINGS, context_schema=schema, context_dim=width_of(schema), baseline_item_ids=BASELINE
            )
            await worker.bandits.create_bandit(NAME, described)
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(7)])
            asked = RecommendationRequest("r1", Features.of({"basket": 3.0}), ("i0", "never", "nor"))
            given = await worker.recommender.recommend(NAME, asked)
            assert (given.slate, given.baseline) == (BASELINE, True)
            model = await worker.models.follow(NAME)
            assert model.encoder is not None
            assert len(model.encoder.records[0].sample) == 1

    run(stores, scenario)


def test_the_baseline_slate_is_given_recorded_and_learned_from(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await opened(worker, baseline=BASELINE)
            asked = request("r1", candidates=["i0", *GONE])
            given = await worker.recommender.recommend(NAME, asked)
            assert (given.slate, given.baseline, given.explored, given.passed_over) == (BASELINE, True, False, 3)
            assert (given.propensity, given.position_propensities) == (1.0, (1.0, 1.0, 1.0))
            assert (given.regret_bound, given.estimated_regret) == (0.0, 0.0)
            assert await worker.recommender.recommend(NAME, asked) == given
            await worker.recommender.reward(NAME, given.recommendation_id, 2.0)
            model = await worker.models.follow(NAME)
            assert model.state.observations == 1
            [row] = model.items.find_indices(BASELINE)[None].tolist()
            assert model.state.posterior.observations.rankings.tolist() == [row]
            other = await worker.recommender.recommend(NAME, request("r2"))
            assert not other.baseline
            await worker.bandits.update_bandit(NAME, lambda settings: replace(settings, baseline_item_ids=()))
            with pytest.raises(NotReadyError):
                await worker.recommender.recommend(NAME, replace(asked, request_id="r3"))
            assert_same(await worker.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


@pytest.mark.parametrize("change", ["retire", "hide"])
def test_a_repeated_request_never_shows_what_was_taken_out(stores: Stores, change: str) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, running_worker(store) as elsewhere:
            await opened(worker)
            asked = request("r1", candidates=["i0", "i1", "i2"])
            given = await elsewhere.recommender.recommend(NAME, asked)
            if change == "retire":
                await worker.bandits.retire_items(NAME, ["i1"])
            else:
                await worker.bandits.upsert_items(NAME, [Item("i1", available=False)])
            for one in (worker, elsewhere):
                with pytest.raises(NotReadyError, match="'i1'") as caught:
                    await one.recommender.recommend(NAME, asked)
                assert caught.value.reason == "ITEM_GONE"
            await worker.recommender.reward(NAME, given.recommendation_id, 1.0)
            assert (await worker.models.follow(NAME)).state.observations == 1
            if change == "hide":
                await worker.bandits.upsert_items(NAME, [Item("i1")])
                assert await elsewhere.recommender.recommend(NAME, asked) == given

    run(stores, scenario)


def test_a_repeated_request_is_answered_by_a_worker_that_has_yet_to_hear_of_its_items(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=5.0) as worker, running_worker(store) as elsewhere:
            await opened(worker)
            await elsewhere.bandits.upsert_items(NAME, [Item("new")])
            asked = request("r1", candidates=["i0", "i1", "new"])
            given = await elsewhere.recommender.recommend(NAME, asked)
            assert await worker.recommender.recommend(NAME, asked) == given

    run(stores, scenario)
