"""The wire over the real use cases and the reference store: the parts keep what they promise to each other."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.rpc.whole import served

from topk_bandit.client import (
    ActivationOutcome,
    Aggregation,
    AlreadyExists,
    AsyncClient,
    FailedPrecondition,
    InvalidArgument,
    Item,
    NotFound,
    PastObservation,
    ResourceExhausted,
    RewardOutcome,
    RewardRange,
)
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def service() -> AsyncIterator[AsyncClient]:
    store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)
    try:
        async with served(store) as client:
            yield client
    finally:
        await store.close()


def run(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def session() -> None:
        async with service() as client:
            await scenario(client)

    asyncio.run(session())


async def opened(client: AsyncClient) -> None:
    await client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=2, default_reward=0.0)
    await client.upsert_items("home", ["a", "b", "c", "d", Item("e", available=False)])


def test_a_slate_earns_its_reward() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        first = await client.recommend("home", [1.0, 0.5], request_id="r1")
        assert len(set(first.items)) == 2
        assert set(first.items) <= set("abcd")
        assert 0.0 < first.propensity <= 1.0
        assert await client.recommend("home", [1.0, 0.5], request_id="r1") == first
        assert (await client.reward("home", first.id, 1.0)).outcome is RewardOutcome.ACCEPTED
        assert (await client.reward("home", first.id, 1.0)).outcome is RewardOutcome.DUPLICATE
        stats = await client.stats("home")
        assert (stats.recommendation_count, stats.observation_count, stats.mean_reward) == (1, 1, 1.0)
        assert (stats.item_count, stats.available_item_count) == (5, 4)
        second = await client.recommend("home", [1.0, 0.5])
        assert second.observations == 1
        batch = await client.rewards("home", {second.id: 2.0, "none": 1.0})
        assert {one: receipt.outcome for one, receipt in batch.receipts.items()} == {second.id: RewardOutcome.ACCEPTED}
        assert list(batch.errors) == ["none"]

    run(scenario)


def test_a_reward_says_what_the_items_of_its_slate_did() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        await client.update_bandit("home", default_item_value=0.0)
        slate = await client.recommend("home", [1.0, 0.5])
        clicked, other = slate.items
        with pytest.raises(InvalidArgument) as unknown:
            await client.reward("home", slate.id, 1.0, item_values={clicked: 1.0, "soup": 1.0})
        assert unknown.value.field == 'item_values["soup"]'
        posted = await client.reward("home", slate.id, 1.0, item_values={clicked: 1.0})
        again = await client.reward("home", slate.id, 1.0, item_values={clicked: 1})
        assert [posted.outcome, again.outcome] == [RewardOutcome.ACCEPTED, RewardOutcome.DUPLICATE]
        for item_values in ({clicked: 2.0}, None):
            with pytest.raises(AlreadyExists) as refused:
                await client.reward("home", slate.id, 1.0, item_values=item_values)
            assert refused.value.reason == "REWARD_EXISTS"
        amended = await client.amend_reward("home", slate.id, 0.5, item_values={other: 3.0})
        events = (await client.export_events("home", start=posted.log_position)).events
        assert [json.loads(one.event_json).get("item_values") for one in events] == [[1.0, 0.0], [0.0, 3.0]]
        assert (amended.outcome, amended.log_position) == (RewardOutcome.ACCEPTED, events[-1].position)
        past = PastObservation(tuple("ab"), 1.0, (1.0, 0.5), item_values={"b": 1.0})
        report = await client.import_observations("home", [past], import_id="year")
        [imported] = (await client.export_events("home", start=report.log_position)).events
        assert json.loads(imported.event_json)["slates"][0]["item_values"] == [None, 1.0]
        with pytest.raises(InvalidArgument) as bad:
            await client.import_observations("home", [replace(past, item_values={"c": 1.0})], import_id="month")
        assert bad.value.field == 'rows[0].item_values["c"]'

    run(scenario)


def test_rewards_as_shops_have_them() -> None:
    """A slate is fetched ahead, shown, clicked at and bought from; one order is amended, another slate was a bot's."""

    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        await client.update_bandit(
            "home",
            reward_range=RewardRange(0.0, 10.0, trusted=True),
            reward_aggregation=Aggregation.SUM,
            requires_activation=True,
        )
        shown, bot, unseen = [await client.recommend("home", [1.0, 0.5]) for _ in range(3)]
        for slate in (shown, bot):
            assert (await client.activate("home", slate.id)).outcome is ActivationOutcome.ACTIVATED
        stats = await client.stats("home")
        assert (stats.pending_count, stats.inactive_count, stats.pending_row_count) == (2, 1, 2)
        with pytest.raises(InvalidArgument) as wild:
            await client.reward("home", shown.id, 11.0, reward_id="order")
        assert wild.value.field == "value"
        assert "from 0.0 to 10.0" in str(wild.value)
        batch = await client.rewards("home", {shown.id: 1.0, bot.id: 99.0}, reward_id="click")
        assert list(batch.receipts) == [shown.id]
        assert isinstance(batch.errors[bot.id], InvalidArgument)
        assert batch.errors[bot.id].field == "rewards[1].value"
        await client.reward("home", shown.id, 8.0, reward_id="order")
        await client.amend_reward("home", shown.id, 4.0, reward_id="order")
        await client.void_reward("home", bot.id)
        with pytest.raises(AlreadyExists) as ended:
            await client.reward("home", bot.id, 1.0, reward_id="click")
        assert ended.value.reason == "REWARD_FINAL"
        learned = await client.reward("home", shown.id, 0.5, reward_id="return", final=True)
        stats = await client.stats("home")
        assert (stats.observation_count, stats.mean_reward, stats.pending_count) == (1, 5.5, 0)
        assert (await client.recommend("home", [1.0, 0.5], min_model_version=learned.log_position)).observations == 1
        amended = await client.amend_reward("home", shown.id, 0.0, reward_id="order")
        assert amended.outcome is RewardOutcome.ACCEPTED
        assert (await client.stats("home")).mean_reward == 1.5
        await client.void_reward("home", shown.id)
        stats = await client.stats("home")
        assert (stats.observation_count, stats.mean_reward, stats.corrected_reward_count) == (0, 0.0, 2)
        assert (stats.missed_correction_count, stats.lapsed_count, stats.shown_otherwise_count) == (0, 0, 0)
        with pytest.raises(FailedPrecondition) as nothing:
            await client.amend_reward("home", unseen.id, 1.0, reward_id="order")
        assert nothing.value.reason == "NO_REWARD"

    run(scenario)


