"""Rules of a slate in the service: no answer breaks one, however it came about, and what can't be kept is said.

The judge is in `tests.ruled_shop`, and knows nothing of how the service keeps rules.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, AwayStore, replayed, running_worker
from tests.contracts.harness import run, whole_log
from tests.ruled_shop import SCHEMA, Told, broken_rules, draw_item, draw_rule, least_given_up

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.explanations import explain
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.showable import find_broken_rule
from topk_bandit.domain.bandits import Exploration, Item, PaperBeta
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Count, Exclude, Filter, Group, Pin, SlateRule
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Stage
from topk_bandit.store.events import BanditCreated, ItemsChanged, LoggedEvent, Recommended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.log import Store

RULED = replace(
    SETTINGS,
    item_capacity=40,
    item_schema=SCHEMA,
    exploration=Exploration(PaperBeta(0.1), uniform_share=0.2, near_share=0.2),
)
SIZE = RULED.slate_size


@dataclass
class RuledShop:
    """A caller that changes items and rules, asks with rules of its own, and judges all that it is answered."""

    worker: Worker
    rng: np.random.Generator
    shelf: dict[str, Any] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    own: list[Told] = field(default_factory=list)
    shown: Counter[str] = field(default_factory=Counter)
    asked: dict[str, tuple[RecommendationRequest, list[Told]]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    async def open(self) -> None:
        await self.worker.bandits.create_bandit(NAME, RULED)
        await self.put([f"i{n}" for n in range(7)])

    async def put(self, item_ids: Sequence[str], *, hides: bool = False) -> None:
        drawn = [draw_item(item_id, self.rng) for item_id in item_ids]
        await self.worker.bandits.upsert_items(NAME, [replace(item, available=not hides) for item, _ in drawn])
        self.shelf |= {item.item_id: like for item, like in drawn}
        self.hidden = (self.hidden - {*item_ids}) | ({*item_ids} if hides else set())

    @property
    def available(self) -> list[str]:
        return sorted(self.shelf.keys() - self.hidden)

    async def change(self) -> None:
        """Change items or the bandit's rules."""
        chance, ids = self.rng.random(), sorted(self.shelf)
        if chance < 0.4:
            self.own = [draw_rule(ids, SIZE, self.rng) for _ in range(int(self.rng.integers(3)))]
            await self.settings(rules=tuple(one.rule for one in self.own))
        elif chance < 0.6 and len(self.shelf) < 9:
            await self.put([f"i{len(self.shelf) + self.kinds['retired']}"])
        elif chance < 0.75 and len(self.available) > SIZE + 2:
            gone = str(self.rng.choice(self.available))
            await self.worker.bandits.retire_items(NAME, [gone])
            del self.shelf[gone]
            self.kinds["retired"] += 1
        else:
            await self.put([str(self.rng.choice(ids))], hides=bool(self.rng.random() < 0.3))
        if self.rng.random() < 0.5:
            stage = (Stage.LIVE, Stage.LIVE, Stage.SHADOW, Stage.OFF)[int(self.rng.integers(4))]
            await self.settings(stage=stage)

    async def settings(self, **changed: Any) -> None:  # noqa: ANN401 - of settings
        def change(known: BanditSettings) -> BanditSettings:
            return replace(known, **changed)

        await self.worker.bandits.update_bandit(NAME, change)

    def request(self, number: int) -> tuple[RecommendationRequest, list[Told]]:
        told = [draw_rule(sorted(self.shelf), SIZE, self.rng) for _ in range(int(self.rng.integers(4)))]
        candidates = None
        if self.rng.random() < 0.3:
            candidates = tuple(sorted(map(str, self.rng.choice(sorted(self.shelf), size=5, replace=False))))
        baseline = tuple(map(str, self.rng.choice(self.available, size=SIZE, replace=False)))
        request = RecommendationRequest(
            f"r{number}",
            tuple(self.rng.normal(size=2).tolist()),
            candidates,
            baseline_item_ids=baseline,
            rules=tuple(one.rule for one in told),
        )
        return request, told

    async def visit(self, number: int) -> None:
        request, told = self.request(number)
        model = await self.worker.models.follow(NAME)
        try:
            given = await self.worker.recommender.recommend(NAME, request)
        except NotReadyError as error:
            self.judge_refusal(error, request, told, model)
            return
        self.asked[request.request_id] = request, told
        self.judge(given, request, told)
        if not given.degraded and self.rng.random() < 0.6:
            await self.worker.recommender.reward(NAME, given.recommendation_id, float(self.rng.normal()))
            if given.stage.learns:
                self.shown.update(given.slate)

    def pool(self, request: RecommendationRequest, *, baseline: bool) -> list[str]:
        """Return the items that may be shown but for the rules."""
        left = self.available if request.candidates is None else sorted({*self.available} & {*request.candidates})
        return sorted({*left} | ({*request.baseline_item_ids} if baseline else set()))

    def judge(self, given: Recommendation, request: RecommendationRequest, told: Sequence[Told]) -> None:
        rules = [*self.own, *told]
        pool = self.pool(request, baseline=given.baseline)
        relaxed = least_given_up(rules, pool, SIZE, self.shelf, self.shown)
        assert relaxed == list(given.relaxed)
        for slate in (given.slate, given.best_slate or given.slate):
            assert {*slate} <= {*pool}
            broken = broken_rules(rules, slate, self.shelf, self.shown)
            assert {one.words for one in broken} <= {*given.relaxed}, (slate, broken)
        if given.shadow is not None:
            own = self.pool(request, baseline=False)
            beside = least_given_up(rules, own, SIZE, self.shelf, self.shown)
            assert beside is not None
            broken = broken_rules(rules, given.shadow.slate, self.shelf, self.shown)
            assert {one.words for one in broken} <= {*beside}
        if given.baseline and not broken_rules(rules, request.baseline_item_ids, self.shelf, self.shown):
            assert given.slate == request.baseline_item_ids
        self.kinds.update(
            {
                "answers": 1,
                "ruled": bool(rules),
                "relaxed": bool(relaxed),
                "explored": given.explored,
                "baseline": given.baseline,
                "mended": given.baseline and given.slate != request.baseline_item_ids,
                "degraded": given.degraded,
                "shadow": given.shadow is not None,
            }
        )

    def judge_refusal(
        self, error: NotReadyError, request: RecommendationRequest, told: Sequence[Told], model: Model
    ) -> None:
        """Hold a refusal to be needed, and the rules that it names to clash: all of them together, and no fewer."""
        assert error.reason == "RULES_CLASH", error
        rules = [*self.own, *told]
        is_baseline = not model.settings.stage.shows_own or len(self.pool(request, baseline=False)) < SIZE
        pool = self.pool(request, baseline=is_baseline)
        assert least_given_up(rules, pool, SIZE, self.shelf, self.shown) is None
        places = re.findall(r"(bandit\.)?rules\[(\d+)\]: ([^;]+)", str(error))
        named = [(self.own if whose else list(told))[int(place)] for whose, place, _ in places]
        assert [one.words for one in named] == [words for *_, words in places]
        firm = [replace(one, rule=replace(one.rule, may_relax=False)) for one in named]
        assert not any(one.rule.may_relax for one in named)
        assert least_given_up(firm, pool, SIZE, self.shelf, self.shown) is None
        for n in range(len(firm)):
            assert least_given_up(firm[:n] + firm[n + 1 :], pool, SIZE, self.shelf, self.shown) == []
        self.kinds["clashes"] += 1

    async def ask_again(self) -> None:
        """Repeat a request of before: its slate keeps all rules of now, or the call is refused."""
        known = list(self.asked)
        request, told = self.asked[known[-1 - int(self.rng.integers(min(8, len(known))))]]
        rules = [one for one in [*self.own, *told] if not one.is_new]
        try:
            again = await self.worker.recommender.recommend(NAME, request)
        except NotReadyError as error:
            self.kinds[error.reason] += 1
            return
        assert {*again.slate} <= {*self.available}
        broken = broken_rules(rules, again.slate, self.shelf, self.shown)
        assert {one.words for one in broken} <= {*again.relaxed}
        self.kinds["repeated"] += 1


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_answer_ever_breaks_a_rule(stores: Stores, seed: int) -> None:
    """Under churn of items and rules, explored, degraded, repeated, in shadow and as baseline slates."""
    kinds: list[Counter[str]] = []

    async def play(store: Store) -> None:
        away: Any = AwayStore(store)
        async with running_worker(away, home=stores) as worker:
            shop = RuledShop(worker, np.random.default_rng(seed))
            await shop.open()
            for number in range(120):
                if number % 4 == 3:
                    await shop.change()
                away.is_away = number % 10 == 7
                await shop.visit(number)
                away.is_away = False
                if number % 3 == 2 and shop.asked:
                    await shop.ask_again()
            assert worker.hooks.counts["clashes"] == shop.kinds["clashes"] + shop.kinds["RULES_CLASH"]
            kinds.append(shop.kinds)

    run(stores, play)
    least = {"ruled": 60, "relaxed": 5, "explored": 5, "baseline": 5, "degraded": 3, "repeated": 5, "clashes": 5}
    refusals = {name for name in kinds[0] if name.isupper()}
    assert refusals <= {"ITEM_GONE", "RULES_CHANGED", "RULES_CLASH", "NO_BASELINE"}
    assert {name for name, count in least.items() if kinds[0][name] < count} == set(), kinds[0]


