"""Answers under rules beside a dense Gaussian process that lists the slates that a judge of rules allows.

The process is `tests.dense_bandit`, and the judge `tests.ruled_shop`: neither has code of the service.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.test_answers import SLATE_SIZE, Twins, answer_of, name_of, places_of
from tests.dense_bandit import check_answer, check_moments
from tests.ruled_shop import KINDS, SCHEMA, Told, check_mended, draw_item, draw_rule, is_entangled, slates_left

from topk_bandit.bandits import choices
from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.showable import Showable
from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Stage
from topk_bandit.learning import propensities
from topk_bandit.learning.near_slates import NearSlates
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.rankings import log_count, random_rankings
from topk_bandit.store.events import SettingsChanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.dense_bandit import Slate
    from tests.ruled_shop import Left

    from topk_bandit.domain.slates import Recommendation

MOST_REWARDS = 7
"""With one more the service chooses what features of items are worth, which the textbook does not know."""


@dataclass
class RuledTwins:
    """A bandit under rules as the service has it, and the same by the textbook."""

    twins: Twins
    shelf: dict[str, Any]
    kind: str
    rng: np.random.Generator
    own: list[Told] = field(default_factory=list)
    shown: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    @classmethod
    def of(cls, n_items: int, kind: str = "", *, seed: int = 1) -> RuledTwins:
        rng = np.random.default_rng([n_items, seed])
        drawn = [draw_item(name_of(n), rng) for n in range(n_items)]
        items = [item for item, _ in drawn]
        twins = Twins.of(Kernel.ADAPTIVE, 1.0, items=items, item_schema=SCHEMA)
        content = twins.model.state.posterior.kernel.content
        assert content is not None
        twins.dense = replace(twins.dense, attributes=content.features)
        made = cls(twins, {item.item_id: like for item, like in drawn}, kind, rng)
        # Items that were never shown stand for each other: so all are shown first.
        for first in (*range(0, n_items - SLATE_SIZE, SLATE_SIZE), n_items - SLATE_SIZE):
            made.visit(made.request([], made.ids[first : first + SLATE_SIZE]), [], is_rewarded=True)
        return made

    @property
    def ids(self) -> list[str]:
        return sorted(self.shelf)

    def draw(self) -> list[Told]:
        count = 1 if self.kind else int(self.rng.integers(1, 3))
        return [draw_rule(self.ids, SLATE_SIZE, self.rng, kind=self.kind) for _ in range(count)]

    def request(self, told: Sequence[Told], candidates: Sequence[str] | None = None) -> RecommendationRequest:
        self.asked += 1
        context = tuple(self.rng.normal(size=2).tolist())
        asked = None if candidates is None else tuple(candidates)
        return RecommendationRequest(f"r{self.asked}", context, asked, rules=tuple(one.rule for one in told))

    def change(self, **settings: Any) -> None:  # noqa: ANN401 - of settings
        self.twins.happen(SettingsChanged(replace(self.twins.model.settings, **settings)))

    def left(self, request: RecommendationRequest, told: Sequence[Told], *more: str) -> Left | None:
        """Return the slates that may be shown."""
        pool = sorted({*(request.candidates or self.ids), *more})
        return slates_left([*self.own, *told], pool, SLATE_SIZE, self.shelf, self.shown)

    def visit(self, request: RecommendationRequest, told: Sequence[Told], *, is_rewarded: bool) -> None:
        left = self.left(request, told)
        if left is None:
            with pytest.raises(NotReadyError, match="no slate keeps"):
                choose_slate(self.twins.model, request)
            self.kinds["clash"] += 1
            return
        if is_entangled(left, [*self.own, *told], request.candidates or self.ids, self.shelf):
            self.kinds["entangled"] += 1
            return
        shown = choose_slate(self.twins.model, request)
        assert shown == choose_slate(self.twins.model, request), "the same request has the same answer"
        assert list(shown.relaxed) == left.given_up
        slates = numbered(left.slates)
        self.kinds[check_answer(self.twins.dense, request.context, slates, answer_of(shown))] += 1
        self.kinds["relaxed"] += bool(left.given_up)
        self.learn(request, shown, is_rewarded=is_rewarded)

    def visit_without(self, stage: Stage, request: RecommendationRequest, told: Sequence[Told]) -> None:
        """Ask in a stage that shows baseline slates, in shadow beside the bandit's own."""
        baseline = tuple(map(str, self.rng.permutation(self.ids)[:SLATE_SIZE]))
        left = self.left(request, told)
        if left is None:
            return
        self.change(stage=stage)
        shown = choose_slate(self.twins.model, replace(request, baseline_item_ids=baseline))
        self.change(stage=Stage.LIVE)
        check_mended(shown.slate, baseline, left.slates)
        answer = answer_of(shown)
        assert (answer.propensity, answer.position_propensities) == (1.0, (1.0,) * SLATE_SIZE)
        assert (shown.baseline, shown.explored, list(shown.relaxed)) == (True, False, left.given_up)
        check_moments(self.twins.dense, request.context, answer)
        if stage is Stage.SHADOW:
            assert shown.shadow is not None
            assert shown.shadow.slate in left.slates
            both = numbered([shown.shadow.slate, shown.slate])
            own, other = self.twins.dense.predict(request.context, both).mean
            assert shown.shadow.gain == pytest.approx(own - other, abs=1e-6)
        self.kinds["mended" if shown.slate != baseline else "baseline"] += 1
        self.kinds[stage.value] += 1

    def learn(self, request: RecommendationRequest, shown: Recommendation, *, is_rewarded: bool) -> None:
        self.twins.show(request, shown)
        if is_rewarded and (count := len(self.twins.dense.rewards)) < MOST_REWARDS:
            # High and low ones by turns: what looks like an outlier would not be learned.
            self.twins.reward(request, shown, float((-1) ** count * self.rng.uniform(0.5, 1.0)))
            self.shown.update(shown.slate)