def test_a_reward_that_is_folded_is_corrected_no_more() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        slates = [await client.recommend("home", [1.0, float(number)]) for number in range(12)]
        for number, slate in enumerate(slates):
            await client.reward("home", slate.id, float(number))
        before = await client.stats("home")
        for correct in (client.void_reward("home", slates[0].id), client.amend_reward("home", slates[0].id, 5.0)):
            with pytest.raises(FailedPrecondition) as folded:
                await correct
            assert folded.value.reason == "REWARD_FOLDED"
        assert await client.stats("home") == before
        assert (await client.void_reward("home", slates[-1].id)).outcome is RewardOutcome.ACCEPTED
        assert (await client.stats("home")).observation_count == 11

    run(scenario)


def test_a_retired_item_is_in_no_slate() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        assert await client.retire_items("home", ["a", "b"]) == 3
        slates = [await client.recommend("home", [1.0, 0.0]) for _ in range(5)]
        assert {item for slate in slates for item in slate.items} == {"c", "d"}
        assert [item.item_id async for item in client.items("home")] == ["c", "d", "e"]

    run(scenario)


def test_errors_of_the_use_cases_arrive_typed() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        with pytest.raises(InvalidArgument) as wrong_context:
            await client.recommend("home", [1.0])
        assert wrong_context.value.field == "context"
        with pytest.raises(InvalidArgument) as no_slate:
            await client.recommend("home", [1.0, 0.0], candidates=["a"])
        assert no_slate.value.field == "candidate_item_ids"
        with pytest.raises(FailedPrecondition) as too_few:
            await client.recommend("home", [1.0, 0.0], candidates=["a", "e"])
        assert too_few.value.reason == "TOO_FEW_ITEMS"
        assert too_few.value.numbers == {"items_left": 1, "passed_over": 1, "slate_size": 2}
        with pytest.raises(NotFound):
            await client.recommend("home", [1.0, 0.0], candidates=["a", "b", "zebra"], strict_candidates=True)
        await client.recommend("home", [1.0, 0.0], request_id="r1")
        with pytest.raises(AlreadyExists) as reused:
            await client.recommend("home", [2.0, 0.0], request_id="r1")
        assert reused.value.reason == "REQUEST_ID_REUSED"
        with pytest.raises(AlreadyExists) as exists:
            await client.create_bandit("home", slate_size=3, item_capacity=6)
        assert exists.value.reason == "BANDIT_EXISTS"

    run(scenario)


def test_quotas_and_changes_of_settings() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        await client.create_bandit("other", slate_size=1, item_capacity=2)
        with pytest.raises(ResourceExhausted) as full:
            await client.create_bandit("third", slate_size=1, item_capacity=2)
        assert full.value.reason == "BANDIT_QUOTA"
        changed = await client.update_bandit("home", uniform_share=0.5, default_reward=None)
        assert (changed.uniform_share, changed.default_reward, changed.constant_beta) == (0.5, None, 1.0)
        assert [bandit.name async for bandit in client.list_bandits()] == ["home", "other"]
        await client.delete_bandit("home")
        with pytest.raises(NotFound):
            await client.stats("home")

    run(scenario)
