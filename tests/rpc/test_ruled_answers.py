"""Answers under rules over the wire, beside a dense Gaussian process that lists the slates that a judge allows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.harness import AwayStore
from tests.bandits.test_answers import Twins
from tests.dense_bandit import ADAPTIVE, Answer, DenseBandit, check_answer, check_moments
from tests.rpc.whole import served
from tests.ruled_shop import KINDS, SCHEMA, Told, check_mended, draw_item, draw_rule, is_entangled, slates_left

from topk_bandit.client import FailedPrecondition, Item, Kernel, PagePlacement, Recommendation, Source, Stage
from topk_bandit.client.rules import rule_of
from topk_bandit.domain.bandits import Kernel as DomainKernel
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.domain.rules import Exclude, SlateRule
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.ruled_shop import Left

    from topk_bandit.client import AsyncClient

MOST_REWARDS = 7
"""With one more the service chooses what features of items are worth, of which a caller sees nothing."""

BANDITS = ("hero", "row", "foot")


@dataclass
class Caller:
    """A caller that keeps what it was answered, and works out what it should have been."""

    client: AsyncClient
    name: str
    size: int
    rng: np.random.Generator
    dense: DenseBandit
    shelf: dict[str, Any]
    own: list[Told] = field(default_factory=list)
    shown: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    @classmethod
    async def open(cls, client: AsyncClient, name: str, *, size: int, n_items: int) -> Caller:
        rng = np.random.default_rng([n_items, size])
        drawn = [draw_item(f"i{n}", rng) for n in range(n_items)]
        await client.create_bandit(
            name,
            slate_size=size,
            item_capacity=n_items,
            context_dimension=2,
            kernel=Kernel.ADAPTIVE,
            constant_beta=1.0,
            uniform_share=0.25,
            near_share=0.4,
            item_schema=SCHEMA,
        )
        await client.upsert_items(name, [Item(item.item_id, features=like) for item, like in drawn])
        twins = Twins.of(DomainKernel.ADAPTIVE, 1.0, items=[item for item, _ in drawn], item_schema=SCHEMA)
        content = twins.model.state.posterior.kernel.content
        assert content is not None
        dense = DenseBandit(n_items, size, ADAPTIVE, 1.0, 0.25, 0.4, attributes=content.features)
        made = cls(client, name, size, rng, dense, {item.item_id: like for item, like in drawn})
        # Items that were never shown stand for each other: so all are shown first.
        for first in (*range(0, n_items - size, size), n_items - size):
            await made.visit([], made.ids[first : first + size])
        return made

    @property
    def ids(self) -> list[str]:
        return sorted(self.shelf)

    def draw(self, count: int = 1, kind: str = "") -> list[Told]:
        return [draw_rule(self.ids, self.size, self.rng, kind=kind) for _ in range(count)]

    def draw_context(self) -> tuple[float, ...]:
        return tuple(self.rng.normal(size=2).tolist())

    def places(self, slate: Sequence[str]) -> tuple[int, ...]:
        return tuple(map(self.ids.index, slate))

    def left(self, told: Sequence[Told], candidates: Sequence[str] | None = None) -> Left | None:
        return slates_left([*self.own, *told], sorted(candidates or self.ids), self.size, self.shelf, self.shown)

    async def newest(self) -> int:
        return (await self.client.stats(self.name)).log_position

    async def own_rules(self, rules: Sequence[Told], **changes: Any) -> None:  # noqa: ANN401 - of settings
        self.own = list(rules)
        await self.client.update_bandit(self.name, rules=[rule_of(one.rule) for one in rules], **changes)

    async def ask(
        self,
        told: Sequence[Told],
        candidates: Sequence[str] | None = None,
        baseline: Sequence[str] | None = None,
        *,
        is_repeated: bool = True,
    ) -> tuple[tuple[float, ...], Recommendation]:
        """Return a context and the slate for it, of a model that knows of all that came before."""
        self.asked += 1
        context, rules, request_id = self.draw_context(), [rule_of(one.rule) for one in told], f"request {self.asked}"
        given = {"rules": rules, "baseline": baseline, "min_model_version": await self.newest()}
        shown = await self.client.recommend(self.name, context, candidates, request_id, **given)
        if is_repeated:
            assert await self.client.recommend(self.name, context, candidates, request_id, **given) == shown
        return context, shown

    async def visit(
        self, told: Sequence[Told], candidates: Sequence[str] | None = None, *, away: AwayStore | None = None
    ) -> None:
        left = self.left(told, candidates)
        if left is None:
            with pytest.raises(FailedPrecondition, match="no slate keeps"):
                await self.ask(told, candidates)
            self.kinds["clash"] += 1
            return
        if is_entangled(left, [*self.own, *told], candidates or self.ids, self.shelf):
            return
        if away is not None:
            away.is_away = True
        context, shown = await self.ask(told, candidates, is_repeated=away is None)
        self.judge(context, shown, left)
        if away is not None:
            away.is_away = False
            assert (shown.source, shown.id) == (Source.DEGRADED, "")
            self.kinds["degraded"] += 1
            return
        await self.learn(context, shown)

    def judge(self, context: Sequence[float], shown: Recommendation, left: Left) -> None:
        assert list(shown.relaxed_rules) == left.given_up
        slates = [self.places(slate) for slate in left.slates]
        self.kinds[check_answer(self.dense, context, slates, self.answer(shown))] += 1
        self.kinds["relaxed"] += bool(left.given_up)

    def answer(self, shown: Recommendation) -> Answer:
        return Answer(
            self.places(shown.items),
            shown.propensity,
            tuple(shown.position_propensities),
            shown.mean,
            shown.standard_deviation,
            shown.explored,
        )

    async def learn(self, context: Sequence[float], shown: Recommendation) -> None:
        """Reward a slate, high and low by turns so that none is an outlier, while rewards are left."""
        places, count = self.places(shown.items), len(self.dense.rewards)
        self.dense = self.dense.show(context, places)
        if count < MOST_REWARDS:
            value = float((-1) ** count * self.rng.uniform(0.5, 1.0))
            await self.client.reward(self.name, shown.id, value)
            self.dense = self.dense.reward(context, places, value)
            self.shown.update(shown.items)

    async def visit_baseline(self, told: Sequence[Told]) -> None:
        """Ask a bandit that is off: its slate is the caller's, with as little changed as rules ask for."""
        baseline = tuple(map(str, self.rng.permutation(self.ids)[: self.size]))
        if (left := self.left(told)) is None:
            return
        context, shown = await self.ask(told, None, baseline)
        check_mended(shown.items, baseline, left.slates)
        assert (shown.baseline, shown.explored, list(shown.relaxed_rules)) == (True, False, left.given_up)
        assert (shown.propensity, *shown.position_propensities) == (1.0,) * (1 + self.size)
        check_moments(self.dense, context, self.answer(shown))
        self.kinds["mended" if shown.items != baseline else "baseline"] += 1


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[AsyncClient, AwayStore]]:
    store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)
    away: Any = AwayStore(store)
    async with served(away, quotas=Quotas({Quota.BANDITS: 9})) as client:
        yield client, away
    await store.close()