def ruled_model(*rules: SlateRule, likes: Sequence[dict[str, Any]] = ()) -> Model:
    """Return the model of a bandit with rules, and items i0, i1 and so on that are like this."""
    created = LoggedEvent(1, 1, BanditCreated(replace(RULED, rules=rules)))
    items = [Item(f"i{n}", features=Features.of(like)) for n, like in enumerate(likes)]
    return fold(begin("birth", created, limits=LIMITS), LoggedEvent(2, 1, ItemsChanged(tuple(items))))


LIKES = [
    {"category": "soup", "price": 1.0},
    {"category": "soup", "price": 2.0},
    {"category": "soup", "price": 3.0},
    {"category": "cake", "price": 4.0},
    {"category": "cake", "price": 50.0},
    {"category": "salad", "price": 6.0},
]


def test_each_reason_why_an_item_is_absent() -> None:
    no_cake = SlateRule(Count(Group("category", "cake"), most=0))
    model = ruled_model(SlateRule(Exclude(("i5", "i9"))), no_cake, likes=LIKES)
    model = fold(model, LoggedEvent(3, 1, ItemsChanged((Item("off", available=False), Item("far")), ())))
    model = fold(model, LoggedEvent(4, 1, ItemsChanged((Item("old"),), ("old",))))
    asked = RecommendationRequest(
        "r",
        (1.0, 0.5),
        tuple(f"i{n}" for n in range(6)),
        rules=(SlateRule(Filter("price < 10")), SlateRule(Pin(("i0",), 0))),
        explain=("nowhere", "old", "off", "far", "i5", "i4", "i3", "i0", "i1", "i2"),
    )
    given = choose_slate(model, asked)
    assert given.slate[0] == "i0"
    assert {*given.slate} == {"i0", "i1", "i2"}
    assert [(one.item_id, one.reason.value, one.rule) for one in given.absent] == [
        ("nowhere", "unknown", ""),
        ("old", "unknown", ""),
        ("off", "unavailable", ""),
        ("far", "no_candidate", ""),
        ("i5", "excluded", "exclude i5, i9"),
        ("i4", "filtered", "filter price < 10"),
        ("i3", "rule", "at most 0 of category cake"),
    ]
    free = choose_slate(ruled_model(likes=LIKES), RecommendationRequest("r", (1.0, 0.5), None, explain=("i0", "i3")))
    assert {one.reason.value for one in free.absent} <= {"not_chosen"}
    tied = (SlateRule(Pin(("i0",), 0)), SlateRule(Pin(("i1", "i2"), 1)), SlateRule(Pin(("i2",), 2)))
    bound = choose_slate(
        ruled_model(likes=LIKES), RecommendationRequest("r", (1.0, 0.5), None, rules=tied, explain=("i3",))
    )
    assert (bound.slate, [one.reason.value for one in bound.absent]) == (("i0", "i1", "i2"), ["rule"])


