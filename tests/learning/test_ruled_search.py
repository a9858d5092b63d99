"""The search under rules, against all slates that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from tests.learning.dense import CK, WCK, WK, Kind, rankings_of
from tests.learning.ruled import Shop, allowed, draw_rules
from tests.learning.test_search import CONTEXT, bounds, random_posterior

from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, Pin, Rule
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.search import Found, best_seen, local_search
from topk_bandit.learning.slate_rules import compile_rules, find_slate, keep_rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.rankings import Rankings


class Ended(NamedTuple):
    """What a search found, as items, and its value."""

    ranking: NDArray[np.int32]
    value: float
    found: Found


def search(
    posterior: Posterior, rules: list[Rule], shop: Shop, *, beta: float = 1.0, starts: Rankings | None = None
) -> Ended | None:
    """Return where a search ended, None if no slate keeps the rules."""
    compiled = compile_rules(rules, shop.candidates, posterior.kernel.slate_size)
    anchor = None if compiled is None else find_slate(compiled.rules)
    if compiled is None or anchor is None:
        return None
    at_context = posterior.at(CONTEXT, compiled.places.astype(np.int32))
    found = local_search(
        at_context,
        ItemDraws(at_context).covariance,
        compiled.rules,
        anchor,
        beta=beta,
        starts=best_seen(at_context) if starts is None else starts,
        rng=np.random.default_rng(7),
    )
    assert keep_rules(compiled.rules, found.ranking[None]).all()
    ranking = compiled.places[found.ranking].astype(np.int32)
    return Ended(ranking, float(bounds(posterior, ranking[None], beta)[0]), found)


@pytest.mark.parametrize(
    ("kind", "n_items", "slate_size"),
    [(WCK, 8, 3), (WCK, 18, 3), (WCK, 6, 4), (CK, 8, 3), (CK, 18, 3), (WK, 6, 4), (WK, 8, 3)],
)
def test_the_best_allowed_slate_is_found(kind: Kind, n_items: int, slate_size: int) -> None:
    everything = all_rankings(np.arange(n_items), slate_size=slate_size)
    reached = searched = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, n_items])
        posterior, shop = random_posterior(seed, kind=kind, n_items=n_items, slate_size=slate_size), None
        values = bounds(posterior, everything, 1.0)
        shop = Shop.draw(n_items, rng)
        rules = draw_rules(shop, slate_size, rng)
        kept = np.array([allowed(rule, shop, everything) for rule in rules]).all(axis=0)
        ended = search(posterior, rules, shop)
        assert (ended is not None) == kept.any()
        if ended is None:
            continue
        assert all(allowed(rule, shop, ended.ranking[None]).all() for rule in rules)
        best = float(values[kept].max())
        assert ended.value <= best + 1e-6
        searched += 1
        reached += ended.value >= best - 1e-5 * (1.0 + abs(best))
    assert searched >= 6
    assert reached >= searched - 1


def test_among_many_items_no_rule_is_broken_whatever_the_starts() -> None:
    searched = 0
    for seed in range(25):
        rng = np.random.default_rng([seed, 40])
        posterior, shop = random_posterior(seed, n_items=40, slate_size=5), Shop.draw(40, rng)
        rules = draw_rules(shop, 5, rng, most=6)
        ended = search(posterior, rules, shop)
        compiled = compile_rules(rules, shop.candidates, 5)
        if ended is None or compiled is None:
            continue
        searched += 1
        assert all(allowed(rule, shop, ended.ranking[None]).all() for rule in rules)
        starts = rankings_of(len(compiled.places), 5, 3, rng)
        other = search(posterior, rules, shop, starts=starts)
        assert other is not None
        assert all(allowed(rule, shop, other.ranking[None]).all() for rule in rules)
        # A start that keeps the rules is no better than what is found from it.
        again = np.searchsorted(compiled.places, ended.ranking).astype(np.int32)
        third = search(posterior, rules, shop, starts=again[None])
        assert third is not None
        assert third.value >= ended.value - 1e-5 * (1.0 + abs(ended.value))
    assert searched >= 12


def test_two_items_change_at_once_where_bounds_tie_them() -> None:
    """Just one soup, and just one new item: a soup that is new leaves for a soup that is not, and a new one."""
    features = [Features.of({"category": "soup" if n < 4 else "cake", "tags": ("new",) * (n % 2)}) for n in range(8)]
    shop = Shop([f"i{n}" for n in range(8)], features)
    rules: list[Rule] = [
        Count(Group("category", "soup"), least=1, most=1),
        Count(Group("tags", "new"), least=1, most=1),
        Apart(Group("tags", "new")),
    ]
    everything = all_rankings(np.arange(8), slate_size=3)
    kept = np.array([allowed(rule, shop, everything) for rule in rules]).all(axis=0)
    for seed in range(20):
        posterior = random_posterior(seed, kind=WCK, n_items=8)
        ended = search(posterior, rules, shop, beta=0.5)
        assert ended is not None
        assert ended.value == pytest.approx(float(bounds(posterior, everything[kept], 0.5).max()), rel=1e-5, abs=1e-6)


def test_a_slate_that_is_wholly_pinned_is_the_one() -> None:
    rng = np.random.default_rng(0)
    for n_items in (8, 30):
        posterior, shop = random_posterior(1, n_items=n_items), Shop.draw(n_items, rng)
        pins: list[Rule] = [Pin(("i5",), 0), Pin(("i2",), 2), Pin(("i7",), 1)]
        ended = search(posterior, pins, shop)
        assert ended is not None
        assert ended.ranking.tolist() == [5, 7, 2]


def test_a_search_is_a_function_of_its_generator() -> None:
    rng = np.random.default_rng(3)
    posterior, shop = random_posterior(3, n_items=30, slate_size=4), Shop.draw(30, rng)
    rules: list[Rule] = [Count(Group("category"), most=1), Apart(Group("tags")), Pin(("i3",), 1)]
    one, other = search(posterior, rules, shop), search(posterior, rules, shop)
    assert one is not None
    assert other is not None
    assert one.ranking.tolist() == other.ranking.tolist()
    assert one.found.evaluations == other.found.evaluations
