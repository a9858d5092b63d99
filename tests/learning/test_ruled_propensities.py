"""The probabilities of slates under rules, against a list of all allowed slates and how often each is drawn."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.learning.ruled import Shop, draw_rules
from tests.learning.test_propensities import SHARES, is_near
from tests.learning.test_search import CONTEXT, random_posterior

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Exclude, Group, Pin, Rule
from topk_bandit.learning import allowed_slates
from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.slate_rules import compile_rules, find_slate, keep_rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.slate_rules import SlateRules


class Ruled(NamedTuple):
    """Rules, the items that they leave and all slates that keep them, as items."""

    rules: SlateRules
    eligible: NDArray[np.int32]
    slates: NDArray[np.int32]


def draw(seed: int, *, n_items: int = 7, slate_size: int = 3) -> Ruled | None:
    rng = np.random.default_rng(seed)
    shop = Shop.draw(n_items, rng)
    made = compile_rules(draw_rules(shop, slate_size, rng), shop.candidates, slate_size)
    if made is None or find_slate(made.rules) is None:
        return None
    eligible = (2 * made.places + 1).astype(np.int32)
    every = np.array(list(permutations(range(len(eligible)), slate_size)))
    return Ruled(made.rules, eligible, eligible[every[keep_rules(made.rules, every)]])


def by_definition(ruled: Ruled, best: NDArray[np.int32], uniform: float, near: float) -> NDArray[np.float64]:
    """Return the probability of each allowed slate."""
    beside = np.array([is_near(slate, best.tolist()) for slate in ruled.slates.tolist()])
    near_share = (1.0 - uniform) * near if beside.any() else 0.0
    of_best = (1.0 - uniform - near_share) * (ruled.slates == best).all(axis=1)
    return np.asarray(uniform / len(ruled.slates) + of_best + near_share * beside / max(beside.sum(), 1))


@pytest.mark.parametrize(("uniform", "near"), SHARES)
def test_each_allowed_slate_has_the_probability_that_its_definition_says(uniform: float, near: float) -> None:
    tried = 0
    for seed in range(25):
        ruled = draw(seed)
        if ruled is None:
            continue
        tried += 1
        best = ruled.slates[seed % len(ruled.slates)]
        exploration = Exploration(ConstantBeta(1.0), uniform_share=uniform, near_share=near)
        drawn_from = SlateDistribution.of(exploration, best, ruled.eligible, AllowedSlates(ruled.rules))
        expected = by_definition(ruled, best, uniform, near)
        propensities = np.array([drawn_from.propensity(slate) for slate in ruled.slates])
        np.testing.assert_allclose(propensities, expected, atol=1e-12)
        assert propensities.sum() == pytest.approx(1.0)
        for slate in ruled.slates[:20]:
            at_positions = [(expected * (ruled.slates[:, p] == slate[p])).sum() for p in range(3)]
            np.testing.assert_allclose(drawn_from.position_propensities(slate), at_positions, atol=1e-12)
    assert tried > 10


def test_slates_are_drawn_as_often_as_their_propensities_say() -> None:
    exploration, tried = Exploration(ConstantBeta(1.0), uniform_share=0.5, near_share=0.4), 0
    for seed in range(8):
        ruled = draw(seed)
        if ruled is None or len(ruled.slates) < 2:
            continue
        tried += 1
        rng = np.random.default_rng(seed)
        drawn_from = SlateDistribution.of(exploration, ruled.slates[0], ruled.eligible, AllowedSlates(ruled.rules))
        counts = Counter(tuple(drawn_from.draw(rng)[0].tolist()) for _ in range(4_000))
        observed = [counts.pop(tuple(slate), 0) for slate in ruled.slates.tolist()]
        assert not counts
        expected = 4_000 * np.array([drawn_from.propensity(slate) for slate in ruled.slates])
        assert chisquare(observed, expected).pvalue > 1e-3
    assert tried > 3


def test_what_is_not_counted_is_explored_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    ruled = next(one for seed in range(20) if (one := draw(seed)) is not None and len(one.slates) > 20)
    monkeypatch.setattr(allowed_slates, "MOST_STATES", 1)
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.2, near_share=0.5)
    drawn_from = SlateDistribution.of(exploration, ruled.slates[0], ruled.eligible, AllowedSlates(ruled.rules))
    assert (drawn_from.uniform_share, drawn_from.near_share) == (0.0, pytest.approx(0.6))
    assert sum(map(drawn_from.propensity, ruled.slates)) == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    assert all(drawn_from.propensity(drawn_from.draw(rng)[0]) > 0.0 for _ in range(50))


def shop_of(n_items: int) -> Shop:
    features = [Features.of({"category": f"c{n % 5}", "tags": ("new",) * (n % 7 == 0)}) for n in range(n_items)]
    return Shop([f"i{n}" for n in range(n_items)], features)


RULES: list[Rule] = [Count(Group("category"), most=1), Count(Group("tags", "new"), least=2), Pin(("i3",), 1)]


@pytest.mark.parametrize("n_items", [30, 400])
@pytest.mark.parametrize("known", [False, True])
def test_decisions_keep_rules_explored_ones_too(n_items: int, *, known: bool) -> None:
    shop, posterior = shop_of(n_items), random_posterior(2, n_items=n_items, slate_size=4)
    if not known:
        posterior = Posterior.prior(posterior.kernel, context_dim=2, noise_variance=0.1)
    made = compile_rules(RULES, shop.candidates, 4)
    assert made is not None
    state, eligible = (
        State(posterior=posterior, limits=Limits(), observations=posterior.n_rows),
        made.places.astype(np.int32),
    )
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.3, near_share=0.5)
    ways, best = set(), set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        decision = decide(
            state, exploration, context=CONTEXT, eligible=eligible, rng=rng, allowed=AllowedSlates(made.rules)
        )
        for slate in (decision.ranking, decision.best):
            assert keep_rules(made.rules, np.searchsorted(made.places, slate)[None]).all()
        assert 0.0 < decision.propensity <= decision.position_propensities.min() + 1e-12
        assert decision.position_propensities[1] == pytest.approx(1.0)
        ways.add(decision.explored)
        best.add(tuple(decision.best.tolist()))
    assert ways == {False, True}
    # What is best is a function of the state, whatever was drawn.
    assert len(best) == 1


def test_a_decision_without_an_allowed_slate_is_refused() -> None:
    shop = shop_of(10)
    made = compile_rules([Count(Group("category"), most=1), Count(Group("tags", "new"), least=3)], shop.candidates, 4)
    assert made is not None
    state = State(posterior=random_posterior(2, n_items=10, slate_size=4), limits=Limits())
    with pytest.raises(InvalidArgumentError, match="allowed: no slate keeps the rules"):
        decide(
            state,
            Exploration(ConstantBeta(1.0), uniform_share=0.3),
            context=CONTEXT,
            eligible=made.places.astype(np.int32),
            rng=np.random.default_rng(0),
            allowed=AllowedSlates(made.rules),
        )


def test_alike_items_beside_each_other_are_not_drawn() -> None:
    shop = shop_of(20)
    made = compile_rules([Apart(Group("category"))], shop.candidates, 4)
    assert made is not None
    state = State(posterior=random_posterior(4, n_items=20, slate_size=4), limits=Limits())
    for seed in range(10):
        decision = decide(
            state,
            Exploration(ConstantBeta(1.0), uniform_share=1.0),
            context=CONTEXT,
            eligible=np.arange(20, dtype=np.int32),
            rng=np.random.default_rng(seed),
            allowed=AllowedSlates(made.rules),
        )
        kinds = decision.ranking % 5
        assert (kinds[1:] != kinds[:-1]).all()
        assert decision.explored


def test_a_decision_among_items_that_rules_only_leave_out_is_one_without_rules() -> None:
    shop, posterior = shop_of(20), random_posterior(4, n_items=20, slate_size=4)
    made = compile_rules([Exclude(("i3", "i7"))], shop.candidates, 4)
    assert made is not None
    assert made.rules.allow_all
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.3, near_share=0.3)
    for seed in range(10):
        ruled, free = (
            decide(
                State(posterior=posterior, limits=Limits()),
                exploration,
                context=CONTEXT,
                eligible=made.places.astype(np.int32),
                rng=np.random.default_rng(seed),
                allowed=allowed,
            )
            for allowed in (AllowedSlates(made.rules), None)
        )
        assert ruled.ranking.tolist() == free.ranking.tolist()
        assert ruled.propensity == free.propensity
        assert ruled.position_propensities.tolist() == free.position_propensities.tolist()


@pytest.mark.parametrize("rule", [Pin(("i3", "i4"), 0), Count(Group("category"), most=1), Apart(Group("category"))])
def test_rules_about_slates_do_not_allow_all(rule: Rule) -> None:
    made = compile_rules([rule], shop_of(20).candidates, 4)
    assert made is not None
    assert not made.rules.allow_all