def test_rules_that_are_none_are_refused_by_name() -> None:
    model = ruled_model(SlateRule(Exclude(("i0",))), likes=LIKES)

    def refused(*rules: SlateRule) -> str:
        with pytest.raises(InvalidArgumentError) as caught:
            choose_slate(model, RecommendationRequest("r", (1.0, 0.5), None, rules=rules))
        return str(caught.value)

    assert refused(SlateRule(Pin(("i1",), 3))).startswith("rules[0].pin.position: must be from 1 to 3, not 4")
    assert refused(SlateRule(Exclude(("i1",))), SlateRule(Filter("prise < 3"))).startswith("rules[1].filter: ")
    assert refused(*[SlateRule(Exclude(("i1",)))] * 32).startswith("rules: are 33 with the bandit's own")


def test_the_store_refuses_a_slate_of_rules_of_before(stores: Stores) -> None:
    """The second worker has not heard of the change, and chooses again once the store says so."""

    async def play(one: Store, other: Store) -> None:
        async with running_worker(one, home=stores) as first, running_worker(other, home=stores) as second:
            await first.bandits.create_bandit(NAME, RULED)
            await first.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(5)])
            for number in range(30):
                asked = RecommendationRequest(f"r{number}", (1.0, 0.5), None)
                rule = SlateRule(Pin((f"i{number % 5}",), number % SIZE))

                def change(known: BanditSettings, rule: SlateRule = rule) -> BanditSettings:
                    return replace(known, rules=(rule,))

                record = await one.get_bandit(NAME)
                await one.update_settings(NAME, change(record.settings), revision=record.revision)
                given = await second.recommender.recommend(NAME, asked)
                assert given.slate[number % SIZE] == f"i{number % 5}"
                assert not given.degraded
            again = await first.recommender.recommend(NAME, asked)
            assert again == given
            await first.bandits.update_bandit(NAME, lambda known: replace(known, rules=()))
            assert await second.recommender.recommend(NAME, asked) == given
            out = (SlateRule(Exclude((given.slate[0],))),)
            await first.bandits.update_bandit(NAME, lambda known: replace(known, rules=out))
            with pytest.raises(NotReadyError, match="breaks a rule by now") as caught:
                await second.recommender.recommend(NAME, asked)
            assert caught.value.reason == "RULES_CHANGED"
            with pytest.raises(ConflictError, match="request id was used"):
                await second.recommender.recommend(NAME, replace(asked, rules=(SlateRule(Pin(("i1",), 0)),)))

    run(stores, play, connections=2)


def test_every_recorded_decision_under_rules_can_be_made_again(stores: Stores) -> None:
    async def play(store: Store) -> None:
        async with running_worker(store, home=stores) as worker:
            shop = RuledShop(worker, np.random.default_rng(8))
            await shop.open()
            for number in range(60):
                if number % 4 == 3:
                    await shop.change()
                await shop.visit(number)
            events = await whole_log(store, NAME)
            models = replayed((await store.get_bandit(NAME)).incarnation, events)
            recorded = [one.event for one in events if isinstance(one.event, Recommended)]
            assert any(event.request.rules for event in recorded)
            for event in recorded:
                model = models[event.recommendation.model_version - 1]
                again = choose_slate(model, event.request)
                assert replace(again, deadline_ms=event.recommendation.deadline_ms) == event.recommendation
                reasons = explain(model, event.request, event.recommendation)
                assert reasons.chosen_again
                for ranked in reasons.next_best:
                    own = find_broken_rule(model, event.request, replace(event.recommendation, slate=ranked.slate))
                    assert own is None, (own, ranked)

    run(stores, play)
