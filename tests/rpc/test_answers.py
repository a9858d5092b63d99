"""Answers over the wire beside a dense Gaussian process that lists all slates (`tests.dense_bandit`)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.dense_bandit import ADAPTIVE, WCK, Answer, DenseBandit, check_answer, check_moments
from tests.rpc.whole import served

from topk_bandit.client import Item, Kernel
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.client import AsyncClient, Recommendation

ITEMS = [f"item {n}" for n in range(6)]
KINDS = {"best", "near", "far"}
MOST_REWARDS = 7
"""With one more the service chooses kernel and noise anew, of which a caller sees nothing."""


@dataclass
class Shop:
    """A caller that keeps what it was answered, and works out what it should have been."""

    client: AsyncClient
    dense: DenseBandit
    rng: np.random.Generator
    log_position: int = 0
    asked: int = 0

    async def ask(self, eligible: Sequence[int]) -> tuple[tuple[float, ...], Recommendation]:
        """Return a context and the slate for it, of a model that knows of all that came before."""
        self.asked += 1
        context = tuple(self.rng.normal(size=2).tolist())
        candidates = None if len(eligible) == len(ITEMS) else [ITEMS[item] for item in eligible]
        shown = await self.client.recommend(
            "home", context, candidates, f"request {self.asked}", min_model_version=self.log_position
        )
        again = await self.client.recommend("home", context, candidates, f"request {self.asked}")
        assert again == shown, "the same request has the same answer"
        self.log_position += 1
        return context, shown

    async def reward(self, context: Sequence[float], shown: Recommendation, value: float) -> None:
        receipt = await self.client.reward("home", shown.id, value)
        self.log_position = receipt.log_position
        self.dense = self.dense.reward(context, places_of(shown), value)

    async def visit(self, eligible: Sequence[int], value: float | None) -> str:
        """Show a slate, post its reward if there is one, and return the kind of the slate."""
        context, shown = await self.ask(eligible)
        kind = check_answer(self.dense, context, self.dense.list_slates(eligible), answer_of(shown))
        self.dense = self.dense.show(context, places_of(shown))
        if value is not None:
            await self.reward(context, shown, value)
        return kind


def places_of(shown: Recommendation) -> tuple[int, ...]:
    return tuple(map(ITEMS.index, shown.items))


def answer_of(shown: Recommendation) -> Answer:
    return Answer(
        places_of(shown),
        shown.propensity,
        tuple(shown.position_propensities),
        shown.mean,
        shown.standard_deviation,
        shown.explored,
    )


@pytest.mark.parametrize(("kernel", "prior"), [(Kernel.WEIGHTED_CONVOLUTIONAL, WCK), (Kernel.ADAPTIVE, ADAPTIVE)])
def test_each_answer_is_the_textbooks(kernel: Kernel, prior: object) -> None:
    async def session() -> None:
        store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)
        async with served(store) as client:
            await client.create_bandit(
                "home",
                slate_size=3,
                item_capacity=6,
                context_dimension=2,
                kernel=kernel,
                constant_beta=1.0,
                uniform_share=0.25,
                near_share=0.4,
                baseline_item_ids=[ITEMS[4], ITEMS[0], ITEMS[2]],
            )
            await client.upsert_items("home", ITEMS)
            await trade(Shop(client, DenseBandit(6, 3, prior, 1.0, 0.25, 0.4), np.random.default_rng(4)))
        await store.close()

    asyncio.run(session())


async def trade(shop: Shop) -> None:
    # Items that were never shown stand for each other: so all are shown first.
    for eligible in ((0, 1, 2), (3, 4, 5)):
        await shop.visit(eligible, float(shop.rng.normal()))
    kinds: Counter[str] = Counter()
    for _ in range(MOST_REWARDS - 2):
        kinds[await shop.visit(range(6), float(shop.rng.normal()))] += 1
        kinds[await shop.visit(sorted(shop.rng.permutation(6)[:5].tolist()), None)] += 1
    while KINDS - set(kinds):  # which are drawn follows from the ids
        kinds[await shop.visit(range(6), None)] += 1
    await ask_for_too_few(shop)


async def ask_for_too_few(shop: Shop) -> None:
    """Leave too few candidates for a slate: the baseline slate is certain, and its moments are its own."""
    await shop.client.upsert_items("home", [Item(ITEMS[n], available=False) for n in (1, 3)])
    context, shown = await shop.ask((1, 3, 4))
    assert (places_of(shown), shown.baseline, shown.explored) == ((4, 0, 2), True, False)
    assert (shown.propensity, list(shown.position_propensities)) == (1.0, [1.0, 1.0, 1.0])
    check_moments(shop.dense, context, answer_of(shown))
