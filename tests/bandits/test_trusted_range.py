"""A bandit whose range of rewards is trusted: each reward counts, after a replay, a snapshot and a change as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import LIMITS, SETTINGS, assert_same, rebuilt
from tests.bandits.test_stages import NAME, change, followed, learned, on_a_worker, recommend

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import RewardRange
from topk_bandit.domain.errors import NotReadyError
from topk_bandit.store.data_versions import check_data_version

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

TRUSTED, DOUBTED = (RewardRange(0.0, 1000.0, trusted=trusted) for trusted in (True, False))


async def sell(worker: Worker, first: int) -> None:
    """Reward slates as shops do, and then one with a large order."""
    await learned(worker, 40, start=first)
    given = await recommend(worker, first + 40)
    await worker.recommender.reward(NAME, given.recommendation_id, 900.0)


@pytest.mark.parametrize(("taken", "outliers"), [(TRUSTED, 0), (DOUBTED, 1)], ids=["trusted", "doubted"])
def test_a_large_order_is_learned_where_the_range_is_trusted(stores: Stores, taken: RewardRange, outliers: int) -> None:
    async def scenario(worker: Worker) -> None:
        await sell(worker, 0)
        model = await followed(worker)
        assert model.state.counted.wild_rewards == outliers
        assert_same(model, await rebuilt(worker.store))
        refit = replace(model, state=model.state.refit(1.0))
        again = decode_model(encode_model(refit, 2), limits=LIMITS)
        assert digests_of(again) == digests_of(refit)
        assert again.state.trusts_rewards == (not outliers)

    on_a_worker(stores, scenario, reward_range=taken)


def test_trust_may_come_later_and_go_and_a_reset_keeps_it(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        counted = []
        for taken in (DOUBTED, TRUSTED, None):
            await change(worker, reward_range=taken)
            await sell(worker, 100 * len(counted))
            counted.append((await followed(worker)).state.counted.wild_rewards)
        assert counted[0] == 1
        assert counted[1] == 0, "the order before counts, too, since the refit after the change"
        assert counted[2] > 0
        await change(worker, reward_range=TRUSTED)
        await worker.bandits.reset_bandit(NAME)
        await sell(worker, 500)
        model = await followed(worker)
        assert (model.state.remembered, model.state.recent.believed.all()) == (41, True)
        assert_same(model, await rebuilt(worker.store))

    on_a_worker(stores, scenario)


def test_it_waits_for_its_data_version() -> None:
    for taken in (TRUSTED, DOUBTED):
        check_data_version(replace(SETTINGS, reward_range=taken), 2)
    check_data_version(replace(SETTINGS, reward_range=DOUBTED), 1)
    with pytest.raises(NotReadyError, match=r"^reward_range.trusted needs data version 2, and 1 is in force"):
        check_data_version(replace(SETTINGS, reward_range=TRUSTED), 1)
