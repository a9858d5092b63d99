"""Regrets are added up in the rewards' unit: before two rewards differ there is none, and nothing is added."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import MemoryStores
from tests.rpc.whole import served

from topk_bandit.client import Stage
from topk_bandit.testing import local_service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.client import BanditStats

ITEMS = [f"i{number}" for number in range(6)]


def play(rewards: Sequence[float], *, after: int, unit: float = 1.0, data_version: int | None = None) -> BanditStats:
    """Return what a shop comes to whose first rewards are all zero; each comes some slates late."""
    with local_service(seed=3) as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=8, uniform_share=0.3)
        client.upsert_items("home", ITEMS)
        ids = list[str]()
        for number, reward in enumerate(rewards):
            ids.append(client.recommend("home", request_id=f"r{number}").id)
            if number >= after:
                client.reward("home", ids[number - after], unit * reward)
        return client.stats("home")


def test_slates_of_before_two_rewards_differ_add_nothing() -> None:
    none = play([0.0] * 40, after=5)
    assert (none.regret_bound_sum, none.estimated_regret_sum) == (0.0, 0.0)
    assert none.observation_count == 35


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_sums_have_the_unit_of_the_rewards(unit: float) -> None:
    """The same shop in another currency: not to the bit, since what is learned of it rounds otherwise."""
    rewards = [0.0] * 30 + [1.0, 0.0, 2.0, 0.0, 1.5] * 8
    one, other = play(rewards, after=3), play(rewards, after=3, unit=unit)
    assert one.estimated_regret_sum > 0.0
    assert other.estimated_regret_sum / unit == pytest.approx(one.estimated_regret_sum, rel=0.05)
    assert other.regret_bound_sum / unit == pytest.approx(one.regret_bound_sum, rel=0.05)


def test_history_and_statistics_agree_and_a_snapshot_keeps_them() -> None:
    async def scenario() -> None:
        async with MemoryStores().connect() as store:
            async with served(store) as client:
                await client.create_bandit("home", slate_size=2, item_capacity=8)
                await client.upsert_items("home", ITEMS)
                for number in range(30):
                    slate = await client.recommend("home")
                    await client.reward("home", slate.id, float(number > 20) * number)
                before = await client.stats("home")
            async with served(store) as client:
                assert await client.stats("home") == before

    asyncio.run(scenario())


def test_a_shadow_counts_slates_once_its_gain_has_a_unit() -> None:
    with local_service(seed=5) as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=8, stage=Stage.SHADOW)
        client.upsert_items("home", ITEMS)
        client.update_bandit("home", baseline_item_ids=ITEMS[:2])
        for number in range(40):
            slate = client.recommend("home", request_id=f"r{number}")
            if number == 20:
                assert client.stats("home").shadow is None or client.stats("home").shadow.slates == 0
            client.reward("home", slate.id, 0.001 * (number % 3 if number > 20 else 1))
            service.let_pass(timedelta(seconds=1))
        shadow = client.stats("home").shadow
        assert shadow is not None
        assert 10 < shadow.slates < 20
        assert shadow.gain is not None
        assert shadow.gain.high - shadow.gain.low < 0.1
