"""Slates of which the store's reply did not come, and workers that were cut off, in virtual time on simulated lines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.simulation.interviews import STUDY, draw_study
from tests.simulation.line import Trouble
from tests.simulation.running import as_it_is
from tests.simulation.server import Server
from tests.simulation.shop import NAME, Shop
from tests.simulation.virtual_time import run

from topk_bandit.bandits.choices import recommendation_id_of
from topk_bandit.domain.bandits import BanditSettings, ConstantBeta, Exploration, Item, Kernel
from topk_bandit.domain.errors import NotFoundError, NotReadyError, UnavailableError
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import Expired, Recommended, Rewarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

SETTINGS = BanditSettings(
    item_capacity=16,
    slate_size=2,
    context_dim=2,
    kernel=Kernel.CONVOLUTIONAL,
    exploration=Exploration(ConstantBeta(1.0), 0.1),
    reward_wait_ms=60_000,
    default_reward=-5.0,
)
REQUEST = RecommendationRequest("r", (1.0, 0.5), None)


@asynccontextmanager
async def opened() -> AsyncIterator[Shop]:
    server = Server(NAME, STUDY, now=asyncio.get_running_loop().time, wrap=as_it_is)
    shop = Shop(
        server, n_workers=2, settings=SETTINGS, study=draw_study(np.random.default_rng(2)), rng=np.random.default_rng(1)
    )
    await shop.open(begins_warm=False)
    yield shop
    await shop.close()


def play(scenario: Coroutine[object, object, None]) -> None:
    run(scenario, computing_seconds=lambda: 0.001)


def events(shop: Shop, kind: type) -> list[object]:
    return [logged.event for logged in shop.server.archive.events if isinstance(logged.event, kind)]


def test_a_slate_that_may_be_recorded_keeps_its_id_and_its_reward_is_learned() -> None:
    async def scenario() -> None:
        async with opened() as shop:
            worker = shop.workers[0]
            model = await worker.models.follow(NAME)
            worker.line.trouble = Trouble(reply_lost=1.0)
            given = await worker.recommender.recommend(NAME, REQUEST)
            assert (given.degraded, given.recommendation_id) == (True, recommendation_id_of(model.incarnation, "r"))
            assert [event.recommendation.slate for event in events(shop, Recommended)] == [given.slate]
            shop.heal()
            assert (await worker.recommender.reward(NAME, given.recommendation_id, 1.0)).outcome == "accepted"
            await asyncio.sleep(120.0)
            assert len(events(shop, Rewarded)) == 1
            assert events(shop, Expired) == []

    play(scenario())


def test_a_slate_that_was_lost_on_its_way_has_an_id_whose_reward_is_not_found() -> None:
    async def scenario() -> None:
        async with opened() as shop:
            worker = shop.workers[0]
            await worker.models.follow(NAME)
            worker.line.trouble = Trouble(call_lost=1.0)
            given = await worker.recommender.recommend(NAME, REQUEST)
            shop.heal()
            assert given.degraded
            with pytest.raises(NotFoundError):
                await worker.recommender.reward(NAME, given.recommendation_id, 1.0)

    play(scenario())


def test_a_slate_that_was_not_sent_has_no_id() -> None:
    async def scenario() -> None:
        async with opened() as shop:
            worker = shop.workers[0]
            await worker.models.follow(NAME)
            shop.server.is_away = True
            given = await worker.recommender.recommend(NAME, REQUEST)
            assert (given.degraded, given.recommendation_id) == (True, "")
            assert events(shop, Recommended) == []

    play(scenario())


def test_no_other_slate_gets_the_id_of_one_that_may_be_recorded() -> None:
    """Items change while the worker waits for a reply that does not come: the slate that it chose may be recorded."""

    async def scenario() -> None:
        async with opened() as shop:
            worker, other = shop.workers[0], shop.workers[1]
            await worker.models.follow(NAME)
            call = worker.line.send

            async def loses_records(method: str, *rest: object) -> object:
                reply = await call(method, *rest)
                if method == "record_recommendation":
                    await asyncio.sleep(1.0)
                    raise UnavailableError("the store is away: no reply")
                return reply

            worker.line.send = loses_records
            asked = asyncio.ensure_future(worker.recommender.recommend(NAME, REQUEST))
            await asyncio.sleep(0.2)
            assert len(events(shop, Recommended)) == 1
            await other.bandits.upsert_items(NAME, [Item("new")])
            with pytest.raises(UnavailableError):
                await asked

    play(scenario())


def test_a_repeated_slate_of_a_worker_that_was_cut_off_is_looked_at_anew() -> None:
    """An item was retired while the store did not hear of the worker, so that nobody waited for it."""

    async def scenario() -> None:
        async with opened() as shop:
            worker, other = shop.workers[0], shop.workers[1]
            given = await worker.recommender.recommend(NAME, REQUEST)
            worker.line.trouble = Trouble(call_lost=1.0)
            await asyncio.sleep(4.0)
            await other.bandits.retire_items(NAME, [given.slate[0]])
            asked = asyncio.ensure_future(worker.recommender.recommend(NAME, REQUEST))
            await asyncio.sleep(0.95)
            worker.line.trouble = Trouble()
            with pytest.raises(NotReadyError, match="can't be shown any more"):
                await asked

    play(scenario())
