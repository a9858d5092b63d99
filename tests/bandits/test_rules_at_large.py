"""What rules promise, in figures over many random sets of them: best slates, clashes, propensities, and regret.

``LONG_TESTS=1 pytest -s tests/bandits/test_rules_at_large.py`` prints the table of docs/rules.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chi2
from tests.learning.ruled import SCHEMA as ITEM_SCHEMA
from tests.learning.ruled import Shop, allowed, draw_rules
from tests.learning.test_ruled_propensities import by_definition, draw
from tests.learning.test_ruled_search import search
from tests.learning.test_search import bounds, random_posterior
from tests.long_forms import usual_or_long

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import BanditSettings, ConstantBeta, Exploration, Item, Kernel, PaperBeta
from topk_bandit.domain.rules import SlateRule, is_about_new
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.slate_rules import find_clash
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.domain.rules import Rule
    from topk_bandit.store.events import Event

pytestmark = pytest.mark.long_form

SETS_OF_ONE = 20
"""So many sets of rules are drawn for one shop."""


@dataclass
class Searches:
    """What became of searches, one for each set of rules."""

    sets: int = 0
    clashes: int = 0
    found: int = 0
    gains: list[float] = field(default_factory=list)

    @property
    def searched(self) -> int:
        return self.sets - self.clashes

    def describe(self) -> str:
        share, gain = self.found / self.searched, float(np.mean(self.gains))
        return f"{self.sets:,} sets of rules, {self.clashes:,} clash; best slate {share:.2%}, gain {gain:.3%}"


@pytest.mark.parametrize("part", range(usual_or_long(1, long=5)))
def test_the_best_allowed_slate_is_found_and_clashes_are_named(part: int) -> None:
    found, n_shops = Searches(), usual_or_long(10, long=1_000)
    for seed in range(part * n_shops, (part + 1) * n_shops):
        rng = np.random.default_rng([seed, 8])
        n_items = 6 + seed % 3
        posterior, every = random_posterior(seed, n_items=n_items), all_rankings(np.arange(n_items), slate_size=3)
        values = bounds(posterior, every, 1.0)
        shop = Shop.draw(n_items, rng)
        for _ in range(SETS_OF_ONE):
            rules = draw_rules(shop, 3, rng)
            by_rule = np.array([allowed(rule, shop, every) for rule in rules])
            found.sets += 1
            kept, ended = by_rule.all(axis=0), search(posterior, rules, shop)
            assert (ended is not None) == kept.any()
            if ended is None:
                check_clash(rules, shop, by_rule)
                found.clashes += 1
                continue
            assert kept[(every == ended.ranking).all(axis=1)].all(), "a rule is broken"
            best, mean = float(values[kept].max()), float(values[kept].mean())
            found.found += ended.value >= best - 1e-5 * (1.0 + abs(best))
            found.gains.append(min((ended.value - mean) / (best - mean), 1.0) if best - mean > 1e-9 else 1.0)
    print(found.describe())
    assert found.clashes > 0.05 * found.sets
    assert found.found >= 0.99 * found.searched
    assert float(np.mean(found.gains)) >= 0.999


def check_clash(rules: list[Rule], shop: Shop, by_rule: NDArray[np.bool_]) -> None:
    """Hold the rules that are named to clash, and not to without any one of them."""
    named = list(find_clash(rules, shop.candidates, 3))
    assert not by_rule[named].all(axis=0).any()
    for place in named:
        assert by_rule[[one for one in named if one != place]].all(axis=0).any()


def test_slates_are_drawn_as_often_as_their_propensities_say() -> None:
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.5, near_share=0.4)
    statistic, freedom, n_draws = 0.0, 0, usual_or_long(20_000, long=1_000_000)
    drawn = [one for seed in range(100, 180) if (one := draw(seed)) is not None and 1 < len(one.slates) <= 100]
    drawn = [one for one in drawn if not one.rules.allow_all][:10]
    for number, ruled in enumerate(drawn):
        rng = np.random.default_rng(number)
        slates = AllowedSlates(ruled.rules)
        policy = SlateDistribution.of(exploration, ruled.slates[0], ruled.eligible, slates)
        counts = Counter(tuple(policy.draw(rng)[0].tolist()) for _ in range(n_draws // len(drawn)))
        observed = np.array([counts.pop(tuple(slate), 0) for slate in ruled.slates.tolist()])
        assert not counts, "a slate that rules forbid was drawn"
        expected = observed.sum() * by_definition(ruled, ruled.slates[0], 0.5, 0.4)
        statistic += float(((observed - expected) ** 2 / expected).sum())
        freedom += len(observed) - 1
    chance = float(chi2.sf(statistic, freedom))
    print(f"{n_draws:,} draws of {len(drawn)} sets of rules: chi-square {statistic:.1f} of {freedom}, p {chance:.3f}")
    assert len(drawn) == 10
    assert chance > 1e-3


@dataclass
class Player:
    """A bandit that learns in a shop, with rules or without, and its regret against the best slate it may show."""

    shop: Shop
    worth: NDArray[np.float64]
    rules: list[Rule]

    def play(self, rounds: int, seed: int) -> float:
        """Return the regret of some rounds, a mean of one."""
        rng, every = np.random.default_rng(seed), all_rankings(np.arange(len(self.shop.item_ids)), slate_size=3)
        may_be, regret = every[keep_all(self.rules, self.shop, every)], 0.0
        created = BanditCreated(settings_of(self.shop, self.rules))
        model = begin("birth", LoggedEvent(1, 1, created), limits=Limits())
        items = [Item(name, features=one) for name, one in zip(*self.shop, strict=True)]
        happened: list[Event] = [ItemsChanged(tuple(items))]
        for number in range(rounds):
            for event in happened:
                model = fold(model, LoggedEvent(model.version + 1, 1, event))
            context = (1.0, float(rng.choice([-1.0, 1.0])))
            request = RecommendationRequest(f"r{number}", context, None)
            shown = choose_slate(model, request)
            slate = np.array([self.shop.item_ids.index(name) for name in shown.slate])
            assert (may_be == slate).all(axis=1).any(), "a rule is broken"
            earned = self.expect(slate[None], context)[0]
            regret += float(self.expect(may_be, context).max() - earned) / rounds
            noisy = float(earned + 0.3 * rng.normal())
            happened = [
                Recommended(request, shown),
                Rewarded(shown.recommendation_id, noisy, Shown(context, shown.slate, 1)),
            ]
        return regret

    def expect(self, slates: NDArray[np.integer], context: tuple[float, ...]) -> NDArray[np.float64]:
        return np.asarray((self.worth[slates] @ np.array(context)) @ (1.0 / np.log2([2.0, 3.0, 4.0])))


def settings_of(shop: Shop, rules: list[Rule]) -> BanditSettings:
    return BanditSettings(
        item_capacity=len(shop.item_ids),
        slate_size=3,
        context_dim=2,
        kernel=Kernel.ADAPTIVE,
        exploration=Exploration(PaperBeta(0.1), uniform_share=0.01, near_share=0.04),
        reward_wait_ms=1_000,
        default_reward=None,
        item_schema=ITEM_SCHEMA,
        rules=tuple(map(SlateRule, rules)),
    )


def draw_player(seed: int) -> Player:
    """Return a shop with rules that leave some slates, of which none asks for new items."""
    rng, every = np.random.default_rng([seed, 3]), all_rankings(np.arange(10), slate_size=3)
    shop = Shop.draw(10, rng)
    while True:
        rules = [rule for rule in draw_rules(shop, 3, rng) if not is_about_new(rule)]
        if 20 <= keep_all(rules, shop, every).sum() <= len(every) // 2:
            return Player(shop, rng.normal(size=(10, 2)) * [0.5, 0.3], rules)


def keep_all(rules: list[Rule], shop: Shop, slates: NDArray[np.int32]) -> NDArray[np.bool_]:
    kept = np.ones(len(slates), dtype=bool)
    for rule in rules:
        kept &= allowed(rule, shop, slates)
    return kept


def test_regret_under_rules_is_no_larger_than_without() -> None:
    n_shops, rounds = usual_or_long(3, long=30), usual_or_long(40, long=300)
    with_rules, without = [], []
    for seed in range(n_shops):
        player = draw_player(seed)
        with_rules.append(player.play(rounds, seed))
        without.append(Player(player.shop, player.worth, []).play(rounds, seed))
    ruled, free = np.array(with_rules), np.array(without)
    ratio = ruled.mean() / free.mean()
    error = float(np.std(ruled - ratio * free, ddof=1) / np.sqrt(n_shops) / free.mean())
    print(f"{n_shops} shops, {rounds} rounds: regret under rules {ratio:.3f} ± {error:.3f} times that without")
    assert ratio <= 1.1 + 2.0 * error