def numbered(slates: Sequence[Sequence[str]]) -> list[Slate]:
    return [places_of(slate) for slate in slates]


def live(shop: RuledTwins, rounds: int = 40) -> None:
    """Ask under rules of the bandit, of the request, and of both; reward two of three while rewards are left."""
    for number in range(rounds):
        if number % 3 != 1:
            shop.own = shop.draw() if number % 3 else []
            shop.change(rules=tuple(one.rule for one in shop.own))
        told = [] if number % 3 == 1 else shop.draw()
        candidates = sorted(shop.rng.choice(shop.ids, size=5, replace=False).tolist()) if number % 4 == 3 else None
        shop.visit(shop.request(told, candidates), told, is_rewarded=bool(number % 3))
        if number % 2:
            shop.visit_without(Stage.SHADOW if number % 4 == 1 else Stage.OFF, shop.request(told), told)


@pytest.mark.parametrize(
    "kind",
    ["", "apart", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "apart")],
    ids=lambda kind: kind or "mixed",
)
@pytest.mark.parametrize("n_items", [pytest.param(6, marks=pytest.mark.slow), 7])
def test_each_answer_under_rules_is_the_textbooks(kind: str, n_items: int) -> None:
    shop = RuledTwins.of(n_items, kind)
    live(shop)
    for name in ("best", "near", "far"):
        assert shop.kinds[name] >= 2, shop.kinds
    assert shop.kinds["mended"] + shop.kinds["baseline"] >= 10
    assert shop.kinds["entangled"] <= 8


def test_rules_are_relaxed_and_clash_as_by_enumeration() -> None:
    shop = RuledTwins.of(6)
    live(shop, 60)
    assert min(shop.kinds["relaxed"], shop.kinds["clash"]) >= 3


def forget_rules_near_the_best(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(propensities, "NearSlates", lambda best, eligible, _rules: NearSlates(best, eligible))


def forget_rules_of_uniform_slates(patch: pytest.MonkeyPatch) -> None:
    def draw(self: SlateDistribution, rng: np.random.Generator) -> Any:  # noqa: ANN401 - a slate
        return random_rankings(self.near.eligible, slate_size=SLATE_SIZE, count=1, rng=rng)[0]

    patch.setattr(SlateDistribution, "_draw_any", draw)


def count_slates_as_without_rules(patch: pytest.MonkeyPatch) -> None:
    def share(self: SlateDistribution) -> float:
        return math.exp(-log_count(len(self.near.eligible), SLATE_SIZE))

    patch.setattr(SlateDistribution, "_share_of_one", property(share))


def count_what_is_pinned_as_chosen(patch: pytest.MonkeyPatch) -> None:
    def shares(self: SlateDistribution, slate: Any) -> Any:  # noqa: ANN401 - arrays
        return np.full(len(slate), self.uniform_share / len(self.near.eligible))

    patch.setattr(SlateDistribution, "_position_shares", shares)


def forget_rules_of_the_best(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choices, "find_showable", lambda _model, _request, eligible: Showable(eligible))


def forget_rules_of_baselines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choices, "complete_baseline", lambda _model, _request, slate, places: (Showable(places), slate))


@pytest.mark.parametrize(
    "spoil",
    [
        forget_rules_near_the_best,
        forget_rules_of_uniform_slates,
        count_slates_as_without_rules,
        count_what_is_pinned_as_chosen,
        forget_rules_of_the_best,
        forget_rules_of_baselines,
    ],
)
def test_the_textbook_notices(spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - a function
    shop = RuledTwins.of(6, "pin")
    spoil(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        live(shop)