@pytest.mark.parametrize("n_items", [6, pytest.param(7, marks=pytest.mark.slow)])
def test_each_answer_under_rules_is_the_textbooks(n_items: int) -> None:
    """Of each kind of rule and of several; of the bandit, of the request and of both; of slates of each kind."""

    async def session() -> None:
        async with opened() as (client, away):
            caller = await Caller.open(client, "home", size=3, n_items=n_items)
            for number, kind in enumerate(["", *KINDS, "", "", ""]):
                count = 1 if kind else 2
                await caller.own_rules(caller.draw(count, kind) if number % 3 else [])
                for told in ([], caller.draw(count, kind)):
                    await caller.visit(told)
                    await caller.visit(told, away=away)
                await caller.visit(caller.draw(count, kind), caller.ids[:5])
            await caller.own_rules(caller.draw(), stage=Stage.OFF)
            for kind in KINDS:
                await caller.visit_baseline(caller.draw(1, kind))
            least = {"best": 10, "near": 10, "far": 5, "relaxed": 3, "clash": 3, "degraded": 15, "mended": 2}
            assert {name for name, count in least.items() if caller.kinds[name] < count} == set(), caller.kinds

    asyncio.run(session())


def test_each_slate_of_a_page_is_the_textbooks_of_what_is_left() -> None:
    async def session() -> None:
        async with opened() as (client, _):
            callers = [await Caller.open(client, name, size=2, n_items=7) for name in BANDITS]
            for number in range(22):
                told = [one.draw() if number % 3 else [] for one in callers]
                for one in callers if number % 5 == 0 else []:
                    await one.own_rules(one.draw())
                await ask_for_page(client, callers, told, f"page {number}")
            kinds = sum((one.kinds for one in callers), Counter[str]())
            least = {"best": 20, "near": 10, "far": 5, "relaxed": 3, "clash": 3}
            assert {name for name, count in least.items() if kinds[name] < count} == set(), kinds

    asyncio.run(session())


async def ask_for_page(
    client: AsyncClient, callers: Sequence[Caller], told: Sequence[Sequence[Told]], page_id: str
) -> None:
    """Ask for a slate of each bandit: each is drawn among those without an item of the slates before it."""
    for one in callers:
        while (await client.stats(one.name)).model_version < await one.newest():
            await asyncio.sleep(0.01)
    context = callers[0].draw_context()
    placements = [
        PagePlacement(bandit=one.name, rules=[rule_of(rule.rule) for rule in rules])
        for one, rules in zip(callers, told, strict=True)
    ]
    page = await client.recommend_page(placements, context, page_id=page_id)
    again = await client.recommend_page(placements, context, page_id=page_id)
    assert [str(one) for one in again.slates] == [str(one) for one in page.slates]
    before: tuple[str, ...] = ()
    for one, rules, shown in zip(callers, told, page.slates, strict=True):
        left = one.left([*rules, no_longer(before)] if before else rules)
        if not isinstance(shown, Recommendation):
            assert isinstance(shown, FailedPrecondition), shown
            assert left is None
            one.kinds["clash"] += 1
            continue
        assert left is not None
        assert not {*shown.items} & {*before}
        if not is_entangled(left, [*one.own, *rules, no_longer(before)], one.ids, one.shelf):
            one.judge(context, shown, left)
        await one.learn(context, shown)
        before += shown.items


def no_longer(items: tuple[str, ...]) -> Told:
    """Return the rule that a slate shows none of some items."""
    return Told(SlateRule(Exclude(items)), lambda slate, _shelf, _shown: not {*items} & {*slate})
